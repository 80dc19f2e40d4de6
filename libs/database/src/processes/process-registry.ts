import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import { type Logger, Semaphore, SilentLogger } from '@rookery/platform';
import { DatabaseError, errorText } from '../errors.js';
import type { PostgresOptions } from '../options.js';
import { connectAlone, destroy } from '../postgres/open-postgres.js';
import { anotherHistory, ServerHistory } from '../postgres/server-history.js';
import * as sql from './processes.query.js';

/** A process of the server as the database knows it. */
export interface ProcessInfo {
  /** Never given out twice; a process that starts anew has another one. */
  readonly number: number;
  readonly name: string;
  /** How others call it; absent where nobody can. */
  readonly address: string | undefined;
  readonly version: string;
  /** Names of the roles that it can take. */
  readonly roles: readonly string[];
}

/** Who is there and who has which lease, as the database told it last. */
export interface ProcessView {
  /** Those with a heartbeat, this one included. */
  readonly processes: readonly ProcessInfo[];
  /** Numbers of those who were lost, as long as the database remembers them: what they were about to say they said to nobody. */
  readonly lost: readonly number[];
  /** Numbers of the holders by the names of the leases; those of processes that are gone are left out. */
  readonly leases: ReadonlyMap<string, number>;
}

/** How a process appears. */
export interface ProcessOptions {
  /** Unique among those that run. */
  readonly name: string;
  readonly address?: string | undefined;
  readonly version: string;
  readonly logger?: Logger | undefined;
  /** How long a process has its leases without a heartbeat, milliseconds; 6,000 unless told. All processes need the same. */
  readonly ttlMs?: number | undefined;
  /** The same until {@link ProcessRegistry.started}, milliseconds; 30,000 unless told, and never less than `ttlMs`. */
  readonly startTtlMs?: number | undefined;
}

const defaultTtlMs = 6_000;
const defaultStartTtlMs = 30_000;
const reconnectMs = 250;
/** How long it may take the database to end the connections of a lost process before an operator is told. */
const endingLimitMs = 5_000;
const forgetEvery = 400;
/** How long the connections of a process that leaves may take to end, milliseconds. */
const closingMs = 1_000;
/** For which part of the time to live a connection may be gone: time enough for the next heartbeat to open another one. */
const absentPart = 3;

interface Row extends ProcessInfo {
  /** Until when its last sign of life is good. */
  readonly until: number;
  /** For how long it is good yet, milliseconds. */
  readonly left: number;
  readonly expired: boolean;
  readonly fenced: boolean;
}

interface LeaseRow {
  readonly name: string;
  readonly holder: number | null;
}

interface BeatRow {
  readonly alive: boolean;
  /** The database's clock. */
  readonly now: string;
  /** JSON as text, whatever the driver would make of JSON. */
  readonly processes: string | null;
  /** The numbers of those whose connection for signs of life is there. */
  readonly present: string | null;
  readonly leases: string | null;
}

const startLifeMs = ({ ttlMs = defaultTtlMs, startTtlMs = defaultStartTtlMs }: Partial<ProcessOptions>): number =>
  Math.max(ttlMs, startTtlMs);

/**
 * This process among the others of the server: its heartbeat, and the leases, all of which end with that. Times are by the
 * database's clock. Whoever finds a process without a heartbeat fences it: marks it, and ends its connections, by which nothing it
 * still does can be written. Only then are its leases taken.
 *
 * The system closes the connections of a process that ends, however it ends. So one whose connection for heartbeats has gone, and which
 * gives no sign of life by another one in the time in which it would, is not waited for as long as one that only says nothing.
 *
 * A transaction costs nothing more for it: connections are known to the database by the number of their process from their
 * beginning, and a marked process gets no new ones.
 */
export class ProcessRegistry {
  /**
   * Resolves with the reason once this process has lost its leases and cannot write any more, or the database has gone back in time: it must
   * end. Never rejects; open for ever where that does not happen.
   */
  readonly lost: Promise<DatabaseError>;
  readonly #options: PostgresOptions;
  readonly #logger: Logger;
  readonly #ttlMs: number;
  /** What a heartbeat is good for: longer while the process starts. */
  #lifeMs: number;
  readonly #listeners = new Set<(view: ProcessView) => void>();
  // Those who have no connections any more, once they were fenced.
  readonly #gone = new Set<number>();
  // Since when those are being ended who were fenced, by number; `Infinity` once an operator was told.
  readonly #endingSinceMs = new Map<number, number>();
  // Until when those are not judged who may have been as unable to reach the database as this process was, and until when their last sign
  // of life was good then, by number.
  readonly #spared = new Map<number, { readonly untilMs: number; readonly until: number }>();
  // Whose connections for heartbeats were seen: an older version does not make its own known.
  #present: ReadonlySet<number> = new Set();
  // Those whose connections have gone since: from when on this process looked, and until when their last sign of life is good.
  #absent: ReadonlyMap<number, { readonly sinceMs: number; readonly until: number }> = new Map();
  readonly #history = new ServerHistory();
  #client: pg.Client | undefined;
  #lookAgain: NodeJS.Timeout | undefined;
  #lookAgainAtMs = Infinity;
  // Since when this process has had its connection.
  #connectedAtMs = Infinity;
  #view: ProcessView = { processes: [], lost: [], leases: new Map() };
  #roles: readonly string[] = [];
  #address: string | undefined;
  #trustedUntilMs = 0;
  // When the last heartbeat was sent that arrived, and what the database's clock showed then.
  #beatAtMs: number | undefined;
  #databaseMs = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #beatTurns = new Semaphore(1);
  #nextBeat: Promise<void> | undefined;
  readonly #turns = new Semaphore(1);
  #beats = 0;
  #isLost = false;
  #left = false;
  #tellLost: (reason: DatabaseError) => void = () => {};

  private constructor(
    options: PostgresOptions,
    { logger, ttlMs, startTtlMs, address }: ProcessOptions,
    /** Never given out twice. */
    readonly number: number,
    readonly name: string,
  ) {
    this.#options = options;
    this.#logger = logger ?? new SilentLogger();
    this.#ttlMs = ttlMs ?? defaultTtlMs;
    this.#lifeMs = startLifeMs({ ttlMs, startTtlMs });
    this.#address = address;
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
  }

  /**
   * Registers this process. Needs the migrated schema.
   * @throws DatabaseError when the database cannot be reached, or another process of this name runs
   */
  static async join(options: PostgresOptions, own: ProcessOptions): Promise<ProcessRegistry> {
    const ttlMs = own.ttlMs ?? defaultTtlMs;
    const lifeMs = startLifeMs(own);
    const client = await connectAlone(options);
    try {
      // One that was killed is there until its time is over.
      const untilMs = performance.now() + lifeMs + 2_000;
      for (;;) {
        await client.query('BEGIN');
        await client.query(sql.registerTurn);
        const { rows } = await client.query<{ number: string }>(sql.register, [
          ...[own.name, own.address ?? null, own.version],
          lifeMs,
        ]);
        await client.query('COMMIT');
        if (rows[0]) {
          const registry = new ProcessRegistry(options, own, Number(rows[0].number), own.name);
          await registry.#keep(client);
          await registry.beat();
          registry.#timer = setInterval(() => void registry.beat(), ttlMs / 4);
          return registry;
        }
        if (performance.now() > untilMs)
          throw new DatabaseError(
            `Another process of the name ${own.name} runs on this database`,
            'Give each process a worker_name of its own.',
          );
        await pause(ttlMs / 8);
      }
    } catch (error) {
      destroy(client);
      throw error;
    }
  }

  /**
   * The process answers, or is about to write: from now on it is missed soon. Before, loading its code may hold up its heartbeat on a
   * busy machine, and nobody waits for it.
   */
  async started(): Promise<void> {
    this.#lifeMs = this.#ttlMs;
    await this.beat();
  }

  /** What the database told last. */
  get view(): ProcessView {
    return this.#view;
  }

  /**
   * Whether nobody else has this process's leases, as far as it can know. False for whoever was paused or cut off for some seconds, or
   * whose connection broke, before it has heard what became of them.
   */
  get isTrusted(): boolean {
    return !this.#isLost && performance.now() < this.#trustedUntilMs;
  }

  /** Calls `listener` with each view that the database tells, unchanged ones included; returns how to stop that. */
  onView(listener: (view: ProcessView) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Says which roles this process can take. */
  async offer(roles: readonly string[]): Promise<void> {
    this.#roles = [...roles];
    await this.beat();
  }

  /** Says how others call this process from now on. */
  async moveTo(address: string): Promise<void> {
    this.#address = address;
    await this.beat();
  }

  /**
   * A heartbeat, besides those that come by themselves: the view is as new as this call afterwards, or newer, and others see what this process
   * says of itself now. Never rejects.
   */
  beat(): Promise<void> {
    // One that is under way says, and was told, what was so before. The next one is for all who ask until it begins.
    this.#nextBeat ??= this.#beatTurns.run(() => {
      this.#nextBeat = undefined;
      return this.#beat();
    });
    return this.#nextBeat;
  }

  /** Takes those of the leases that are free. @returns which */
  async acquire(names: readonly string[]): Promise<readonly string[]> {
    if (names.length === 0) return [];
    const { rows } = await this.#query<{ name: string }>(sql.acquire, [this.number, names, [...this.#gone]]);
    return rows.map(({ name }) => name);
  }

  /** Gives leases up, for somebody else to take. */
  async release(names: readonly string[]): Promise<void> {
    if (names.length > 0) await this.#query(sql.release, [this.number, names]);
  }

  /**
   * Ends, in order: others take the leases at once. Close the database before: what is still connected is ended by whoever takes them. Never
   * rejects; safe to call twice.
   */
  async leave(): Promise<void> {
    if (this.#left) return;
    this.#left = true;
    clearInterval(this.#timer);
    clearTimeout(this.#lookAgain);
    try {
      if (!this.#isLost)
        for (const statement of (await this.#isDisconnected()) ? sql.leave : [sql.leaveInUse])
          await this.#query(statement, [this.number]);
    } catch (err) {
      this.#logger.debug('The process could not take its leave of the others', { err });
    }
    const client = this.#client;
    if (client === undefined) return;
    await Promise.race([client.end().catch(() => {}), pause(1_000, undefined, { ref: false })]);
    destroy(client);
  }

  /** Whether nothing of this process can be written any more, as soon as its connections have had the time to end. */
  async #isDisconnected(): Promise<boolean> {
    for (const untilMs = performance.now() + closingMs; ;) {
      const { rows } = await this.#query(sql.connections, [this.number]);
      if (rows.length === 0) return true;
      if (performance.now() > untilMs) break;
      await pause(20);
    }
    this.#logger.warn('The process ends though it still uses the database: others end that');
    return false;
  }

  async #beat(): Promise<void> {
    if (this.#left || this.#isLost) return;
    // From when it was sent: the database counts from then or later.
    const sentAtMs = performance.now();
    try {
      const { rows } = await this.#query<BeatRow>(sql.beat, [
        this.number,
        this.#lifeMs,
        JSON.stringify(this.#roles),
        this.#address ?? null,
      ]);
      const [row] = rows;
      if (row === undefined) return;
      if (!row.alive)
        return this.#lose(
          new DatabaseError(
            'This process gave no sign of life for too long: others have taken its work over',
            'It ends, and can start anew at once. Look for what held it up: a pause of the machine, or the way to the database.',
          ),
        );
      // A quarter is left for what was begun while it was trusted.
      this.#trustedUntilMs = sentAtMs + this.#lifeMs * 0.75;
      const beforeMs = this.#beatAtMs ?? sentAtMs;
      const wentOnMs = Number(row.now) - this.#databaseMs;
      // Where its clock was set forward, nobody could give a sign of life in the time that it left out.
      const isSet = this.#beatAtMs !== undefined && wentOnMs - (performance.now() - beforeMs) > this.#ttlMs / 4;
      const wasAway = isSet || sentAtMs - beforeMs > this.#ttlMs / 2;
      this.#beatAtMs = sentAtMs;
      this.#databaseMs = Number(row.now);
      await this.#lookAt(row, wasAway);
    } catch (err) {
      if (!this.#left && !this.#isLost) this.#logger.warn('The heartbeat of this process failed', { err });
    }
  }

  async #lookAt(row: BeatRow, wasAway: boolean): Promise<void> {
    const all = JSON.parse(row.processes ?? '[]') as Row[];
    this.#spare(all, wasAway);
    const ended = this.#whoEnded(all, new Set(JSON.parse(row.present ?? '[]') as number[]));
    const isLost = ({ number, expired, fenced }: Row): boolean => expired || fenced || ended.has(number);
    const living = all.filter((one) => one.number === this.number || !isLost(one));
    // What does not end soon is looked at again with the next heartbeat, which must not wait for it.
    const untilMs = performance.now() + this.#ttlMs / 8;
    for (const one of all) {
      if (one.number === this.number || this.#gone.has(one.number) || !isLost(one)) continue;
      if (await this.#fence(one, untilMs)) this.#gone.add(one.number);
    }
    // Whoever has missed some heartbeats is looked at when its time ends, not with this process's next one.
    for (const { number, left } of living)
      if (number !== this.number && left < this.#ttlMs / 2) this.#beatIn(Math.max(left, 0) + 20);
    if (++this.#beats % forgetEvery === 0) await this.#query(sql.forgetFenced, []);
    const known = new Set(all.map(({ number }) => number));
    const leases = new Map<string, number>();
    for (const { name, holder } of JSON.parse(row.leases ?? '[]') as LeaseRow[]) {
      if (holder === null) continue;
      if (!known.has(holder)) this.#gone.add(holder);
      if (!this.#gone.has(holder)) leases.set(name, holder);
    }
    this.#view = {
      processes: living.map(({ number, name, address, version, roles }) => ({
        ...{ number, name, version, roles },
        address: address ?? undefined,
      })),
      lost: all.flatMap(({ number }) => (this.#gone.has(number) ? number : [])),
      leases,
    };
    for (const listener of this.#listeners) {
      try {
        listener(this.#view);
      } catch (err) {
        this.#logger.error('A listener of the processes threw', { err });
      }
    }
  }

  /**
   * Who was away itself, or sees the database's clock set forward, does not know whether others could have given a sign of life meanwhile: a
   * database that recovers took it from nobody. They have once as long for it as a heartbeat lasts.
   */
  #spare(all: readonly Row[], wasAway: boolean): void {
    const spared = this.#spared;
    for (const { number, until } of all) {
      // It has given one since: the next time is another matter, however soon that is.
      if (spared.get(number)?.until !== until) spared.delete(number);
      if (wasAway && !spared.has(number)) spared.set(number, { untilMs: performance.now() + this.#ttlMs, until });
    }
  }

  /**
   * The numbers of those whose connection for heartbeats has gone for so long that they would have another one. What this process
   * lost as well may have been taken from all: it does not judge by that before it has its own connection for as long as a heartbeat lasts.
   */
  #whoEnded(all: readonly Row[], present: ReadonlySet<number>): ReadonlySet<number> {
    const nowMs = performance.now();
    const ended = new Set<number>();
    const seen = all.filter(({ number }) => present.has(number) || this.#present.has(number));
    this.#present = new Set(seen.map(({ number }) => number));
    const canJudge = nowMs - this.#connectedAtMs >= this.#ttlMs;
    const absent = new Map<number, { sinceMs: number; until: number }>();
    for (const { number, until } of canJudge ? seen : []) {
      if (present.has(number)) continue;
      const before = this.#absent.get(number);
      const sinceMs = before?.until === until ? before.sinceMs : nowMs;
      absent.set(number, { sinceMs, until });
      if (nowMs - sinceMs >= this.#ttlMs / absentPart) ended.add(number);
      else this.#beatIn(this.#ttlMs / absentPart + 20);
    }
    this.#absent = absent;
    return ended;
  }

  /** A heartbeat in a while, unless there is one before. */
  #beatIn(delayMs: number): void {
    const atMs = performance.now() + delayMs;
    if (atMs >= this.#lookAgainAtMs) return;
    clearTimeout(this.#lookAgain);
    this.#lookAgainAtMs = atMs;
    this.#lookAgain = setTimeout(() => {
      this.#lookAgainAtMs = Infinity;
      void this.beat();
    }, delayMs).unref();
  }

  /** @returns whether nothing of that process can be written any more */
  async #fence({ number, name, fenced, until, expired }: Row, untilMs: number): Promise<boolean> {
    if (!fenced) {
      if (performance.now() < (this.#spared.get(number)?.untilMs ?? 0)) return false;
      const { rowCount } = await this.#query(sql.fence, [number, this.#ttlMs, expired ? null : until]);
      if (rowCount === 0) return false;
      this.#logger.warn('A process gives no sign of life: its work is taken over', { process: name, number });
    }
    for (;;) {
      const { rowCount } = await this.#query(sql.endConnections, [number]);
      if (rowCount === 0) {
        this.#spared.delete(number);
        this.#endingSinceMs.delete(number);
        return true;
      }
      if (performance.now() > untilMs) break;
      await pause(20);
    }
    const sinceMs = this.#endingSinceMs.get(number) ?? performance.now();
    const isLate = performance.now() - sinceMs > endingLimitMs;
    this.#endingSinceMs.set(number, isLate ? Infinity : sinceMs);
    if (isLate)
      this.#logger.error('The connections of a lost process do not end: its work cannot be taken over', {
        process: name,
      });
    return false;
  }

  #lose(reason: DatabaseError): void {
    this.#isLost = true;
    clearInterval(this.#timer);
    clearTimeout(this.#lookAgain);
    this.#tellLost(reason);
  }

  /** One at a time, in order: the driver would queue them without a limit of time. */
  #query<R extends pg.QueryResultRow>(text: string, values: unknown[]): Promise<pg.QueryResult<R>> {
    return this.#turns.run(async () => {
      try {
        const client = this.#client ?? (await this.#connect());
        return await client.query<R>({ text, values, query_timeout: this.#ttlMs / 2 } as pg.QueryConfig);
      } catch (error) {
        // One that answers late would answer the next question.
        if (/timeout|terminat|ECONN/i.test(errorText(error))) this.#drop();
        throw error;
      }
    });
  }

  async #connect(): Promise<pg.Client> {
    await pause(reconnectMs);
    const client = await connectAlone(this.#options);
    try {
      await this.#keep(client);
    } catch (error) {
      destroy(client);
      throw error;
    }
    return client;
  }

  async #keep(client: pg.Client): Promise<void> {
    await client.query({
      text: sql.bePresent,
      values: [this.number],
      query_timeout: this.#ttlMs / 2,
    } as pg.QueryConfig);
    if (await this.#history.isAnother(client, this.#ttlMs / 2)) {
      const reason = anotherHistory();
      this.#lose(reason);
      throw reason;
    }
    if (this.#left) return destroy(client);
    this.#client = client;
    this.#connectedAtMs = performance.now();
    const onGone = (): void => {
      if (this.#client !== client) return;
      this.#drop();
      // Others wait for a sign of life by another connection, but not for long.
      this.#trustedUntilMs = 0;
      void this.beat();
    };
    client.on('error', onGone);
    client.on('end', onGone);
  }

  #drop(): void {
    const client = this.#client;
    this.#client = undefined;
    if (client) destroy(client);
  }
}
