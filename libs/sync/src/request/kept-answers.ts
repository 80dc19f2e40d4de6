import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Cache, Clock, Config, SingleFlight } from '@rookery/platform';
import { AccountDataService } from '@rookery/users';
import { answerBytes } from './written-rooms.js';

/** Large answers of clients that went away; a server of some size has few of them at a time. */
const maxBytes = 128 * 1024 * 1024;

interface Kept {
  readonly answer: JsonObject;
  readonly untilMs: number;
  /** Position of the stream of account data before it was made. */
  readonly accountData: number;
}

/**
 * Answers that took long to make and that their client did not wait for: when it asks for the same again, it gets what is there
 * already, or joins in while it is being made. What a client has got is not kept.
 */
@Injectable()
export class KeptAnswers {
  readonly #kept: Cache<string, Kept>;
  readonly #making = new SingleFlight<JsonObject>();
  readonly #keepMs: number;

  constructor(
    config: Config,
    private readonly clock: Clock,
    private readonly accountData: AccountDataService,
  ) {
    this.#keepMs = config.get('caches.sync_response_cache_duration');
    this.#kept = new Cache(config, 'sync', { invalidation: 'expires', max: 2 * maxBytes });
  }

  /**
   * The answer to a user's request, made now unless it is there.
   * @param request the same for requests that get the same answer
   * @param signal aborts when the client went away before it had the answer
   */
  async get(
    userId: string,
    request: unknown,
    signal: AbortSignal,
    make: () => Promise<JsonObject>,
  ): Promise<JsonObject> {
    if (this.#keepMs === 0) return make();
    const key = JSON.stringify([userId, request], withSets);
    const accountData = this.accountData.stream.current();
    const answer = this.#take(userId, key) ?? (await this.#make(key, make));
    const keep = (): void => {
      const size = answerBytes(answer)?.reduce((sum, part) => sum + part.byteLength, 0);
      const untilMs = this.clock.monotonicMs() + this.#keepMs;
      if (size !== undefined) this.#kept.set(key, { answer, untilMs, accountData }, size);
    };
    if (signal.aborted) keep();
    else signal.addEventListener('abort', keep, { once: true });
    return answer;
  }

  #take(userId: string, key: string): JsonObject | undefined {
    const kept = this.#kept.get(key);
    if (kept === undefined) return undefined;
    this.#kept.delete(key);
    // Who ignores somebody else by now must not get what that one said.
    const isRight = !this.accountData.hasChanged(userId, kept.accountData);
    return isRight && kept.untilMs > this.clock.monotonicMs() ? kept.answer : undefined;
  }

  #make(key: string, make: () => Promise<JsonObject>): Promise<JsonObject> {
    return this.#making.run(key, make);
  }
}

/** The rooms of a filter are sets, of which JSON by itself says nothing: all would be the same. */
const withSets = (_: string, value: unknown): unknown => (value instanceof Set ? [...(value as Set<unknown>)] : value);
