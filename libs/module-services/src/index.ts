/** What modules may call, and what runs in the server for them. */
export { ModuleServices } from './module-services.js';
export { ModuleServicesModule, RateLimitsModule } from './module-services.module.js';
export { missingProviders, type OfflineServices, offlineServices } from './offline-checks.js';
export { moduleApiMigrations } from './storage/module-api.migration.js';
export { deleteModuleData, hasModuleData } from './storage/module-data.query.js';
