import { Controller, Post } from '@nestjs/common';
import {
  Access,
  client,
  HttpReply,
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
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { ExperimentalFeatures, SessionWatch } from '@rookery/users';
import { setPresence, timeout } from '../request/sync-params.js';
import { parseSlidingRequest, slidingRequestSchema } from './request.js';
import { SlidingSyncService } from './sliding-sync.service.js';

const syncQuery = queryOf({
  pos: param.string('`pos` of the answer before; nothing to begin anew.'),
  set_presence: setPresence,
  timeout,
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
  @Access({
    ...{ auth: 'required', guests: true, active: true, anyProcess: true },
    largeAnswer: ({ query }) => query['pos'] === undefined,
  })
  async sync(
    @Who() requester: Requester,
    @Inbound() inbound: InboundRequest,
    @Query(syncQuery) asked: InferQuery<typeof syncQuery>,
    @JsonBody(slidingRequestSchema, { optional: true }) body: Infer<typeof slidingRequestSchema>,
  ): Promise<HttpReply> {
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
    const answer = await (query.timeoutMs === 0
      ? this.service.answer(query, inbound.signal)
      : this.sessions.during(inbound, requester, (signal) => this.service.answer(query, signal)));
    // Rooms may come in with any answer, however large.
    return HttpReply.large(answer);
  }
}
