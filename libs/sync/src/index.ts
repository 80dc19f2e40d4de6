/** /sync and its filters. */
export { SyncModule } from './sync.module.js';
export { syncMigrations } from './sliding/sliding-sync.migration.js';
