import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { EventTiesReader } from './actions/event-ties.js';
import { IgnoredSenders } from './actions/ignored-senders.js';
import { NamesInText } from './actions/names-in-text.js';
import { NotificationHistory } from './actions/notification-history.js';
import { NotificationsController } from './http/notifications.controller.js';
import { OwnReads } from './actions/own-reads.js';
import { PushActions } from './actions/push-actions.js';
import { PushCounts } from './actions/push-counts.js';
import { DigestMails } from './email/digest-mails.js';
import { DigestRooms } from './email/digest-rooms.js';
import { EmailDigests } from './email/email-digests.js';
import { UnsubscribeLinks } from './email/unsubscribe-links.js';
import { UnsubscribeController } from './http/unsubscribe.controller.js';
import { BadgeUpdates } from './pushers/badge-updates.js';
import { DuePushers } from './pushers/due-pushers.js';
import { PushDelivery } from './pushers/push-delivery.js';
import { PushGateway } from './pushers/push-gateway.js';
import { PushMessages } from './pushers/push-messages.js';
import { PushRequests } from './pushers/push-requests.js';
import { PushersController } from './http/pushers.controller.js';
import { LocalNotificationSettings } from './pushers/local-notifications.js';
import { PushersService } from './pushers/pushers.service.js';
import { PushRulesController } from './http/push-rules.controller.js';
import { PushRulesService } from './rules/push-rules.service.js';
import { ThreadSubscriptionsController } from './http/thread-subscriptions.controller.js';
import { ThreadSubscriptions } from './threads/thread-subscriptions.service.js';

const services = [
  PushRulesService,
  PushCounts,
  OwnReads,
  NotificationHistory,
  PushersService,
  ThreadSubscriptions,
  UnsubscribeLinks,
];

/** Push rules, counts and pushers; safe in any process. */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: [...services, PushActions, EventTiesReader, IgnoredSenders, NamesInText, LocalNotificationSettings],
  exports: services,
})
export class PushModule {}

/** The client API of push rules and pushers. */
@Module({
  imports: [PushModule],
  controllers: [
    PushRulesController,
    NotificationsController,
    PushersController,
    ThreadSubscriptionsController,
    UnsubscribeController,
  ],
})
export class PushHttpModule {}

/** Sends notifications to push gateways, and by mail from the process that writes. Needs `Lifecycle` and `OutboundHttp` from the app. */
@Module({
  imports: [PushModule, RoomsModule, UsersModule],
  providers: [
    PushGateway,
    PushRequests,
    PushMessages,
    DuePushers,
    PushDelivery,
    BadgeUpdates,
    DigestRooms,
    DigestMails,
    EmailDigests,
  ],
  exports: [BadgeUpdates],
})
export class PushSenderModule {}
