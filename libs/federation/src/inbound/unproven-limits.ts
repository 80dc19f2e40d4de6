import { Injectable } from '@nestjs/common';
import { LeakyBucketRateLimiter, networkOf, type RateLimit } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config, SingleFlight } from '@rookery/platform';

/** Look-ups of keys under way for one address. */
const lookUpsOfAddress = 16;
/** The same for all addresses. */
const lookUpsAltogether = 256;
/** Look-ups that one address may ask for in a burst. */
const addressBurst = 100;
const addressPerSecond = 5;
/** The same for all addresses. */
const burstAltogether = 1_000;
const perSecondAltogether = 50;
/** What servers said about their keys that one address may be told in a burst: of each key that it names, or a server without one. */
const toldBurst = 5_000;
const toldPerSecond = 50;
/** Invites to addresses that one server may claim in a burst: identity servers are asked about each, which others have named. */
const claimBurst = 100;
const claimsPerSecond = 5;
/** Bytes of requests with wrong signatures that one address may send in a burst; a small request counts as {@link pieceBytes}. */
const forgedBytes = 16_777_216;
const forgedBytesPerSecond = 262_144;
/** What is counted of forged requests. */
const pieceBytes = 65_536;
/** When to come again where too many look-ups are under way, milliseconds. */
const retryMs = 5_000;
/** Pairs of an address and a server that are remembered to have proven something. */
const maxProven = 20_000;

const limits: Readonly<Record<string, RateLimit>> = {
  address: { perSecond: addressPerSecond, burstCount: addressBurst },
  altogether: { perSecond: perSecondAltogether, burstCount: burstAltogether },
  claims: { perSecond: claimsPerSecond, burstCount: claimBurst },
  told: { perSecond: toldPerSecond, burstCount: toldBurst },
  forged: { perSecond: forgedBytesPerSecond / pieceBytes, burstCount: forgedBytes / pieceBytes },
};

/** What strangers may make this server do: addresses in the name of servers of which they have not proven to be one, and unknown servers. */
@Injectable()
export class UnprovenLimits {
  readonly #buckets: LeakyBucketRateLimiter;
  readonly #proven: Cache<string, true>;
  readonly #running = new Map<string, number>();
  readonly #lookUps = new SingleFlight<unknown>();

  constructor(config: Config, clock: Clock) {
    this.#buckets = new LeakyBucketRateLimiter(clock, (name) => limits[name]);
    this.#proven = new Cache(config, 'federation_proven_origins', { invalidation: 'expires', max: maxProven });
  }

  /**
   * Looks for a key that is not kept, within the limits; several requests with one key share a look-up.
   * @param ip of the request
   * @param key server and key id
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async lookUp<T>(ip: string, key: string, find: () => Promise<T>): Promise<T> {
    return this.#lookUps.run(key, () => this.#begin(ip, find)) as Promise<T>;
  }

  #begin<T>(ip: string, find: () => Promise<T>): Promise<T> {
    const network = networkOf(ip);
    const running = this.#running.get(network) ?? 0;
    if (running >= lookUpsOfAddress || this.#lookUps.size >= lookUpsAltogether)
      throw MatrixError.limitExceeded(retryMs);
    this.#running.set(network, running + 1);
    return this.#counted(ip, find).finally(() => {
      const left = this.#running.get(network)! - 1;
      if (left === 0) this.#running.delete(network);
      else this.#running.set(network, left);
    });
  }

  async #counted<T>(ip: string, find: () => Promise<T>): Promise<T> {
    await this.#buckets.take('address', ip);
    await this.#buckets.take('altogether', '');
    return find();
  }

  /**
   * An address wants to be told what is kept of keys.
   * @param count of what it names
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async tell(ip: string, count: number): Promise<void> {
    await this.#buckets.take('told', ip, undefined, count);
  }

  /**
   * A server says that one of its users has claimed an invite to an address.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async claim(origin: string): Promise<void> {
    await this.#buckets.take('claims', origin);
  }

  /**
   * Refuses an address that has sent too much with wrong signatures. Whoever has signed rightly from there is let through:
   * servers may share an address, or their proxy may be all that is seen of them.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async assertMayProve(ip: string, origin: string): Promise<void> {
    if (this.#proven.get(pairOf(ip, origin)) !== undefined) return;
    // Asked for the refusal with its time only; what is taken comes back within the second.
    if (!(await this.#buckets.mayTake('forged', ip))) await this.#buckets.take('forged', ip);
  }

  /** A request of that address carried a wrong signature. */
  async noteForged(ip: string, bytes: number): Promise<void> {
    // Piece by piece: what does not fit fills the bucket.
    for (let left = Math.max(bytes, 1); left > 0; left -= pieceBytes) {
      if (!(await this.#buckets.mayTake('forged', ip))) return;
      await this.#buckets.take('forged', ip).catch(() => undefined);
    }
  }

  /** A server has signed rightly. */
  noteProven(ip: string, origin: string): void {
    const pair = pairOf(ip, origin);
    if (this.#proven.get(pair) === undefined) this.#proven.set(pair, true);
  }
}

const pairOf = (ip: string, origin: string): string => `${networkOf(ip)} ${origin}`;
