import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Ids, lastAnswerMs, type Logger, ownTurn } from '@rookery/platform';
import type { Bus } from '../bus.js';
import type { Invalidations } from '../invalidations.js';
import { type Role, type Roles, shardOf } from '../roles/roles.js';
import { defineRpc, instanceOf, type Rpc, type RpcMethod } from '../rpc/rpc.js';
import type { Streams } from '../streams/streams.js';
import { type WorkBatch, WorkLink } from './work-link.js';

/** What is done with the work of a role. */
export interface Work<Item> {
  /** Its work is told by keys, each of which belongs to a shard. */
  readonly role: Role;
  /** Reads what many items need, at once, where they came from another process. A rejection makes them come again. */
  prepare?(items: readonly Item[]): Promise<void>;
  /** Does what was found, for keys of this process. Must not throw. */
  take(items: readonly Item[]): void;
  /**
   * Finds in the database what was to be done before: what was found while nobody had the shard was told to nobody. A rejection is tried
   * again.
   */
  catchUp(isWanted: (key: string) => boolean): Promise<void>;
  /** Ends what is under way for keys that are not this process's any more ({@link SharedWork.has}), and waits for it, with whatever is to be noted of it. */
  letGo(): Promise<void>;
  /**
   * Whether what is to be done is about something that was announced on the bus, so that who does it must have heard of that. Yes unless
   * told.
   */
  isAnnounced?(item: Item): boolean;
  /** How much an item is, in whatever unit makes 20,000 of it enough for one call; 1 unless told. */
  sizeOf?(item: Item): number;
}

export interface SharedWorkParts {
  readonly roles: Roles;
  readonly rpc: Rpc;
  readonly bus: Bus;
  readonly streams: Streams;
  readonly invalidations: Invalidations;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
}

/** Who has a shard: this process, or another one. */
export type Outlet<Item> = 'here' | WorkLink<Item>;

/** How long a start waits for somebody to have each shard, milliseconds. */
const longestStartMs = 10_000;
const firstRetryMs = 100;
const longestRetryMs = 5_000;
/** While the bus is away news are missed all the time, none of which says what there is to do: it is looked up no oftener. */
const lookAgainMs = 30_000;

/**
 * Work that is found in the process that writes, and done by whoever has its shard. Who takes a shard says so to the process that writes, is told
 * from then on what there is to do, and then finds in the database what was found before. Another process that writes, or news that may have been
 * missed, make it begin so once more. So what is told may get lost, as long as it lies in the database as well.
 */
export class SharedWork<Item> {
  readonly #parts: SharedWorkParts;
  readonly #work: Work<Item>;
  readonly #attachCall: RpcMethod<{ readonly process: string; readonly shards: readonly number[] }, null>;
  readonly #takeCall: RpcMethod<WorkBatch<Item>, null>;
  readonly #caughtUpCall: RpcMethod<{ readonly shards: readonly number[] }, null>;
  // In the process that writes: who has the shards.
  readonly #outlets: (Outlet<Item> | undefined)[];
  readonly #links = new Map<string, WorkLink<Item>>();
  #isAllHere = false;
  #isOpen = false;
  /** Those that somebody has, or had, who knows what was to be done before. */
  readonly #begun = new Set<number>();
  readonly #complete = Promise.withResolvers<void>();
  // In whoever does it.
  readonly #shards = new Set<number>();
  /** Those of which everything is known that was to be done before. */
  readonly #caughtUp = new Set<number>();
  /** Those of which the process that writes has not been told. */
  readonly #unattached = new Set<number>();
  #attaching: Promise<void> | undefined;
  #lookAgainAtMs = 0;
  #last = { link: '', number: 0 };
  readonly #stopping = new AbortController();

  constructor(parts: SharedWorkParts, work: Work<Item>) {
    this.#parts = parts;
    this.#work = work;
    const { invalidations, roles, rpc } = parts;
    const { role } = work;
    this.#outlets = Array.from({ length: role.shards });
    this.#attachCall = defineRpc(`${role.name}_attach`, { timeoutMs: 5_000 });
    this.#takeCall = defineRpc(`${role.name}_take`, { timeoutMs: 10_000 });
    rpc.handle(this.#attachCall, ({ process, shards }) => this.#attached(process, shards));
    this.#caughtUpCall = defineRpc(`${role.name}_caught_up`, { timeoutMs: 5_000 });
    rpc.handle(this.#takeCall, (batch) => this.#take(batch));
    rpc.handle(this.#caughtUpCall, ({ shards }) => this.#isBegun(shards));
    roles.take(role, { start: (shard) => this.#begin([shard]), stop: (shard) => this.#end(shard) });
    invalidations.on(role.name, { forget: () => undefined, forgetAll: () => this.#mayHaveMissed() });
  }

  /** Another process writes now: it is to tell what there is to do, and what it does not know is looked up. */
  beginAnew(): void {
    this.#begin([...this.#shards]);
  }

  /** In the process that writes: from now on others may say that they do it. */
  open(): void {
    this.#isOpen = true;
  }

  /**
   * Resolves once each shard has been somebody's who knows what was to be done before, which may take some seconds; or is cut short. What is found
   * earlier, whoever has it leaves to the database. Never rejects.
   */
  complete(signal: AbortSignal): Promise<unknown> {
    return Promise.race([this.#complete.promise, this.#parts.clock.sleep(longestStartMs, signal)]);
  }

  /** Whether all of it is done in this process, which writes: so it is in a server that is a single process. */
  get isAllHere(): boolean {
    return this.#isAllHere;
  }

  /** In the process that writes: who does what is to be done for a key; `undefined`: nobody now, and whoever will finds it in the database. */
  outletOf(key: string): Outlet<Item> | undefined {
    return this.#isAllHere ? 'here' : this.#outlets[this.#shardOf(key)];
  }

  /** In the process that writes: tells whoever is to do it. */
  give(outlet: Outlet<Item>, item: Item): void {
    if (outlet === 'here') this.#work.take([item]);
    else outlet.push(item);
  }

  /** In the process that writes: tells all other processes that do some of it. */
  giveOthers(item: Item): void {
    for (const link of this.#links.values()) link.push(item);
  }

  /** Whether what is to be done for a key is this process's. */
  has(key: string): boolean {
    return this.#shards.has(this.#shardOf(key));
  }

  /**
   * Whether it may be done now: ask before whatever leaves the server. No for a while where this process does not know whether somebody
   * else does it by now; then it finds out, or ends.
   */
  mayAct(key: string): boolean {
    return this.has(key) && this.#parts.roles.holds(this.#work.role, this.#shardOf(key));
  }

  /** Whether everything is known that was to be done for a key before this process was told of news. */
  isCaughtUp(key: string): boolean {
    return this.#caughtUp.has(this.#shardOf(key));
  }

  /** Nothing more is told, and nothing more is begun. Whoever does not answer what is asked by then, or the database, has a moment. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    const ended = new AbortController();
    await Promise.race([this.#attaching, this.#parts.clock.sleep(lastAnswerMs, ended.signal)]);
    ended.abort();
  }

  /** From now on a process is told what there is to do for some shards. */
  async #attached(process: string, shards: readonly number[]): Promise<null> {
    if (!this.#isOpen) throw MatrixError.unavailable('It is not known here yet what there is to do');
    const isHolder = (shard: number): boolean => this.#isHolder(process, shard);
    if (!shards.every(isHolder)) await this.#parts.roles.refresh();
    // Whoever was paused does not know yet that somebody else has them.
    if (!shards.every(isHolder)) throw MatrixError.unavailable(`Some of that is not the duty of ${process}`);
    const outlet = process === this.#own ? 'here' : this.#linkTo(process);
    for (const shard of shards) if (shard in this.#outlets) this.#outlets[shard] = outlet;
    this.#isAllHere = this.#outlets.every((one) => one === 'here');
    for (const [name, link] of this.#links) {
      if (this.#outlets.includes(link)) continue;
      link.close();
      this.#links.delete(name);
    }
    // It hears of all that lies in the database before it looks.
    await this.#parts.bus.told();
    return null;
  }

  #isBegun(shards: readonly number[]): Promise<null> {
    for (const shard of shards) if (shard in this.#outlets) this.#begun.add(shard);
    if (this.#begun.size === this.#outlets.length) this.#complete.resolve();
    return Promise.resolve(null);
  }

  #isHolder(process: string, shard: number): boolean {
    const { roles } = this.#parts;
    const { role } = this.#work;
    return process === this.#own ? roles.holds(role, shard) : roles.holderOf(role, shard) === process;
  }

  #linkTo(process: string): WorkLink<Item> {
    let link = this.#links.get(process);
    if (!link) {
      const { bus, clock, ids, logger, rpc } = this.#parts;
      link = new WorkLink({
        ...{ clock, logger, name: ids.letters(16), sizeOf: (item) => this.#work.sizeOf?.(item) ?? 1 },
        give: async (batch) => {
          await bus.told();
          return rpc.call(this.#takeCall, batch, process);
        },
      });
      this.#links.set(process, link);
    }
    return link;
  }

  /** By which this process is called. */
  get #own(): string {
    const { rpc, streams } = this.#parts;
    return rpc.processNumber === undefined ? streams.writers.instance : instanceOf(rpc.processNumber);
  }

  #shardOf(key: string): number {
    return shardOf(this.#work.role, key);
  }

  #begin(shards: readonly number[]): void {
    for (const shard of shards) {
      this.#shards.add(shard);
      this.#unattached.add(shard);
      this.#caughtUp.delete(shard);
    }
    if (this.#unattached.size > 0 && !this.#stopping.signal.aborted) this.#attaching ??= this.#attachAll();
  }

  /** Whoever asks for what the bus would have told says so, too: this begins anew by asking that itself. */
  #mayHaveMissed(): void {
    const { bus, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    if (!bus.isUp && nowMs < this.#lookAgainAtMs) return;
    this.#lookAgainAtMs = nowMs + lookAgainMs;
    this.beginAnew();
  }

  async #end(shard: number): Promise<void> {
    this.#shards.delete(shard);
    this.#unattached.delete(shard);
    this.#caughtUp.delete(shard);
    await this.#work.letGo();
  }

  /** Never rejects. */
  async #attachAll(): Promise<void> {
    await this.#attach();
    this.#attaching = undefined;
    this.#begin([]);
  }

  async #attach(): Promise<void> {
    const { clock, logger } = this.#parts;
    const { signal } = this.#stopping;
    let retryMs = firstRetryMs;
    // Those that begin in one turn of the event loop, together.
    await ownTurn();
    while (this.#unattached.size > 0 && !signal.aborted) {
      const shards = [...this.#unattached];
      this.#unattached.clear();
      try {
        await this.#catchUp(shards);
        retryMs = firstRetryMs;
      } catch (err) {
        for (const shard of shards) if (this.#shards.has(shard)) this.#unattached.add(shard);
        const isLong = retryMs >= longestRetryMs;
        const fields = { role: this.#work.role.name, err };
        logger[isLong ? 'warn' : 'debug']('What there was to do before could not be looked up; trying again', fields);
        await clock.sleep(retryMs, signal);
        retryMs = Math.min(retryMs * 2, longestRetryMs);
      }
    }
  }

  /** Makes the process that writes tell what there is to do for shards, then takes up what was there before. */
  async #catchUp(shards: readonly number[]): Promise<void> {
    const { bus, logger, rpc, streams } = this.#parts;
    const writer = streams.writers.writerOf('events');
    await rpc.call(this.#attachCall, { process: this.#own, shards }, writer);
    await bus.heard();
    if (this.#stopping.signal.aborted) return;
    const begun = new Set(shards);
    await this.#work.catchUp((key) => begun.has(this.#shardOf(key)) && this.has(key));
    // Meanwhile some may have gone, or have to be begun anew.
    for (const shard of shards) if (this.#shards.has(shard) && !this.#unattached.has(shard)) this.#caughtUp.add(shard);
    // Nobody waits for it longer than a while.
    await rpc
      .call(this.#caughtUpCall, { shards }, writer)
      .catch((err: unknown) => logger.debug('It could not be told that what there was to do before is known', { err }));
  }

  async #take({ link, number, items, isIncomplete }: WorkBatch<Item>): Promise<null> {
    const work = this.#work;
    if (items.some((item) => work.isAnnounced?.(item) ?? true)) await this.#parts.bus.heard();
    await work.prepare?.(items);
    // It was taken, and the answer was lost.
    if (this.#last.link === link && number <= this.#last.number) return null;
    this.#last = { link, number };
    if (isIncomplete) this.#begin([...this.#shards]);
    work.take(items);
    return null;
  }
}
