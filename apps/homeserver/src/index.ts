/** The homeserver as a library: for tests, and for programs that embed it. */
export type { ProcessPlace } from './process-place.js';
export { Homeserver, type HomeserverOverrides, type ReloadReport } from './create-homeserver.js';
export { forgetModule } from './forget-module.js';
export { missingPartOf } from './optional-parts.js';
export { startProblems } from './start-problems.js';
export { missingProviders, type OfflineServices, offlineServices } from '@rookery/module-services';
export type { ReloadOutcome } from './reload-outcome.js';
export { databaseOptions, stateDatabaseOptions } from './database-options.js';
export { backgroundUpdates, migrations, stateMigrations } from './schema.js';
