import { Controller, Get } from '@nestjs/common';
import { Access, type InferQuery, param, Query, queryOf, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { NotificationHistory, type NotificationsPage } from '../actions/notification-history.js';

const defaultLimit = 50;
const maxLimit = 500;

const listQuery = queryOf({
  from: param.string('Where the page begins: a token of an earlier answer.'),
  limit: param.integer('How many entries at most.', { min: 1, max: maxLimit, clamp: true, otherwise: defaultLimit }),
  only: param.string('`highlight`: only what is highlighted.'),
});

/** The list of what somebody was notified of. */
@Controller()
export class NotificationsController {
  constructor(private readonly history: NotificationHistory) {}

  /** GET /_matrix/client/v3/notifications */
  @Get(stable('/notifications'))
  @Access({ auth: 'required', largeAnswer: true })
  list(@Who() requester: Requester, @Query(listQuery) query: InferQuery<typeof listQuery>): Promise<NotificationsPage> {
    return this.history.page(requester, {
      from: query.from,
      limit: query.limit,
      onlyHighlights: query.only === 'highlight',
    });
  }
}
