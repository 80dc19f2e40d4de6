import { Injectable } from '@nestjs/common';
import { createReadStream } from 'node:fs';
import { copyFile, type FileHandle, mkdir, open, readdir, rename, rm, rmdir, stat, unlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import type { MediaDownloadHeaders } from '@rookery/module-api';
import { Clock, Config, Ids, SingleFlight } from '@rookery/platform';
import type { FilePlace, StoreTree } from './file-place.js';
import { isMissing, pathBelow, syncFile, syncFolder } from './file-system-provider.js';
import { StagedFile } from './staged-file.js';
import { StorageProviders } from './storage-providers.js';
import { entriesOf, fileFacts, namesIn, type StoreEntry } from './store-walk.js';

/** A file of the store, open for reading. Must be closed. */
export interface OpenFile {
  readonly sizeBytes: number;
  /** Absolute path, valid until it is closed. */
  readonly path: string;
  /** The contents, or a part of them with both ends included; the file is closed when the stream ends or is destroyed. */
  stream(range?: { readonly start: number; readonly end: number }): Readable;
  close(): Promise<void>;
}

/** Files in here became part of nothing. */
const stagingFolder = 'tmp';
const abandonedMs = 24 * 3_600_000;
/** Pieces in which files are read. */
const readBytes = 262_144;

/**
 * The files of the media repository: on the local disk first, then with the storage providers in their order. What a
 * provider has is copied to the local disk when it is asked for, unless the local disk is to keep nothing.
 */
@Injectable()
export class MediaFiles {
  readonly #folder: string;
  readonly #keepsLocally: boolean;
  readonly #fetching = new SingleFlight<boolean>();
  #staging: Promise<string> | undefined;

  constructor(
    config: Config,
    private readonly ids: Ids,
    private readonly clock: Clock,
    private readonly providers: StorageProviders,
  ) {
    this.#folder = config.get('media_store_path');
    this.#keepsLocally = config.get('enable_local_media_storage');
  }

  /** An empty file for something that arrives. Keep or discard it. */
  async stage(): Promise<StagedFile> {
    this.#staging ??= this.#prepareStaging();
    const folder = await this.#staging.catch((error: unknown) => {
      this.#staging = undefined;
      throw error;
    });
    return StagedFile.create(join(folder, this.ids.letters(24)));
  }

  /**
   * Makes a finished file part of the store. Afterwards it is no longer staged.
   * @throws Error when the disk, or a provider that is to be waited for, does not take it; then nothing is kept
   */
  async keep(staged: StagedFile, place: FilePlace): Promise<void> {
    if (!this.#keepsLocally && !place.info.urlCache && this.providers.keeps(place)) {
      return this.providers.store(place, staged.path, { waitForAll: true, release: () => staged.discard() });
    }
    const path = pathBelow(this.#folder, place.path);
    await moveTo(staged.path, path);
    await syncFolder(dirname(path));
    if (!this.providers.keeps(place)) return;
    try {
      await this.providers.store(place, path);
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  }

  /** Opens a file; `undefined` when nobody has it. */
  async open(place: FilePlace): Promise<OpenFile | undefined> {
    const path = pathBelow(this.#folder, place.path);
    const local = await openFile(path);
    if (local !== undefined) return local;
    if (this.#keepsLocally) {
      return (await this.#fetchOnce(place, path)) ? openFile(path) : undefined;
    }
    const staged = await this.#fetch(place);
    if (staged === undefined) return undefined;
    const opened = await openFile(staged.path, () => staged.discard());
    if (opened === undefined) await staged.discard();
    return opened;
  }

  /** Where a client gets a file by itself; `undefined` when it is here, or nobody says. */
  async elsewhere(place: FilePlace, headers: MediaDownloadHeaders): Promise<string | undefined> {
    if (!this.providers.mayRedirect || (await this.isLocal(place))) return undefined;
    return this.providers.downloadUrl(place, headers);
  }

  /** Whether the local disk has the file. */
  async isLocal(place: FilePlace): Promise<boolean> {
    const found = await stat(pathBelow(this.#folder, place.path)).catch(() => undefined);
    return found?.isFile() ?? false;
  }

  /** Removes a file everywhere; one that is not there is no error. */
  async remove(place: FilePlace): Promise<void> {
    const path = pathBelow(this.#folder, place.path);
    await unlink(path).catch(ignoreMissing);
    await this.#removeEmptyFolders(dirname(path));
    await this.providers.remove(place);
  }

  /** Removes a file's thumbnails: those that are known everywhere, and on the local disk whatever else lies with them. */
  async removeThumbnails(folder: string, known: readonly FilePlace[]): Promise<void> {
    const path = pathBelow(this.#folder, folder);
    await rm(path, { recursive: true, force: true });
    await this.#removeEmptyFolders(dirname(path));
    for (const place of known) await this.providers.remove(place);
  }

  /** Whether uploads lie on the local disk and nowhere else, so that one that is not there is lost. */
  get isOnlyPlaceOfUploads(): boolean {
    return this.#keepsLocally && !this.providers.exist;
  }

  /** What lies in a part of the store on the local disk, in no order. */
  entries(tree: StoreTree): AsyncGenerator<StoreEntry> {
    return entriesOf(this.#folder, tree);
  }

  /** The names of the files in a folder of the store; those of folders in it are none. */
  async *names(folder: string): AsyncGenerator<string> {
    for await (const found of namesIn(pathBelow(this.#folder, folder))) if (found.isFile()) yield found.name;
  }

  /** Size and time of a file on the local disk; `undefined` when it is not there. */
  facts(path: string): ReturnType<typeof fileFacts> {
    return fileFacts(pathBelow(this.#folder, path));
  }

  /** Two requests for the same file fetch it once. */
  #fetchOnce(place: FilePlace, path: string): Promise<boolean> {
    return this.#fetching.run(path, () => this.#fetchTo(place, path));
  }

  async #fetchTo(place: FilePlace, path: string): Promise<boolean> {
    const staged = await this.#fetch(place);
    if (staged === undefined) return false;
    try {
      await moveTo(staged.path, path);
    } catch (error) {
      await staged.discard();
      throw error;
    }
    return true;
  }

  async #fetch(place: FilePlace): Promise<StagedFile | undefined> {
    const source = await this.providers.fetch(place);
    if (source === undefined) return undefined;
    const staged = await this.stage();
    try {
      await staged.writeAll(source, this.clock, { maxBytes: Infinity, tooLarge: () => new Error('too large') });
      await staged.finish();
      return staged;
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  async #prepareStaging(): Promise<string> {
    const folder = join(this.#folder, stagingFolder);
    await mkdir(folder, { recursive: true });
    const oldestMs = this.clock.nowMs() - abandonedMs;
    for (const name of await readdir(folder)) {
      const path = join(folder, name);
      const found = await stat(path).catch(() => undefined);
      if (found?.isFile() && found.mtimeMs < oldestMs) await unlink(path).catch(ignoreMissing);
    }
    return folder;
  }

  /** Folders that nothing is left in go, up to the two levels that ids are spread over. */
  async #removeEmptyFolders(folder: string): Promise<void> {
    let current = folder;
    for (let level = 0; level < 2 && dirname(current) !== this.#folder; level++) {
      try {
        await rmdir(current);
      } catch {
        return;
      }
      current = dirname(current);
    }
  }
}

/** Puts a file into its place, as a whole. */
async function moveTo(from: string, to: string): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    await mkdir(dirname(to), { recursive: true });
    try {
      return await rename(from, to).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== 'EXDEV') throw error;
        return copyAcross(from, to);
      });
    } catch (error) {
      // The folder was empty, and somebody who removed a file took it along.
      if (!isMissing(error) || attempt === 2) throw error;
    }
  }
}

/** Folders of the store may be links to another disk, to which nothing can be renamed. */
async function copyAcross(from: string, to: string): Promise<void> {
  // Nobody may find half a file; another process may be bringing the same one.
  const partial = `${to}.${basename(from)}.partial`;
  try {
    await copyFile(from, partial);
    await syncFile(partial);
    await rename(partial, to);
  } catch (error) {
    await rm(partial, { force: true });
    throw error;
  }
  await unlink(from).catch(ignoreMissing);
}

/** A small part of a file in one piece: a quarter of what a file stream costs, and most files are small. */
function readAtOnce(handle: FileHandle, start: number, length: number): Readable {
  const buffer = Buffer.allocUnsafe(length);
  const stream: Readable = new Readable({
    highWaterMark: length,
    read() {
      handle.read(buffer, 0, length, start).then(
        ({ bytesRead }) => {
          if (bytesRead < length) return void stream.destroy(new Error('The file was cut off'));
          stream.push(buffer);
          stream.push(null);
        },
        (error: Error) => void stream.destroy(error),
      );
    },
  });
  return stream;
}

function ignoreMissing(error: unknown): void {
  if (!isMissing(error)) throw error;
}

async function openFile(path: string, release?: () => Promise<void>): Promise<OpenFile | undefined> {
  let handle: FileHandle;
  try {
    handle = await open(path, 'r');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  const found = await handle.stat();
  if (!found.isFile()) {
    await handle.close();
    return undefined;
  }
  let closed = false;
  const close = async (): Promise<void> => {
    if (closed) return;
    closed = true;
    await handle.close();
    await release?.();
  };
  return {
    sizeBytes: found.size,
    path,
    close,
    stream(range) {
      const { start, end } = range ?? { start: 0, end: found.size - 1 };
      const stream =
        end - start < readBytes
          ? readAtOnce(handle, start, end - start + 1)
          : createReadStream(path, { fd: handle, highWaterMark: readBytes, start, end });
      stream.once('close', () => void close().catch(() => undefined));
      return stream;
    },
  };
}
