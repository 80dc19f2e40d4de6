import { Controller, Get } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  queryChoice,
  queryInteger,
  queryString,
  Who,
} from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { parsePosition } from './position.js';
import { limits } from './request.js';
import { parseThreadToken, ThreadUpdatesReader } from './thread-updates.js';

/** Paging back through changes of thread subscriptions (MSC4308). */
@Controller()
export class ThreadUpdatesController {
  constructor(private readonly updates: ThreadUpdatesReader) {}

  /** GET /_matrix/client/unstable/io.element.msc4308/thread_subscriptions */
  @Get(client(['unstable'], '/io.element.msc4308/thread_subscriptions'))
  @Access({ auth: 'required' })
  page(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    if (!this.updates.isEnabled) throw MatrixError.unrecognized();
    if (queryChoice(request, 'dir', ['b']) === undefined) throw MatrixError.missingParam("Missing parameter 'dir'");
    const limit = queryInteger(request, 'limit', { min: 1, max: limits.threads, clamp: true }) ?? 100;
    const to = queryString(request, 'to');
    return this.updates.page(
      requester.userId,
      queryString(request, 'from'),
      to === undefined ? to : positionOf(to),
      limit,
    );
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
