import type { Database } from '@rookery/database';
import type { Config } from '@rookery/platform';
import type { Notifier } from '../notifier.js';
import { defineRpc, InProcessRpc, type Rpc } from '../rpc/rpc.js';
import { Stream } from './stream.js';
import type { KeysOf, StreamDefinition } from './stream-definition.js';
import { StreamWriters } from './stream-writers.js';

/** How far each stream may be read. */
const positionsOfStreams = defineRpc<undefined, Readonly<Record<string, number>>>('positions_of_streams');

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
    };
    const stream = new Stream<string>(definition, parts);
    this.#byName.set(definition.name, { definition, stream });
    return stream;
  }

  /** Names of the streams that are in use. */
  get names(): readonly string[] {
    return [...this.#byName.keys()];
  }

  /** Opens all streams that are in use. Needs the migrated schema. */
  async open(): Promise<void> {
    if ([...this.#byName.values()].some(({ stream }) => !stream.isWrittenHere)) await this.catchUp();
    await Promise.all([...this.#byName.values()].map(({ stream }) => stream.open()));
  }

  /**
   * Learns from the process that writes how far the streams are: at the start, and when messages may have been lost. What is
   * remembered of changes up to there is forgotten.
   * @param forget called once the positions are known and before anybody here sees them: what was read while the writer was
   * asked may be older than they are
   */
  async catchUp(forget?: () => void): Promise<void> {
    const positions = await this.#rpc.call(positionsOfStreams, undefined, this.writers.writerOf('events'));
    forget?.();
    for (const { stream } of this.#byName.values()) stream.catchUp(positions[stream.name] ?? 0);
  }

  /** For the container: everything is constructed, and nothing initialised yet. */
  onModuleInit(): Promise<void> {
    return this.open();
  }
}
