/** /sync and its filters. */
export { SyncModule } from './sync.module.js';
export { forgetConnections } from './sliding/restored-connections.query.js';
export { syncMigrations } from './sliding/sliding-sync.migration.js';
