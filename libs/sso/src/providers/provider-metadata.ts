import { type Clock, SingleFlight } from '@rookery/platform';
import { SsoError } from '../common/sso-error.js';

/** Metadata are fetched again when they are older, milliseconds. */
const keptMs = 3_600_000;
/** How long a provider is left alone that did not tell them: while former ones are known, and while none are; milliseconds. */
const pauseMs = 60_000;
const pauseWithoutMs = 5_000;

/**
 * What a provider says of itself, fetched when somebody signs on. Strangers can begin any number of sign-ons: one request is under way at
 * a time, and none for a while after one that failed.
 */
export class ProviderMetadata<T> {
  readonly #fetching = new SingleFlight<void>();
  #known: { readonly value: T } | undefined;
  #failure: unknown;
  /** From when it is to be asked again, by a clock that only goes on, milliseconds. */
  #nextMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly clock: Clock,
    private readonly fetch: () => Promise<T>,
  ) {}

  /**
   * The metadata of an hour ago at most, or the last that could be had.
   * @throws SsoError `provider_unavailable` where none were had so far
   */
  async get(): Promise<T> {
    if (this.clock.monotonicMs() >= this.#nextMs) await this.#fetching.run('', () => this.#renew());
    if (this.#known === undefined) throw SsoError.unavailable(this.#failure);
    return this.#known.value;
  }

  async #renew(): Promise<void> {
    let waitMs = keptMs;
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
