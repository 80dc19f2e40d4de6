import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock } from '@rookery/platform';

/** Slowest average that a sender may have after a minute, bytes per second. */
const slowestRate = 1_024;
const graceMs = 60_000;
/** What arrives is written in pieces of this size: fewer trips to the disk. */
const writeBytes = 262_144;

/** What is enforced while a file arrives. */
export interface StageLimits {
  readonly maxBytes: number;
  /** The error for a file that is larger. */
  readonly tooLarge: () => Error;
}

/** A file that has arrived, or is arriving, and is not part of the store yet. */
export class StagedFile {
  readonly #hash: Hash = createHash('sha256');
  #sizeBytes = 0;
  #digest: string | undefined;
  #handle: FileHandle | undefined;

  private constructor(
    /** Absolute path. */
    readonly path: string,
    handle: FileHandle,
  ) {
    this.#handle = handle;
  }

  /** Makes an empty file. */
  static async create(path: string): Promise<StagedFile> {
    return new StagedFile(path, await open(path, 'wx', 0o600));
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Hash of the contents, lower-case hexadecimal; once {@link finish} has resolved. */
  get sha256(): string {
    if (this.#digest === undefined) throw new Error('The file is not finished');
    return this.#digest;
  }

  /**
   * Takes everything that a source gives. The source is left as it is when it gives too much: whoever opened it ends it.
   * @throws MatrixError 408 `M_UNKNOWN` when it trickles; what `limits.tooLarge` makes; what the source fails with
   */
  async writeAll(source: Readable | AsyncIterable<Uint8Array>, clock: Clock, limits: StageLimits): Promise<void> {
    const startedMs = clock.monotonicMs();
    const pieces =
      'iterator' in source ? (source.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>) : source;
    let waiting: Uint8Array[] = [];
    let waitingBytes = 0;
    for await (const piece of pieces) {
      this.#sizeBytes += piece.length;
      if (this.#sizeBytes > limits.maxBytes) throw limits.tooLarge();
      const elapsedMs = clock.monotonicMs() - startedMs;
      if (elapsedMs > graceMs && this.#sizeBytes < (elapsedMs / 1_000) * slowestRate) throw MatrixError.bodyTooSlow();
      this.#hash.update(piece);
      waiting.push(piece);
      waitingBytes += piece.length;
      if (waitingBytes < writeBytes) continue;
      await this.#writing.appendFile(Buffer.concat(waiting, waitingBytes));
      waiting = [];
      waitingBytes = 0;
    }
    if (waitingBytes > 0) await this.#writing.appendFile(Buffer.concat(waiting, waitingBytes));
  }

  /** Makes the contents durable. */
  async finish(): Promise<void> {
    await this.#writing.sync();
    await this.#close();
    this.#digest = this.#hash.digest('hex');
  }

  /** The contents from the start; as often as wanted. */
  read(): Readable {
    return createReadStream(this.path);
  }

  /** Removes it; one that became part of the store is not touched. */
  async discard(): Promise<void> {
    await this.#close();
    await unlink(this.path).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    });
  }

  get #writing(): FileHandle {
    if (this.#handle === undefined) throw new Error('The file is finished');
    return this.#handle;
  }

  async #close(): Promise<void> {
    const handle = this.#handle;
    this.#handle = undefined;
    await handle?.close();
  }
}
