import { Controller, Get } from '@nestjs/common';
import {
  Access,
  HttpReply,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  stable,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError, parseSyncFilter, type SyncFilter } from '@rookery/matrix-types';
import { Metrics, type Requester } from '@rookery/platform';
import { FilterStore, SessionWatch } from '@rookery/users';
import { setPresence, timeout } from './request/sync-params.js';
import { parseSyncToken } from './request/sync-token.js';
import { answerBytes } from './request/written-rooms.js';
import { type SyncRequest, SyncService } from './sync.service.js';

const syncQuery = queryOf({
  since: param.string('`next_batch` of the answer before; nothing for everything.'),
  full_state: param.boolean('Whether all state comes, also what did not change.', { otherwise: false }),
  filter: param.string('The id of a filter, or a filter as JSON.'),
  set_presence: setPresence,
  use_state_after: param.boolean('Whether state comes as it is at the end of the timeline (MSC4222).'),
  'org.matrix.msc4222.use_state_after': param.boolean('The same in answers of before it was specified.'),
  timeout,
});

const unfiltered = parseSyncFilter({});
/** What is in an answer without news, too. */
const alwaysThere = new Set(['next_batch', 'device_one_time_keys_count', 'device_unused_fallback_key_types']);

/** The client's window on everything. */
@Controller()
export class SyncController {
  readonly #nonEmpty;

  constructor(
    private readonly service: SyncService,
    private readonly filters: FilterStore,
    private readonly sessions: SessionWatch,
    metrics: Metrics,
  ) {
    this.#nonEmpty = metrics.counter('synapse_handlers_sync_nonempty_total');
  }

  /** GET /_matrix/client/v3/sync */
  @Get(stable('/sync'))
  @Access({
    ...{ auth: 'required', guests: true, active: true, anyProcess: true },
    largeAnswer: ({ query }) => query['since'] === undefined || query['full_state'] === 'true',
  })
  async sync(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Query(syncQuery) asked: InferQuery<typeof syncQuery>,
  ): Promise<JsonObject | HttpReply> {
    const { since } = asked;
    const query = {
      userId: requester.userId,
      deviceId: requester.deviceId,
      isGuest: requester.isGuest,
      since: since === undefined ? undefined : parseSyncToken(since),
      filter: asked.filter === undefined ? unfiltered : await this.#filter(requester.userId, asked.filter),
      fullState: asked.full_state,
      setPresence: asked.set_presence,
      useStateAfter:
        asked.use_state_after ?? (asked['org.matrix.msc4222.use_state_after'] === true ? 'unstable' : false),
      timeoutMs: asked.timeout,
      asText: true,
    } satisfies SyncRequest;
    const answer = await (query.timeoutMs > 0
      ? this.sessions.during(request, requester, (signal) => this.service.sync(query, signal))
      : this.service.sync(query, request.signal));
    if (Object.keys(answer).some((key) => !alwaysThere.has(key))) this.#count(query);
    const bytes = answerBytes(answer);
    return bytes === undefined ? answer : new HttpReply(200, { 'content-type': 'application/json' }, bytes);
  }

  #count({ since, fullState, filter }: SyncRequest): void {
    const type = since === undefined ? 'initial_sync' : fullState ? 'full_state_sync' : 'incremental_sync';
    this.#nonEmpty.inc({ type, lazy_loaded: String(filter.room.state.lazyLoadMembers) });
  }

  /** A filter is given in line, as JSON, or by the id under which it was stored. */
  async #filter(userId: string, value: string): Promise<SyncFilter> {
    if (!value.startsWith('{')) return this.filters.parsed(userId, value);
    let filter: unknown;
    try {
      filter = JSON.parse(value);
    } catch {
      throw MatrixError.invalidParam("'filter' is neither JSON nor the id of a filter");
    }
    return parseSyncFilter(filter);
  }
}
