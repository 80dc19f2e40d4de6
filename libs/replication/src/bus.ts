/** News of a stream: rows up to `position` can be read. Carries positions, never facts. */
export interface BusMessage {
  readonly stream: string;
  /** Name of the process that wrote it. */
  readonly writer: string;
  readonly position: number;
  /**
   * Where several processes write the stream: the news are of all rows behind this position. Those of rows before it may come later, from
   * another process.
   */
  readonly from?: number | undefined;
  /** Whom the new rows concern, where the writer knew; readers use it to wake fewer. */
  readonly users?: ReadonlySet<string> | readonly string[] | undefined;
  readonly rooms?: ReadonlySet<string> | readonly string[] | undefined;
  /** 1, 2, 3… of the writer's messages about this stream: a gap shows that one was lost. */
  readonly number?: number | undefined;
  /** Keys with something new, by kind, for the change caches of other processes. */
  readonly changed?: Readonly<Partial<Record<string, ReadonlySet<string> | readonly string[]>>> | undefined;
}

/**
 * Carries announcements between processes. Messages may be lost, doubled or late: that costs latency only, because readers
 * take what they need from the database. Messages of one writer about one stream keep their order when they arrive.
 */
export abstract class Bus {
  /** Whether other processes may listen. */
  get isShared(): boolean {
    return false;
  }
  /** Whether what is published now reaches the others. */
  get isUp(): boolean {
    return true;
  }
  /** Resolves once all that was published here can reach others; `undefined`: it can. Never rejects. */
  told(): Promise<void> | undefined {
    return undefined;
  }
  /**
   * Resolves once everything that others were told before this call ({@link told}) has been delivered here; `undefined`: it has.
   * False where nobody can tell that in time: then there may be more. Never rejects.
   */
  heard(): Promise<boolean> | undefined {
    return undefined;
  }
  /** Sends to every subscriber of every process, this one included. Never throws and never blocks. */
  abstract publish(message: BusMessage): void;
  /** Returns how to end the subscription. A listener must not throw. */
  abstract subscribe(listener: (message: BusMessage) => void): () => void;
  /** Resolves once what was published before can reach the others, or cannot be waited for any longer. Never rejects. */
  abstract close(): Promise<void>;
}

/** The bus of a server that is a single process; several servers in one process have one each. */
export class InProcessBus extends Bus {
  readonly #listeners = new Set<(message: BusMessage) => void>();
  #waiting: BusMessage[] = [];
  #closed = false;

  publish(message: BusMessage): void {
    if (this.#closed || this.#listeners.size === 0) return;
    // Later, as over a network: a publisher must not run its readers' code.
    if (this.#waiting.push(message) === 1) queueMicrotask(() => this.#deliver());
  }

  subscribe(listener: (message: BusMessage) => void): () => void {
    // A subscription of its own, even when the same function subscribes twice.
    const own = (message: BusMessage): void => listener(message);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#listeners.clear();
  }

  #deliver(): void {
    const messages = this.#waiting;
    this.#waiting = [];
    for (const message of messages) for (const listener of this.#listeners) listener(message);
  }
}
