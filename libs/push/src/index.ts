/** Push actions, counts, pushers. */
export { PushCounts, type RoomCounts, totalOf, type UnreadCount } from './actions/push-counts.js';
export { pushMigrations } from './migrations/index.js';
export { pushNotesUpdate } from './migrations/notes.migration.js';
export { PushHttpModule, PushModule, PushSenderModule } from './push.module.js';
export { BadgeUpdates } from './pushers/badge-updates.js';
export { pushSenderRole } from './pushers/push-delivery.js';
export { type Pusher, pusherContent } from './pushers/pusher.js';
export { countPushers } from './pushers/pusher.query.js';
export { PushersService } from './pushers/pushers.service.js';
export { PushRulesService } from './rules/push-rules.service.js';
export { ThreadSubscriptions, type ThreadSubscription } from './threads/thread-subscriptions.service.js';
