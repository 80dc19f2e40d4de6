import type { Duplex } from 'node:stream';
import type pg from 'pg';
import type { Connection, Submittable } from 'pg';
import { DatabaseError } from '../errors.js';

/** What the driver's connections do besides what its types say. */
interface Wire {
  readonly stream: Duplex;
  query(text: string): void;
  sendCopyFromChunk(chunk: Uint8Array): void;
  endCopyFrom(): void;
  sendCopyFail(reason: string): void;
}

/** What has arrived and was not asked for yet; above it the server waits. */
const maxWaitingBytes = 4 * 1_048_576;

/** Rows on their way from the server: each as a line of PostgreSQL's text format. */
class CopyOut implements Submittable {
  readonly #rows: Uint8Array[] = [];
  #bytes = 0;
  #wire: Wire | undefined;
  #paused = false;
  #ended = false;
  #failure: Error | undefined;
  #wake: () => void = () => {};

  constructor(private readonly sql: string) {}

  submit(connection: Connection): void {
    this.#wire = connection as unknown as Wire;
    this.#wire.query(this.sql);
  }

  /** All that has arrived, waiting for some; nothing once that was all. @throws what the server said */
  async next(): Promise<readonly Uint8Array[] | undefined> {
    while (this.#rows.length === 0 && !this.#ended && this.#failure === undefined)
      await new Promise<void>((resolve) => (this.#wake = resolve));
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#rows.length === 0) return undefined;
    const rows = this.#rows.splice(0);
    this.#bytes = 0;
    if (this.#paused) {
      this.#paused = false;
      this.#wire?.stream.resume();
    }
    return rows;
  }

  handleCopyData({ chunk }: { readonly chunk: Uint8Array }): void {
    // The driver's buffer is used again.
    this.#rows.push(Buffer.from(chunk));
    this.#bytes += chunk.length;
    if (this.#bytes > maxWaitingBytes && !this.#paused) {
      this.#paused = true;
      this.#wire?.stream.pause();
    }
    this.#wake();
  }
  handleError(error: Error): void {
    this.#failure = error;
    this.#wake();
  }
  handleReadyForQuery(): void {
    this.#ended = true;
    this.#wake();
  }
  handleCommandComplete(): void {}
  handleRowDescription(): void {}
  handleDataRow(): void {}
}

/** Rows on their way to the server. */
class CopyIn implements Submittable {
  readonly ready: Promise<void>;
  readonly done: Promise<number>;
  #wire: Wire | undefined;
  #rows = 0;
  #failure: Error | undefined;
  #tellReady: () => void = () => {};
  #settle: (failure?: Error) => void = () => {};

  constructor(private readonly sql: string) {
    this.ready = new Promise((resolve) => (this.#tellReady = resolve));
    this.done = new Promise((resolve, reject) => {
      this.#settle = (failure) => (failure === undefined ? resolve(this.#rows) : reject(failure));
    });
    // Whoever waits for it hears of a failure; nobody may be waiting just then.
    this.done.catch(() => {});
  }

  get hasFailed(): boolean {
    return this.#failure !== undefined;
  }

  submit(connection: Connection): void {
    this.#wire = connection as unknown as Wire;
    this.#wire.query(this.sql);
  }

  async write(chunk: Uint8Array): Promise<void> {
    const wire = this.#wire;
    if (wire === undefined || this.hasFailed) return;
    wire.sendCopyFromChunk(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    const { stream } = wire;
    if (!stream.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        stream.off('drain', go);
        stream.off('close', go);
        resolve();
      };
      stream.once('drain', go);
      stream.once('close', go);
    });
  }
  end(): void {
    if (!this.hasFailed) this.#wire?.endCopyFrom();
  }
  giveUp(reason: string): void {
    if (!this.hasFailed) this.#wire?.sendCopyFail(reason);
  }

  handleCopyInResponse(): void {
    this.#tellReady();
  }
  handleCommandComplete({ text }: { readonly text: string }): void {
    this.#rows = Number(/^COPY (\d+)/.exec(text)?.[1] ?? 0);
  }
  handleError(error: Error): void {
    this.#failure = error;
    this.#tellReady();
    this.#settle(error);
  }
  handleReadyForQuery(): void {
    this.#settle(this.#failure);
  }
  handleCopyData(): void {}
  handleRowDescription(): void {}
  handleDataRow(): void {}
}

/**
 * The rows of a `COPY … TO STDOUT`, in groups as they arrive. Must be gone through to the end before the connection is used
 * for anything else.
 */
export async function* copyOut(client: pg.ClientBase, sql: string): AsyncGenerator<readonly Uint8Array[]> {
  const copy = new CopyOut(sql);
  const onEnd = (): void => copy.handleError(new DatabaseError('The connection to PostgreSQL was lost'));
  client.once('end', onEnd);
  try {
    client.query(copy);
    for (let rows = await copy.next(); rows !== undefined; rows = await copy.next()) yield rows;
  } finally {
    client.off('end', onEnd);
  }
}

/** Feeds a `COPY … FROM STDIN`. @returns the number of rows. @throws what the server said, or what `pieces` threw */
export async function copyIn(
  client: pg.ClientBase,
  sql: string,
  pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<number> {
  const copy = new CopyIn(sql);
  const onEnd = (): void => copy.handleError(new DatabaseError('The connection to PostgreSQL was lost'));
  client.once('end', onEnd);
  try {
    client.query(copy);
    await copy.ready;
    try {
      for await (const piece of pieces) {
        if (copy.hasFailed) break;
        await copy.write(piece);
      }
    } catch (error) {
      copy.giveUp('given up');
      await copy.done.catch(() => {});
      throw error;
    }
    copy.end();
    return await copy.done;
  } finally {
    client.off('end', onEnd);
  }
}
