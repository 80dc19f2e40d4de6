/** Which processes write a stream; those that are not listed are written by the process that asks. */
export type StreamWriterTable = Readonly<Record<string, readonly string[]>>;

/** Whether streams that any process may write (`anyProcess`) are written so now. */
export interface Sharing {
  /** The process that writes all others knows of it: positions are the database's alone. */
  readonly isKnown: () => boolean;
  /** What this process writes can be told to the others. */
  readonly canTell: () => boolean;
}

/**
 * The one place that knows which process writes which stream. A server that is a single process writes all of them.
 *
 * A stream whose rows lie in the database may have any number of writers, each with positions of its own
 * ({@link WriterPositions}); one whose rows lie in memory has one, and what changes it is a call to that process
 * ({@link Stream.atWriter}).
 */
export class StreamWriters {
  readonly #table: StreamWriterTable;

  /**
   * @param instance name of this process
   * @param table streams that are not written by every process
   * @param elsewhere the process that writes whatever the table does not name; this one unless told
   * @param sharing of a process beside that one; streams that any process may write are written here unless told
   */
  constructor(
    readonly instance = 'main',
    table: StreamWriterTable = {},
    private readonly elsewhere?: string,
    private readonly sharing?: Sharing,
  ) {
    this.#table = table;
  }

  /** Names of the processes that write a stream; at least one. */
  of(stream: string): readonly string[] {
    const writers = this.#table[stream] ?? [];
    return writers.length > 0 ? writers : [this.elsewhere ?? this.instance];
  }

  /** Whether this process writes a stream. */
  isHere(stream: string): boolean {
    return this.of(stream).includes(this.instance);
  }

  /** Whether there are other processes, or may be. */
  get areSeveral(): boolean {
    return this.elsewhere !== undefined;
  }

  /** Whether this process may write streams that any process may write. */
  get mayShare(): boolean {
    return this.sharing === undefined || (this.sharing.isKnown() && this.sharing.canTell());
  }

  /** Whether the database says how far such streams are, rather than the process that writes. */
  get isSharing(): boolean {
    return this.sharing?.isKnown() ?? true;
  }

  /** The process to ask for a change of a stream: this one where it may. */
  writerOf(stream: string): string {
    return this.isHere(stream) ? this.instance : this.of(stream)[0]!;
  }
}
