import { Injectable } from '@nestjs/common';
import { type InboundRequest, RequestAuthenticator } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Logger, type Requester } from '@rookery/platform';
import { SessionService } from '../sessions/session.service.js';

interface Watched {
  readonly request: InboundRequest;
  readonly end: AbortController;
  /** Done when the session was looked at again; absent while nothing has changed. */
  looked?: Promise<void>;
  /** Why the session may not have the answer. */
  refusal?: MatrixError;
}

/**
 * Ends requests that wait for news when the session that asked is over: logged out, deleted, locked, deactivated. Where another process may
 * have ended it without being heard, the request is refused when it has its answer.
 */
@Injectable()
export class SessionWatch {
  readonly #watched = new Map<string, Set<Watched>>();
  /** How often changes may have been missed. */
  #missed = 0;

  constructor(
    private readonly authenticator: RequestAuthenticator,
    private readonly logger: Logger,
    sessions: SessionService,
  ) {
    sessions.onChange((userId) => {
      if (userId === undefined) this.#missed++;
      else for (const watched of this.#watched.get(userId) ?? []) this.#look(watched);
    });
  }

  /**
   * Does `work` for a request that may wait long.
   * @param who made the request: it is looked at again when something changes with the user as whom it acts, or with the administrator who
   *   does
   * @param work is to end soon when its signal aborts: the client has gone, or may not have the answer any more
   * @throws what the request would be refused with if it came now, once the session is over; what `work` throws
   */
  async during<T>(
    request: InboundRequest,
    { userId, puppetedBy }: Pick<Requester, 'userId' | 'puppetedBy'>,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const users = puppetedBy === undefined ? [userId] : [userId, puppetedBy];
    const watched: Watched = { request, end: new AbortController() };
    const missed = this.#missed;
    for (const user of users) {
      const ofUser = this.#watched.get(user);
      if (ofUser) ofUser.add(watched);
      else this.#watched.set(user, new Set([watched]));
    }
    // Not `AbortSignal.any`, which costs ten times as much and leaves it to the collector to tidy up.
    const gone = (): void => watched.end.abort(request.signal.reason);
    request.signal.addEventListener('abort', gone, { once: true });
    if (request.signal.aborted) gone();
    try {
      const answer = await work(watched.end.signal);
      // Not all of them when it is missed: without a bus that is every second.
      if (missed !== this.#missed && watched.refusal === undefined) this.#look(watched);
      await watched.looked;
      if (watched.refusal !== undefined) throw watched.refusal;
      return answer;
    } finally {
      request.signal.removeEventListener('abort', gone);
      for (const user of users) {
        const left = this.#watched.get(user);
        left?.delete(watched);
        if (left?.size === 0) this.#watched.delete(user);
      }
    }
  }

  #look(watched: Watched): void {
    // What else the endpoint asks of its users was asked when the request came.
    watched.looked = this.authenticator.authenticate(watched.request, { auth: 'required', guests: true }).then(
      () => undefined,
      (err: unknown) => {
        if (err instanceof MatrixError) {
          watched.refusal = err;
          watched.end.abort(err);
        } else this.logger.error('A waiting request could not be checked again', { err });
      },
    );
  }
}
