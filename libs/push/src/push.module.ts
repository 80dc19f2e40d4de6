import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { IgnoredSenders } from './actions/ignored-senders.js';
import { NotificationHistory } from './actions/notification-history.js';
import { NotificationsController } from './actions/notifications.controller.js';
import { PushActions } from './actions/push-actions.js';
import { PushCounts } from './actions/push-counts.js';
import { PushRulesController } from './rules/push-rules.controller.js';
import { PushRulesService } from './rules/push-rules.service.js';

const face = [PushRulesService, PushCounts, NotificationHistory];

/** Push rules, counts and pushers; safe in any process. */
@Module({ imports: [UsersModule, RoomsModule], providers: [...face, PushActions, IgnoredSenders], exports: face })
export class PushModule {}

/** The client API of push rules and pushers. */
@Module({ imports: [PushModule], controllers: [PushRulesController, NotificationsController] })
export class PushHttpModule {}
