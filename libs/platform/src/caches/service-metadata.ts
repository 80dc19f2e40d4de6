import type { Clock } from '../clock.js';
import { SingleFlight } from '../concurrency/single-flight.js';

/** How long a service is left alone that did not tell them: while former ones are known, and while none are; milliseconds. */
const pauseMs = 60_000;
const pauseWithoutMs = 5_000;

/**
 * What another service says of itself, fetched when somebody needs it, which strangers may as often as they like: one request is under
 * way at a time, and none for a while after one that failed.
 */
export class ServiceMetadata<T> {
  readonly #fetching = new SingleFlight<void>();
  #known: { readonly value: T } | undefined;
  #failure: unknown;
  /** From when it is to be asked again, by a clock that only goes on, milliseconds. */
  #nextMs = Number.NEGATIVE_INFINITY;

  /** @param keptMs they are fetched again when they are older, milliseconds */
  constructor(
    private readonly clock: Clock,
    private readonly keptMs: number,
    private readonly fetch: () => Promise<T>,
  ) {}

  /**
   * The metadata, or the last that could be had.
   * @throws what the last fetch threw, where none were had so far
   */
  async get(): Promise<T> {
    if (this.clock.monotonicMs() >= this.#nextMs) await this.#fetching.run('', () => this.#renew());
    if (this.#known === undefined) throw this.#failure;
    return this.#known.value;
  }

  async #renew(): Promise<void> {
    let waitMs = this.keptMs;
    try {
      this.#known = { value: await this.fetch() };
      this.#failure = undefined;
    } catch (error) {
      // They change seldom: what was known goes on.
      this.#failure = error;
      waitMs = this.#known === undefined ? pauseWithoutMs : pauseMs;
    }
    this.#nextMs = this.clock.monotonicMs() + waitMs;
  }
}
