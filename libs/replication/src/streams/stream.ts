import { type Database, raiseShared, readShared, StreamIds, takeShared, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { type Config, OnlyAtWriterError } from '@rookery/platform';
import type { BusMessage } from '../bus.js';
import type { Audience, Keys, Notifier } from '../notifier.js';
import { defineRpc, type Rpc, type RpcMethod } from '../rpc/rpc.js';
import { StreamChangeCache } from './stream-change-cache.js';
import type { StreamDefinition } from './stream-definition.js';
import type { StreamWriters } from './stream-writers.js';
import { WriterPositions } from './writer-positions.js';

/** What is to be told about new rows: whom it wakes, and which keys changed. */
export interface News<Key extends string> extends Audience {
  /** Keys with something new, by kind; {@link Stream.changes} tells of them. */
  readonly changed?: Readonly<Partial<Record<Key, Keys>>> | undefined;
}

/** Positions that were taken outside of a transaction. */
export interface Reserved<Key extends string> {
  /** In the order in which they were given out: ascending, or descending for a stream that counts down. */
  readonly ids: readonly number[];
  /** The rows are durable: readers may read them, and those who are concerned hear of the last one. */
  commit(news: News<Key>): void;
  /** The rows will never be, or nobody is to hear of them. May be called more than once, and after {@link commit}. */
  done(): void;
}

/** When keys of one kind last changed. */
export type ChangedKeys = Pick<
  StreamChangeCache,
  'hasChanged' | 'changedSince' | 'anyChanged' | 'earliestKnown' | 'size'
>;

/** What the streams of a process share. */
export interface StreamParts {
  readonly database: Database;
  readonly notifier: Notifier;
  readonly writers: StreamWriters;
  readonly rpc: Rpc;
  /** Whose `caches.*` size the change caches. */
  readonly config?: Config | undefined;
  /** How far the streams are to which several processes write, once that can be told. */
  readonly lookAgain: () => void;
  /** Something was written of which nobody tells this process what it changed. */
  readonly missed: () => void;
}

/** Answered once a process has heard of a position, by whether it has: after a second at most. A process that is paused answers nothing. */
export const heardOfStream = defineRpc<{ readonly stream: string; readonly position: number }, boolean>(
  'heard_of_stream',
  { timeoutMs: 1_500 },
);

/** What a transaction has taken of a stream to which several processes write, and tells of it. */
interface Taken {
  from: number;
  upTo: number;
  readonly news: { readonly position: number; readonly news: News<string> }[];
}

/**
 * A numbered log of changes: positions, who has changed since, and telling those who wait. Rows and their number become
 * durable in one transaction; positions are seen in order and without gaps that could still be filled.
 *
 * ```ts
 * const position = await stream.write(tx, { changed: { user: [userId] }, users: [userId] });
 * await tx.run('INSERT …', [position]);
 * ```
 */
export class Stream<Key extends string = never> {
  readonly name: string;
  readonly #definition: StreamDefinition;
  readonly #parts: StreamParts;
  readonly #caches = new Map<string, StreamChangeCache>();
  // Number of the last message of each other writer.
  readonly #heard = new Map<string, number>();
  readonly #hearers: ((changed: Readonly<Partial<Record<Key, Keys>>> | undefined) => void)[] = [];
  readonly #taken = new WeakMap<Tx, Taken>();
  #ids: StreamIds | undefined;
  /** The furthest position that this process has written where others do as well. */
  #written = 0;
  #opening: Promise<void> | undefined;

  constructor(definition: StreamDefinition, parts: StreamParts) {
    this.name = definition.name;
    this.#definition = definition;
    this.#parts = parts;
    for (const [key, { maxKeys }] of Object.entries(definition.keys ?? {}))
      this.#caches.set(
        key,
        new StreamChangeCache(Number.MAX_SAFE_INTEGER, {
          ...{ name: `${this.name}_${key}_changes`, stream: this.name, maxKeys },
          config: parts.config,
        }),
      );
    if (!this.isShared) return;
    parts.notifier.share(this.name, {
      changed: ({ position, changed }) => this.#take(position, changed),
      missed: (upTo) => {
        parts.missed();
        this.#forget(upTo);
      },
    });
  }

  /** Whether several processes write the stream. */
  get isShared(): boolean {
    return this.#definition.anyProcess === true && this.#parts.writers.areSeveral;
  }

  /** Whether this process writes the stream. Where several do it may cease to, and begin again, with the versions of the others. */
  get isWrittenHere(): boolean {
    return this.isShared ? this.#parts.writers.mayShare : this.#parts.writers.isHere(this.name);
  }

  /** Loads the counter, behind everything the tables hold. Needs the migrated schema. Done once, however often called. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The furthest position up to which everything is committed or given up: what a reader may read. 0 in a new stream. */
  current(): number {
    return this.#ids?.current() ?? this.#parts.notifier.position(this.name);
  }

  /** How far each writer may be read. */
  positions(): WriterPositions {
    return WriterPositions.at(Math.abs(this.current()));
  }

  /** Which keys of a kind changed when. Costs no query; keep it. */
  changes(key: Key): ChangedKeys {
    const cache = this.#caches.get(key);
    if (!cache) throw new Error(`The stream ${this.name} has no keys of the kind ${key}`);
    return cache;
  }

  /**
   * Takes one position for rows of this transaction, and tells the news once they are durable.
   * @returns the position
   */
  async write(tx: Tx, news: News<Key>): Promise<number> {
    const [position = 0] = await this.allocateIn(tx);
    this.announceIn(tx, position, news);
    return position;
  }

  /**
   * Takes positions for rows of this transaction and frees them with its outcome. What they stand for is told with
   * {@link announceIn}.
   */
  allocateIn(tx: Tx, count = 1): Promise<readonly number[]> {
    return this.isShared ? this.#takeShared(tx, count) : this.#writable.allocateIn(tx, count);
  }

  /** Tells news of a position that this transaction has taken, unless the transaction is rolled back. */
  announceIn(tx: Tx, position: number, news: News<Key>): void {
    if (this.isShared) return void this.#taken.get(tx)?.news.push({ position, news });
    tx.unlessRolledBack(() => {
      this.#note(position, news.changed);
      this.#announce(position, news);
    });
  }

  /**
   * Takes positions outside of a transaction: for rows in memory, or when they must be known before it begins. One of
   * {@link Reserved.commit} and {@link Reserved.done} must be called in every case, or readers stop before them for good.
   * Never call it inside a transaction.
   */
  async allocate(count = 1): Promise<Reserved<Key>> {
    const { ids, done } = await this.#writable.allocate(count);
    return {
      ids,
      done,
      commit: (news) => {
        const position = ids.at(-1) ?? 0;
        // Before anybody can see the position: who looks for changes up to it must find them.
        this.#note(position, news.changed);
        done();
        this.#announce(position, news);
      },
    };
  }

  /**
   * Resolves once all that this process has written can be read here, where other processes write as well: what one of them wrote before
   * may not have been told yet. `undefined`: it can.
   */
  settled(): Promise<void> | undefined {
    return this.#written > this.current() ? this.#parts.notifier.settled(this.name, this.#written) : undefined;
  }

  /**
   * Resolves once the process that writes events knows of what this one has written up to a position, where that is another one, or after
   * a second: for what decides about events that are being stored. Never rejects.
   */
  async heardAtWriter(position: number): Promise<void> {
    const { database, rpc, writers } = this.#parts;
    if (!this.isShared || !database.isBesideWriter) return;
    try {
      await rpc.call(heardOfStream, { stream: this.name, position }, writers.writerOf(this.name));
    } catch {
      // Whoever takes its place reads what is there.
    }
  }

  /** Answers a call that only the process can answer that writes this stream. */
  serve<Request, Response>(
    method: RpcMethod<Request, Response>,
    handler: (request: Request) => Promise<Response>,
  ): void {
    if (this.isWrittenHere) this.#parts.rpc.handle(method, handler);
  }

  /** Calls the process that writes this stream, which is this one where it may. Rejects as the handler did. */
  atWriter<Request, Response>(method: RpcMethod<Request, Response>, request: Request): Promise<Response> {
    return this.#parts.rpc.call(method, request, this.#parts.writers.writerOf(this.name));
  }

  /**
   * {@link atWriter}, for what the answer to a request needs.
   * @throws OnlyAtWriterError where that process could not be asked: the request waits for whoever takes its place
   */
  async askWriter<Request, Response>(method: RpcMethod<Request, Response>, request: Request): Promise<Response> {
    try {
      return await this.atWriter(method, request);
    } catch (error) {
      throw MatrixError.is(error) && error.status === 503 ? new OnlyAtWriterError(method.name) : error;
    }
  }

  /**
   * Calls `listener` when another process wrote, with the keys that changed, before anybody is woken by it; without them where
   * something was missed. Where several processes write, this one's own news are told as well, in their turn: what was read before they
   * could be heard of may be old. It must not throw.
   */
  onHeard(listener: (changed: Readonly<Partial<Record<Key, Keys>>> | undefined) => void): void {
    this.#hearers.push(listener);
  }

  /** Messages of others may have been lost: the stream is at least here, and nothing is known of what came before. */
  catchUp(position: number): void {
    if (this.#ids !== undefined) return;
    // Before: what waited for the position is heard with it, and whoever hears that must know that something is missing.
    this.#forget(position);
    this.#parts.notifier.heard(this.name, position);
  }

  /** Another process wrote. Where something of it was missed, all that is known of earlier changes is forgotten. */
  hear({ writer, position, number = 0, changed }: BusMessage): void {
    const isNext = this.#heard.get(writer) === number - 1;
    this.#heard.set(writer, number);
    if (isNext) this.#take(position, changed);
    else this.#forget(position);
  }

  /** What somebody wrote, with nothing missed before it. */
  #take(position: number, changed: BusMessage['changed']): void {
    this.#note(position, changed);
    for (const listener of this.#hearers) listener(changed ?? {});
  }

  #forget(upTo: number): void {
    for (const cache of this.#caches.values()) cache.invalidate(Math.max(upTo, this.current()));
    for (const listener of this.#hearers) listener(undefined);
  }

  async #takeShared(tx: Tx, count: number): Promise<readonly number[]> {
    const last = await takeShared(tx, this.name, count);
    const ids = Array.from({ length: count }, (_, at) => last - count + 1 + at);
    const before = this.#taken.get(tx);
    // Nobody else can take one in between.
    if (before !== undefined) before.upTo = last;
    else this.#tellOnce(tx, { from: last - count, upTo: last, news: [] });
    return ids;
  }

  /** Tells of a transaction once it is durable, behind everything else that is done then: what it changed is forgotten before. */
  #tellOnce(tx: Tx, taken: Taken): void {
    this.#taken.set(tx, taken);
    let isCommitted = false;
    tx.afterCommit(() => {
      isCommitted = true;
      this.#written = Math.max(this.#written, taken.upTo);
      queueMicrotask(() => this.#tell(taken));
    });
    tx.unlessRolledBack(() => {
      if (!isCommitted) this.#parts.lookAgain();
    });
  }

  /** All positions are told, those without news as well: others would wait for them. */
  #tell({ from: start, upTo, news: all }: Taken): void {
    const { notifier } = this.#parts;
    let from = start;
    for (const { position, news } of all.toSorted((one, other) => one.position - other.position)) {
      notifier.announceShared(this.name, { from, position }, news);
      from = position;
    }
    if (from < upTo) notifier.announceShared(this.name, { from, position: upTo });
  }

  get #writable(): StreamIds {
    if (this.#ids) return this.#ids;
    throw new Error(
      this.isWrittenHere
        ? `The stream ${this.name} is not open yet`
        : `The stream ${this.name} is written by ${this.#parts.writers.writerOf(this.name)}`,
    );
  }

  #note(position: number, changed: Readonly<Partial<Record<string, Keys>>> | undefined): void {
    for (const key in changed) {
      const cache = this.#caches.get(key);
      if (cache) for (const one of changed[key] ?? []) cache.changed(one, position);
    }
  }

  #announce(position: number, { users, rooms, changed }: News<Key>): void {
    this.#parts.notifier.announce(this.name, position, { users, rooms, changed });
  }

  async #open(): Promise<void> {
    const { database, notifier } = this.#parts;
    const takenUpTo = (await this.#definition.takenUpTo?.(database)) ?? 0;
    if (this.isShared) {
      if (!database.isBesideWriter)
        await database.write((tx) => raiseShared(tx, this.name, takenUpTo), { name: 'raise_stream' });
      if (this.#parts.writers.isSharing)
        notifier.heard(this.name, (await readShared(database, [this.name])).get(this.name) ?? 0);
    } else if (this.isWrittenHere) {
      const { direction } = this.#definition;
      this.#ids = await StreamIds.load(database, this.name, { takenUpTo, direction });
      notifier.track(this.#ids);
    }
    // What others write is known from where they said they are.
    const known = this.#ids?.current() ?? Math.abs(this.current());
    for (const cache of this.#caches.values()) cache.startAt(known);
  }
}
