import { Controller, Get } from '@nestjs/common';
import { Access, client, type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { parsePosition } from './position.js';
import { limits } from './request.js';
import { parseThreadToken, ThreadUpdatesReader } from './thread-updates.js';

const pageQuery = queryOf({
  dir: param.choice('Backwards in time, the one way there is; it has to be there.', ['b']),
  limit: param.integer('How many entries at most.', { min: 1, max: limits.threads, clamp: true, otherwise: 100 }),
  to: param.string('Where to stop: a token of an earlier answer.'),
  from: param.string('Where the page begins: a token of an earlier answer.'),
});

/** Paging back through changes of thread subscriptions (MSC4308). */
@Controller()
export class ThreadUpdatesController {
  constructor(private readonly updates: ThreadUpdatesReader) {}

  /** GET /_matrix/client/unstable/io.element.msc4308/thread_subscriptions */
  @Get(client(['unstable'], '/io.element.msc4308/thread_subscriptions'))
  @Access({ auth: 'required', anyProcess: true })
  page(@Who() requester: Requester, @Query(pageQuery) query: InferQuery<typeof pageQuery>): Promise<object> {
    if (!this.updates.isEnabled) throw MatrixError.unrecognized();
    if (query.dir === undefined) throw MatrixError.missingParam("Missing parameter 'dir'");
    const { limit, to } = query;
    return this.updates.page(requester.userId, query.from, to === undefined ? to : positionOf(to), limit);
  }
}

/** A token of this endpoint, or the position of a sliding sync. @throws MatrixError 400 `M_INVALID_PARAM` */
function positionOf(token: string): number {
  if (token.startsWith('ts')) return parseThreadToken(token);
  try {
    return parsePosition(token).token.threads;
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    throw MatrixError.invalidParam("'to' is not a token of this server");
  }
}
