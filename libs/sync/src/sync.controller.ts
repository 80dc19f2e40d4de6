import { Controller, Get } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryChoice,
  queryInteger,
  queryString,
  stable,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError, parseSyncFilter } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { FilterStore, SessionWatch } from '@rookery/users';
import { parseSyncToken } from './request/sync-token.js';
import { answerBytes } from './request/written-rooms.js';
import { type SyncRequest, SyncService } from './sync.service.js';

/** Longest wait that a client gets, whatever it asks for. */
const maxTimeoutMs = 10 * 60 * 1000;

/** The client's window on everything. */
@Controller()
export class SyncController {
  constructor(
    private readonly service: SyncService,
    private readonly filters: FilterStore,
    private readonly sessions: SessionWatch,
  ) {}

  /** GET /_matrix/client/v3/sync */
  @Get(stable('/sync'))
  @Access({
    ...{ auth: 'required', guests: true, active: true, anyProcess: true },
    largeAnswer: ({ query }) => query['since'] === undefined || query['full_state'] === 'true',
  })
  async sync(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<JsonObject | HttpReply> {
    const since = queryString(request, 'since');
    const fullState = queryBoolean(request, 'full_state') ?? false;
    const query = {
      userId: requester.userId,
      deviceId: requester.deviceId,
      isGuest: requester.isGuest,
      since: since === undefined ? undefined : parseSyncToken(since),
      filter: parseSyncFilter(await this.#filter(requester.userId, queryString(request, 'filter'))),
      fullState,
      setPresence: queryChoice(request, 'set_presence', ['offline', 'online', 'unavailable']) ?? 'online',
      useStateAfter:
        queryBoolean(request, 'use_state_after') ??
        (queryBoolean(request, 'org.matrix.msc4222.use_state_after') === true ? 'unstable' : false),
      timeoutMs: queryInteger(request, 'timeout', { min: 0, max: maxTimeoutMs, clamp: true }) ?? 0,
      asText: true,
    } satisfies SyncRequest;
    const answer = await (query.timeoutMs > 0
      ? this.sessions.during(request, requester.userId, (signal) => this.service.sync(query, signal))
      : this.service.sync(query, request.signal));
    const bytes = answerBytes(answer);
    return bytes === undefined ? answer : new HttpReply(200, { 'content-type': 'application/json' }, bytes);
  }

  /** A filter is given in line, as JSON, or by the id under which it was stored. */
  async #filter(userId: string, value: string | undefined): Promise<unknown> {
    if (value === undefined) return {};
    if (!value.startsWith('{')) return this.filters.get(userId, value);
    try {
      return JSON.parse(value) as unknown;
    } catch {
      throw MatrixError.invalidParam("'filter' is neither JSON nor the id of a filter");
    }
  }
}
