import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { copyFile, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** Of all that the cache may hold, so much one file may be. */
const largestShare = 4;
/** Ends of the names of files that are not whole yet. */
const partial = '.partial';
const abandonedMs = 3_600_000;

/**
 * Files that were stored or asked for lately, in a folder of its own; what was not asked for longest goes first. What it holds, it
 * holds over restarts. Processes may share the folder; each keeps to the limit with what it knows of.
 */
export class FileCache {
  /** Sizes in bytes by the names of files, the one that was asked for last at the end. */
  readonly #sizes = new Map<string, number>();
  #totalBytes = 0;
  #ready: Promise<void> | undefined;

  constructor(
    private readonly folder: string,
    private readonly maxBytes: number,
    /** Milliseconds since the epoch. */
    private readonly now: () => number,
  ) {}

  /** Whether a file of this size is worth its place. */
  takes(sizeBytes: number): boolean {
    return sizeBytes <= this.maxBytes / largestShare;
  }

  /** The contents of a file; `undefined` when it is not held. */
  async open(path: string): Promise<Readable | undefined> {
    await this.#prepare();
    const name = nameOf(path);
    // Whatever this process knows: another one may have put it there, or taken it away.
    const handle = await open(join(this.folder, name)).catch(() => undefined);
    if (handle === undefined) this.#take(name);
    else this.#put(name, (await handle.stat()).size);
    return handle && createReadStream('', { fd: handle });
  }

  /** Holds a copy of a file, where it is not too large. */
  async copy(path: string, localPath: string): Promise<void> {
    if (this.takes((await stat(localPath)).size)) await this.#keep(path, (target) => copyFile(localPath, target));
  }

  /** Holds what comes. */
  fill(path: string, contents: AsyncIterable<Uint8Array>): Promise<void> {
    return this.#keep(path, (target) => pipeline(contents, createWriteStream(target)));
  }

  /** Holds a file no longer. */
  async forget(path: string): Promise<void> {
    await this.#prepare();
    const name = nameOf(path);
    this.#take(name);
    // Whatever this process knows: another one may have put it there.
    await rm(join(this.folder, name), { force: true });
  }

  async #keep(path: string, write: (target: string) => Promise<void>): Promise<void> {
    await this.#prepare();
    const name = nameOf(path);
    const unfinished = join(this.folder, `${randomUUID()}${partial}`);
    try {
      await write(unfinished);
      const { size } = await stat(unfinished);
      await rename(unfinished, join(this.folder, name));
      this.#put(name, size);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw error;
    }
    await this.#shrink();
  }

  async #shrink(): Promise<void> {
    while (this.#totalBytes > this.maxBytes) {
      const [oldest] = this.#sizes.keys();
      if (oldest === undefined) return;
      await this.#drop(oldest);
    }
  }

  async #drop(name: string): Promise<void> {
    if (this.#take(name)) await rm(join(this.folder, name), { force: true });
  }

  /** Puts a file at the end of what is known. */
  #put(name: string, sizeBytes: number): void {
    this.#take(name);
    this.#sizes.set(name, sizeBytes);
    this.#totalBytes += sizeBytes;
  }

  /** Takes a file out of what is known. */
  #take(name: string): boolean {
    this.#totalBytes -= this.#sizes.get(name) ?? 0;
    return this.#sizes.delete(name);
  }

  #prepare(): Promise<void> {
    return (this.#ready ??= this.#read().catch((error: unknown) => {
      this.#ready = undefined;
      throw error;
    }));
  }

  /** What is there already. */
  async #read(): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const found: { readonly name: string; readonly size: number; readonly atimeMs: number }[] = [];
    for (const name of await readdir(this.folder)) {
      const known = await stat(join(this.folder, name)).catch(unlessMissing);
      // Another process has taken it away meanwhile.
      if (!known) continue;
      const { size, atimeMs } = known;
      if (/^[0-9a-f]{64}$/.test(name)) found.push({ name, size, atimeMs });
      // Another process may be writing to a young one.
      else if (name.endsWith(partial) && atimeMs < this.now() - abandonedMs)
        await rm(join(this.folder, name), { force: true });
    }
    for (const { name, size } of found.sort((a, b) => a.atimeMs - b.atimeMs)) this.#put(name, size);
    await this.#shrink();
  }
}

function unlessMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
}

const nameOf = (path: string): string => createHash('sha256').update(path).digest('hex');
