/** /sync and its filters. */
export { SyncModule } from './sync.module.js';
export { limits as slidingSyncLimits } from './sliding/request.js';
export { syncMigrations } from './sliding/sliding-sync.migration.js';
