import type { Database } from '@rookery/database';
import type { Clock, Logger } from '@rookery/platform';
import { Follower, type FollowerOptions } from '../follower.js';
import type { Notifier } from '../notifier.js';
import type { Role, Roles } from '../roles/roles.js';
import { defineRpc, type Rpc, type RpcMethod } from '../rpc/rpc.js';

/** What is followed, how, and whose duty that is. */
export interface SharedFollowing extends Pick<
  FollowerOptions,
  'name' | 'stream' | 'startAt' | 'saveEveryMs' | 'advance'
> {
  /** Of one shard. It may have other parts. */
  readonly role: Role;
  /** What comes meanwhile is worked on together. Whoever waits cuts it short. */
  readonly pauseMs: number;
}

export interface FollowerParts {
  readonly roles: Roles;
  readonly rpc: Rpc;
  readonly database: Database;
  readonly notifier: Notifier;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface Waiting {
  readonly position: number;
  readonly resume: () => void;
}

/** Nobody waits longer: what they do then is done without the latest. */
const maxWaitMs = 2_000;

/**
 * A follower in whichever process has its role, for which every process can wait. It goes on from the cursor when the role comes, and has
 * come to its end and stored the cursor before the role goes. What `advance` writes is marked `anyProcess`.
 */
export class SharedFollower {
  readonly #parts: FollowerParts;
  readonly #following: SharedFollowing;
  readonly #follower: Follower;
  readonly #caughtUpCall: RpcMethod<{ readonly position: number }, number>;
  readonly #waiting = new Set<Waiting>();
  #isRunning = false;
  #reached = 0;
  #pause = new AbortController();

  constructor(parts: FollowerParts, following: SharedFollowing) {
    this.#parts = parts;
    this.#following = following;
    const { database, notifier, clock, logger, roles, rpc } = parts;
    const { name, stream, startAt, saveEveryMs, role } = following;
    this.#follower = new Follower({
      ...{ name, stream, startAt, saveEveryMs, database, notifier, clock, logger, anyProcess: true },
      advance: (after, upTo, signal) => this.#advance(after, upTo, signal),
    });
    this.#caughtUpCall = defineRpc(`${name}_caught_up`, { timeoutMs: 2 * maxWaitMs });
    rpc.handle(this.#caughtUpCall, async ({ position }) => {
      await this.#waitFor(position);
      return this.#reached;
    });
    roles.take(role, { start: () => this.#start(), stop: () => this.#stop() });
  }

  /** Waits until everything that could be read when it was called has been worked on, by whichever process; for two seconds at most. Never rejects. */
  async caughtUp(): Promise<void> {
    const { clock, logger, notifier, roles } = this.#parts;
    const { name, role, stream } = this.#following;
    const position = notifier.position(stream);
    if (this.#reached >= position) return;
    if (this.#isRunning) return this.#waitFor(position);
    const answered = new AbortController();
    const asked = roles.ask(role, 0, this.#caughtUpCall, { position }).then(
      (reached) => void (this.#reached = Math.max(this.#reached, reached)),
      (err: unknown) => logger.debug('Whoever follows could not be waited for', { follower: name, err }),
    );
    await Promise.race([asked, clock.sleep(maxWaitMs, answered.signal)]);
    answered.abort();
  }

  async #start(): Promise<void> {
    this.#isRunning = true;
    await this.#follower.start();
    this.#reached = Math.max(this.#reached, this.#follower.position);
  }

  /** Lets the batch in hand finish. */
  async #stop(): Promise<void> {
    this.#isRunning = false;
    this.#pause.abort();
    for (const { resume } of this.#waiting) resume();
    await this.#follower.stop();
  }

  async #waitFor(position: number): Promise<void> {
    if (!this.#isRunning || this.#reached >= position) return;
    await new Promise<void>((resolve) => {
      const timer = this.#parts.clock.after(maxWaitMs, () => waiting.resume());
      const waiting: Waiting = {
        position,
        resume: () => {
          timer.cancel();
          this.#waiting.delete(waiting);
          resolve();
        },
      };
      this.#waiting.add(waiting);
      this.#pause.abort();
    });
  }

  async #advance(after: number, upTo: number, signal: AbortSignal): Promise<number> {
    this.#reached = await this.#following.advance(after, upTo, signal);
    for (const { position, resume } of this.#waiting) if (position <= this.#reached) resume();
    if (this.#isRunning && this.#waiting.size === 0) {
      this.#pause = new AbortController();
      await this.#parts.clock.sleep(this.#following.pauseMs, this.#pause.signal);
    }
    return this.#reached;
  }
}
