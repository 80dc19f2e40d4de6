import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { MatrixError } from '@rookery/matrix-types';
import { type ThreadSubscription, ThreadSubscriptions } from '@rookery/push';

/** Changes of thread subscriptions as clients see them, and where those begin that did not fit in. */
export interface ThreadUpdates {
  readonly body: JsonObject;
  /** For the next page backwards; absent when there is none. */
  readonly next: string | undefined;
}

/** Tells clients how their subscriptions to threads have changed, the latest changes first (MSC4308). */
@Injectable()
export class ThreadUpdatesReader {
  constructor(private readonly threads: ThreadSubscriptions) {}

  get isEnabled(): boolean {
    return this.threads.isEnabled;
  }

  /** The latest changes in `(after, upTo]`, at most `limit`. */
  async between(userId: string, after: number, upTo: number, limit: number): Promise<ThreadUpdates> {
    const found = await this.threads.changes(userId, after, upTo, limit + 1);
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const body: JsonObject = {};
    for (const subscription of page) add(body, subscription);
    return { body, next: found.length > page.length && last ? formatThreadToken(last.position - 1) : undefined };
  }

  /**
   * A page of changes, going back in time.
   * @param from token of the page before, or of a sliding sync; absent for the latest changes
   * @param to token of the sliding sync whose changes the client has; absent for none
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  async page(userId: string, from: string | undefined, to: number | undefined, limit: number): Promise<JsonObject> {
    const upTo = from === undefined ? this.threads.position : parseThreadToken(from);
    const { body, next } = await this.between(userId, to ?? 0, upTo, limit);
    return { ...body, ...(next !== undefined && { end: next }) };
  }
}

const formatThreadToken = (position: number): string => `ts${position}`;

/** @throws MatrixError 400 `M_INVALID_PARAM` */
export function parseThreadToken(token: string): number {
  const position = /^ts(\d{1,15})$/.exec(token)?.[1];
  if (position === undefined) throw MatrixError.invalidParam('Not a token of this server');
  return Number(position);
}

function add(body: JsonObject, { subscribed, automatic, roomId, threadId, position }: ThreadSubscription): void {
  const rooms = (body[subscribed ? 'subscribed' : 'unsubscribed'] ??= {}) as Record<string, JsonObject>;
  (rooms[roomId] ??= {})[threadId] = { ...(subscribed && { automatic }), bump_stamp: position };
}
