import { type Database, readShared } from '@rookery/database';
import type { Config } from '@rookery/platform';
// Real time, not the clock's: the database is waited for.
import { setTimeout as pause } from 'node:timers/promises';
import type { Notifier } from '../notifier.js';
import { defineRpc, InProcessRpc, type Rpc } from '../rpc/rpc.js';
import { heardOfStream, Stream } from './stream.js';
import type { KeysOf, StreamDefinition } from './stream-definition.js';
import { StreamWriters } from './stream-writers.js';

/** How far each stream may be read. */
const positionsOfStreams = defineRpc<undefined, Readonly<Record<string, number>>>('positions_of_streams');

/** How long a process waits for what another one says that it has said. */
const longestHearingMs = 1_000;

const nothing: Readonly<Record<string, number>> = {};

/** How the streams of this process reach others. */
export interface StreamsOptions {
  /** Who writes what; this process everything unless told. */
  readonly writers?: StreamWriters;
  readonly rpc?: Rpc;
  /** Whose `caches.*` size the change caches; the usual sizes without. */
  readonly config?: Config;
}

/** The streams of a server, each opened once. Provide it globally, so that they are open before anything else is initialised. */
export class Streams {
  readonly writers: StreamWriters;
  readonly #database: Database;
  readonly #notifier: Notifier;
  readonly #rpc: Rpc;
  readonly #config: Config | undefined;
  /** Those that several processes write. */
  readonly #shared: Stream<string>[] = [];
  #looking: Promise<void> | undefined;
  /** Since the last look something was written of which nobody told this process what it changed. */
  #hasMissed = false;
  readonly #byName = new Map<string, { readonly definition: StreamDefinition; readonly stream: Stream<string> }>();

  constructor(database: Database, notifier: Notifier, options: StreamsOptions = {}) {
    this.#database = database;
    this.#notifier = notifier;
    this.writers = options.writers ?? new StreamWriters(notifier.instance);
    this.#config = options.config;
    this.#rpc = options.rpc ?? new InProcessRpc();
    this.#rpc.handle(positionsOfStreams, async () =>
      Object.fromEntries([...this.#byName.values()].map(({ stream }) => [stream.name, stream.current()])),
    );
    this.#rpc.handle(heardOfStream, ({ stream, position }) =>
      notifier.reached(stream, position, { timeoutMs: longestHearingMs }),
    );
    notifier.onHeard((message) => this.#byName.get(message.stream)?.stream.hear(message));
  }

  /** The stream of a definition; the same for everybody who asks. Ask in the constructor: what is known then is opened by {@link open}. */
  of<D extends StreamDefinition>(definition: D): Stream<KeysOf<D>> {
    const known = this.#byName.get(definition.name);
    if (known !== undefined && known.definition !== definition)
      throw new Error(`There are two definitions of the stream ${definition.name}`);
    if (known !== undefined) return known.stream;
    const parts = {
      database: this.#database,
      notifier: this.#notifier,
      writers: this.writers,
      rpc: this.#rpc,
      config: this.#config,
      lookAgain: () => this.#lookAgain(),
      missed: () => void (this.#hasMissed = true),
    };
    const stream = new Stream<string>(definition, parts);
    this.#byName.set(definition.name, { definition, stream });
    if (stream.isShared) this.#shared.push(stream);
    return stream;
  }

  /** Names of the streams that are in use. */
  get names(): readonly string[] {
    return [...this.#byName.keys()];
  }

  /** Opens all streams that are in use. Needs the migrated schema. */
  async open(): Promise<void> {
    const streams = this.#all;
    if (streams.some((stream) => !stream.isShared && !stream.isWrittenHere)) await this.catchUp();
    await Promise.all(streams.map((stream) => stream.open()));
  }

  /**
   * Learns how far the streams are that other processes write: at the start, and when messages may have been lost. What is remembered of
   * changes up to there is forgotten.
   * @param forget called once the positions are known and before anybody here sees them, unless they are known already and nothing was
   * missed on the way there: what was read while others were asked may be older than they are
   * @param hasMissed that something was is known
   */
  async catchUp(forget?: () => void, hasMissed = false): Promise<void> {
    const { isSharing } = this.writers;
    const elsewhere = this.#all.filter((stream) => !stream.isWrittenHere && !(stream.isShared && isSharing));
    const [told, shared] = await Promise.all([
      elsewhere.length > 0 ? this.#rpc.call(positionsOfStreams, undefined, this.writers.writerOf('events')) : nothing,
      readShared(this.#database, isSharing ? this.#sharedNames : []),
    ]);
    // A stream of several writers has no gaps: who is where the database is has missed nothing but what it gave up.
    const behind = this.#all.filter((stream) => stream.isShared && (shared.get(stream.name) ?? 0) > stream.current());
    if (hasMissed || this.#hasMissed || elsewhere.length + behind.length > 0) forget?.();
    this.#hasMissed = false;
    for (const stream of elsewhere) stream.catchUp(told[stream.name] ?? 0);
    for (const stream of behind) stream.catchUp(shared.get(stream.name) ?? 0);
  }

  /** Resolves once all that this process has written can be read here; `undefined`: it can. */
  settled(): Promise<unknown> | undefined {
    const waiting = this.#shared.flatMap((stream) => stream.settled() ?? []);
    return waiting.length === 0 ? undefined : Promise.all(waiting);
  }

  /** Nobody knows what became of a transaction that took positions: everybody reads how far the streams are. */
  #lookAgain(): void {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined));
  }

  async #look(): Promise<void> {
    for (let attempt = 0; attempt < 60; attempt++) {
      await pause(Math.min(100 * 2 ** attempt, 5_000), undefined, { ref: false });
      try {
        for (const [name, position] of await readShared(this.#database, this.#sharedNames))
          this.#notifier.announceShared(name, { from: position, position });
        return;
      } catch {
        // It is away still.
      }
    }
  }

  get #all(): readonly Stream<string>[] {
    return [...this.#byName.values()].map(({ stream }) => stream);
  }

  get #sharedNames(): readonly string[] {
    return this.#shared.map(({ name }) => name);
  }

  /** For the container: everything is constructed, and nothing initialised yet. */
  onModuleInit(): Promise<void> {
    return this.open();
  }
}
