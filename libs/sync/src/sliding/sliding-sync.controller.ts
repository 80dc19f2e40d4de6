import { Controller, Post } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type Infer,
  type InferQuery,
  JsonBody,
  param,
  Query,
  queryOf,
  Who,
} from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { ExperimentalFeatures, SessionWatch } from '@rookery/users';
import { parseSlidingRequest, slidingRequestSchema } from './request.js';
import { SlidingSyncService } from './sliding-sync.service.js';

/** Longest wait that a client gets, whatever it asks for. */
const maxTimeoutMs = 10 * 60 * 1000;

const syncQuery = queryOf({
  pos: param.string('`pos` of the answer before; nothing to begin anew.'),
  set_presence: param.choice(
    'What the user is shown as while this device syncs.',
    ['offline', 'online', 'unavailable'],
    { otherwise: 'online' },
  ),
  timeout: param.integer('How long to wait for news, milliseconds.', {
    min: 0,
    max: maxTimeoutMs,
    clamp: true,
    otherwise: 0,
  }),
});

/** Simplified sliding sync (MSC4186). */
@Controller()
export class SlidingSyncController {
  constructor(
    private readonly service: SlidingSyncService,
    private readonly features: ExperimentalFeatures,
    private readonly sessions: SessionWatch,
  ) {}

  /** POST /_matrix/client/unstable/org.matrix.simplified_msc3575/sync */
  @Post(client(['unstable'], '/org.matrix.simplified_msc3575/sync'))
  @Access({ auth: 'required', guests: true, active: true, largeAnswer: ({ query }) => query['pos'] === undefined })
  async sync(
    @Who() requester: Requester,
    @Inbound() inbound: InboundRequest,
    @Query(syncQuery) asked: InferQuery<typeof syncQuery>,
    @JsonBody(slidingRequestSchema, { optional: true }) body: Infer<typeof slidingRequestSchema>,
  ): Promise<JsonObject> {
    if (!(await this.features.isEnabled(requester.userId, 'msc3575'))) throw MatrixError.unrecognized();
    const query = {
      userId: requester.userId,
      deviceId: requester.deviceId,
      isGuest: requester.isGuest,
      request: parseSlidingRequest(body),
      pos: asked.pos,
      setPresence: asked.set_presence,
      timeoutMs: asked.timeout,
    };
    if (query.timeoutMs === 0) return this.service.answer(query, inbound.signal);
    return this.sessions.during(inbound, requester.userId, (signal) => this.service.answer(query, signal));
  }
}
