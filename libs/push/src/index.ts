/** Push actions, counts, pushers. */
export { pushMigrations } from './migrations/index.js';
export { PushHttpModule, PushModule } from './push.module.js';
export { PushRulesService, type RulePlace } from './rules/push-rules.service.js';
