/** /sync and its filters. */
export { SyncModule } from './sync.module.js';
