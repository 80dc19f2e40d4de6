import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { deviceKeyOf } from '../model/requesters.js';

const maxRemembered = 10_000;
const maxKeyLength = 2000;

/**
 * Requests that name a transaction and do not send one event, which has a place of its own for it: making a room, joining, leaving an event
 * to be sent later.
 * The answers are in memory: after a restart such a request is done anew.
 */
@Injectable()
export class AnsweredTransactions {
  readonly #answers = new LRUCache<string, Promise<object>>({ maxSize: maxRemembered, sizeCalculation: () => 1 });

  /**
   * Does what a request asks for, once. Repeated, it has the first one's answer, also while that one is under way; one that
   * failed may be tried again.
   * @param request what is asked for, and the client's id of the transaction
   * @throws MatrixError 400 `M_INVALID_PARAM` for what is too long to be remembered
   */
  once(requester: Requester, request: readonly string[], run: () => Promise<object>): Promise<object> {
    const key = keyOf(requester, request);
    if (key.length > maxKeyLength) throw MatrixError.transactionIdTooLong();
    const known = this.#answers.get(key);
    if (known) return known;
    const answer = run();
    this.#answers.set(key, answer);
    answer.catch(() => {
      if (this.#answers.get(key) === answer) this.#answers.delete(key);
    });
    return answer;
  }

  /** The answer to a request that was done by {@link once}, or is under way; `undefined` where nobody knows of it. */
  known(requester: Requester, request: readonly string[]): Promise<object> | undefined {
    return this.#answers.get(keyOf(requester, request));
  }
}

const keyOf = (requester: Requester, request: readonly string[]): string =>
  JSON.stringify([requester.userId, deviceKeyOf(requester), ...request]);
