import { failureLevel } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Logger, Semaphore } from '@rookery/platform';
import { instanceOf, type Rpc, type RpcMethod } from '../rpc/rpc.js';
import { type LeaseView, type Leases, writerLease } from './leases.js';
import { type Role, Roles, type RoleWork } from './roles.js';

/**
 * How much a process wants a role: it takes its share (`wanted`), it takes one only while no process wants any (`spare`), or never
 * (`never`).
 */
export type Eagerness = 'wanted' | 'spare' | 'never';

export interface LeasedRolesOptions {
  readonly rpc: Rpc;
  readonly leases: Leases;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Name of this process. */
  readonly instance: string;
  /** Whether this process writes: it has whatever is no role of its own. */
  readonly isWriter: boolean;
  readonly eagernessOf: (roleName: string) => Eagerness;
}

interface Taken {
  readonly role: Role;
  readonly works: RoleWork[];
  readonly eagerness: Exclude<Eagerness, 'never'>;
  readonly held: Set<number>;
}

/** How long a call waits for somebody to take a role, milliseconds. */
const vacantMs = 10_000;
const lookAgainMs = 200;

const leaseOf = (role: Role, shard: number): string => `${role.name}:${shard}`;
const offerOf = ({ role, eagerness }: Taken): string => (eagerness === 'wanted' ? role.name : `${role.name}/spare`);

/**
 * Roles among several processes, each shard a lease. Whoever has more than its share gives the rest up, whoever has less takes what is
 * free: so the shards spread over those who want them, no more of them move than must, and those of a process that is lost are taken by
 * the others. Nobody has to agree on anything but the leases.
 */
export class LeasedRoles extends Roles {
  readonly #options: LeasedRolesOptions;
  readonly #taken = new Map<string, Taken>();
  /** One change at a time. */
  readonly #turns = new Semaphore(1);
  #stopView: (() => void) | undefined;
  #isWaiting = false;
  #isStopping = false;

  constructor(options: LeasedRolesOptions) {
    super();
    this.#options = options;
  }

  get instance(): string {
    return this.#options.instance;
  }

  take(role: Role, work: RoleWork = {}): void {
    if (this.#stopView) throw new Error(`The role ${role.name} was taken too late`);
    const taken = this.#taken.get(role.name);
    if (taken !== undefined) return void taken.works.push(work);
    const eagerness = this.#options.eagernessOf(role.name);
    if (eagerness !== 'never') this.#taken.set(role.name, { role, works: [work], eagerness, held: new Set() });
  }

  holds(role: Role, shard = 0): boolean {
    return this.#options.leases.isTrusted && this.#taken.get(role.name)?.held.has(shard) === true;
  }

  holdsAny(roleName: string): boolean {
    const taken = this.#taken.get(roleName);
    return taken === undefined ? this.#options.isWriter : this.#options.leases.isTrusted && taken.held.size > 0;
  }

  holderOf(role: Role, shard = 0): string | undefined {
    if (this.holds(role, shard)) return this.instance;
    const { leases } = this.#options;
    const holder = leases.view.leases.get(leaseOf(role, shard));
    return holder === undefined || holder === leases.number ? undefined : instanceOf(holder);
  }

  refresh(): Promise<void> {
    return this.#options.leases.beat();
  }

  async ask<Request, Response>(
    role: Role,
    shard: number,
    method: RpcMethod<Request, Response>,
    request: Request,
  ): Promise<Response> {
    const { clock, leases, rpc } = this.#options;
    const untilMs = clock.monotonicMs() + vacantMs;
    for (;;) {
      const holder = this.holderOf(role, shard);
      if (holder !== undefined) {
        try {
          return await rpc.call(method, request, holder);
        } catch (error) {
          await leases.beat();
          // It may have moved. Where it has not, the error is an answer.
          if (this.holderOf(role, shard) === holder || clock.monotonicMs() > untilMs) throw error;
        }
      } else if (clock.monotonicMs() > untilMs)
        throw MatrixError.unavailable(`No process of the server has the role ${role.name} now`);
      else {
        await clock.sleep(lookAgainMs);
        await leases.beat();
      }
    }
  }

  async start(): Promise<void> {
    const { leases } = this.#options;
    this.#stopView = leases.onView(() => this.#lookSoon());
    await leases.offer([...this.#taken.values()].map(offerOf));
    await this.#turns.run(() => this.#look());
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#stopView?.();
    const { leases, logger } = this.#options;
    await this.#turns.run(async () => {
      for (const taken of [...this.#taken.values()].reverse()) await this.#giveUp(taken, [...taken.held]);
      try {
        if (this.#stopView) await leases.offer([]);
      } catch (err) {
        logger.debug('The other processes could not be told that this one takes no roles', { err });
      }
    });
  }

  #lookSoon(): void {
    if (this.#isWaiting || this.#isStopping) return;
    this.#isWaiting = true;
    void this.#turns.run(() => {
      this.#isWaiting = false;
      return this.#look();
    });
  }

  /** Gives up what is too much, and takes what is missing. Never rejects. */
  async #look(): Promise<void> {
    for (const taken of this.#taken.values()) {
      if (this.#isStopping) return;
      try {
        await this.#balance(taken);
      } catch (err) {
        this.#options.logger.warn('The duties of the processes could not be shared out; trying again', {
          ...{ role: taken.role.name, err },
        });
      }
    }
  }

  async #balance(taken: Taken): Promise<void> {
    const { leases } = this.#options;
    const { role, held } = taken;
    const { view } = leases;
    const holders = holdersOf(view, role);
    const lost = [...held].filter((shard) => holders[shard] !== leases.number);
    // The database says so: somebody else may have them already.
    if (lost.length > 0) await this.#giveUp(taken, lost);
    const unknown = holders.flatMap((holder, shard) => (holder === leases.number && !held.has(shard) ? [shard] : []));
    if (unknown.length > 0) await leases.release(unknown.map((shard) => leaseOf(role, shard)));
    const candidates = candidatesOf(view, role);
    const rank = candidates.indexOf(leases.number);
    const share = rank < 0 ? 0 : Math.ceil(role.shards / candidates.length);
    if (held.size > share) return this.#giveUp(taken, [...held].slice(share));
    // Each begins elsewhere, so that those who look at the same time do not want the same.
    const free = rotated(
      holders.flatMap((holder, shard) => (holder === undefined ? [shard] : [])),
      Math.max(0, rank) / candidates.length,
    );
    if (held.size < share && free.length > 0) await this.#acquire(taken, free.slice(0, share - held.size));
  }

  async #acquire(taken: Taken, shards: readonly number[]): Promise<void> {
    const { leases, logger } = this.#options;
    const { role, works, held } = taken;
    const names = new Map(shards.map((shard) => [leaseOf(role, shard), shard]));
    const failed: number[] = [];
    const got = (await leases.acquire([...names.keys()])).flatMap((name) => names.get(name) ?? []);
    for (const shard of got) held.add(shard);
    for (const shard of got) {
      try {
        for (const work of works) await work.start?.(shard);
      } catch (err) {
        logger[failureLevel(err)]('A duty could not be begun', { role: role.name, shard, err });
        failed.push(shard);
      }
    }
    if (failed.length > 0) await this.#giveUp(taken, failed);
    // The view is older than that.
    await leases.beat();
  }

  async #giveUp(taken: Taken, shards: readonly number[]): Promise<void> {
    const { leases, logger } = this.#options;
    const { role, held } = taken;
    if (shards.length === 0) return;
    for (const shard of shards) held.delete(shard);
    // At the same time: what is under way for one of them may take a while to end.
    await Promise.all(shards.map((shard) => this.#end(taken, shard)));
    try {
      await leases.release(shards.map((shard) => leaseOf(role, shard)));
    } catch (err) {
      // With a later view it is seen to be held by this process, which does not know of it, and is given up again.
      logger.debug('A duty that was given up could not be told', { role: role.name, err });
    }
  }

  /** Never rejects. */
  async #end({ role, works }: Taken, shard: number): Promise<void> {
    for (const work of works.toReversed()) {
      try {
        await work.stop?.(shard);
      } catch (err) {
        this.#options.logger[failureLevel(err)]('A duty could not be ended', { role: role.name, shard, err });
      }
    }
  }
}

/** Who has each shard of a role. */
function holdersOf({ leases }: LeaseView, role: Role): readonly (number | undefined)[] {
  return Array.from({ length: role.shards }, (_, shard) => leases.get(leaseOf(role, shard)));
}

/** Who may take a role now, in order: those who want it, or else those who take it in need, of whom the one that writes comes last. */
function candidatesOf({ processes, leases }: LeaseView, { name }: Role): readonly number[] {
  const offering = (offer: string): number[] =>
    processes.flatMap(({ number, roles }) => (roles.includes(offer) ? [number] : [])).sort((a, b) => a - b);
  const wanting = offering(name);
  if (wanting.length > 0) return wanting;
  const spare = offering(`${name}/spare`);
  const beside = spare.filter((number) => number !== leases.get(writerLease));
  return beside.length > 0 ? beside : spare;
}

function rotated<T>(list: readonly T[], part: number): readonly T[] {
  const start = Math.floor(list.length * part);
  return [...list.slice(start), ...list.slice(0, start)];
}
