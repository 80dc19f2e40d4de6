/** Push actions, counts, pushers. */
export { PushCounts, type ReadReceipt, type RoomCounts, totalOf, type UnreadCount } from './actions/push-counts.js';
export { pushMigrations } from './migrations/index.js';
export { PushHttpModule, PushModule } from './push.module.js';
export { PushRulesService, type RulePlace } from './rules/push-rules.service.js';
