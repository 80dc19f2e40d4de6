import { Controller, Get } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, queryInteger, queryString, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { NotificationHistory, type NotificationsPage } from '../actions/notification-history.js';

const defaultLimit = 50;
const maxLimit = 500;

/** The list of what somebody was notified of. */
@Controller()
export class NotificationsController {
  constructor(private readonly history: NotificationHistory) {}

  /** GET /_matrix/client/v3/notifications */
  @Get(stable('/notifications'))
  @Access({ auth: 'required', largeAnswer: true })
  list(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<NotificationsPage> {
    return this.history.page(requester, {
      from: queryString(request, 'from'),
      limit: queryInteger(request, 'limit', { min: 1, max: maxLimit, clamp: true }) ?? defaultLimit,
      onlyHighlights: queryString(request, 'only') === 'highlight',
    });
  }
}
