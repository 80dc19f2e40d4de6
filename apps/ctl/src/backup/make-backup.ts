import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type DatabaseOptions, openReader, takeImage } from '@rookery/database';
import { Clock, type Config } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { BackupFolder } from './backup-folder.js';
import { comparePaths, type DatabaseParts, type Manifest, type MediaEntry, type StoredFile } from './manifest.js';
import { filesOf, openPieces } from './media-store.js';
import { settingsFiles } from './settings-files.js';
import { lineOf, mediaEntries, store } from './stored.js';

/** For {@link makeBackup}. */
export interface BackupJob {
  readonly folder: BackupFolder;
  readonly config: Config;
  readonly options: DatabaseOptions;
  /** Where state has a database of its own. */
  readonly state?: DatabaseOptions | undefined;
  readonly version: string;
  readonly clock: Clock;
  /** Told now and then what is being gone over. */
  readonly onProgress: (what: string, bytes: number, ofBytes?: number) => void;
}

/** What came of it. */
export interface Made {
  readonly manifest: Manifest;
  /** What it has added to the folder. */
  readonly newBytes: number;
  /** Media files that are as in the last backup, and were not read again. */
  readonly sameFiles: number;
}

const indexBytes = 262_144;

/**
 * Makes a backup while the server goes on: the database as of one moment, then the media, of which all that the database knows at
 * that moment are there already.
 * @throws CommandError, DatabaseError
 */
export async function makeBackup(job: BackupJob): Promise<Made> {
  const { folder, config, options, version, clock } = job;
  const counts = { newBytes: 0, sameFiles: 0 };
  const before = (await folder.backups()).at(-1);
  const images = await takeImages(options, job.state, clock);
  const madeAtMs = clock.nowMs();
  const settings = await storeSettings(job, counts);
  const databases: DatabaseParts[] = [];
  try {
    let done = 0;
    const sizeBytes = images.reduce((total, image) => total + image.sizeBytes, 0);
    for (const image of images) {
      const parts: DatabaseParts['parts'][number][] = [];
      for await (const { name, pieces } of image.parts()) {
        const stored = await store(folder, pieces, (bytes, newBytes) => {
          counts.newBytes += newBytes;
          job.onProgress('database', (done += bytes), sizeBytes);
        });
        parts.push({ name, ...stored });
      }
      databases.push({ kind: image.kind, parts });
    }
  } finally {
    for (const image of images) await image.close();
  }
  const [database, state] = databases as [DatabaseParts, DatabaseParts?];
  const media = await storeMedia(job, before, counts);
  const manifest: Manifest = {
    id: await idFor(folder, madeAtMs),
    ...{ madeAtMs, madeBy: version, serverName: config.serverName, media, settings },
    database,
    ...(state !== undefined && { state }),
  };
  await folder.finish(manifest);
  return { manifest, ...counts };
}

type Image = Awaited<ReturnType<typeof takeImage>>;

/** How often both databases are begun anew, because something was deleted between the two. */
const maxAttempts = 20;
const againMs = 500;

/**
 * The main database, then that of state: what the first names is durable in the second before it is named, so that only what was
 * deleted in between could be missing. The database of state counts that; then both are taken anew.
 */
async function takeImages(
  options: DatabaseOptions,
  stateOptions: DatabaseOptions | undefined,
  clock: Clock,
): Promise<readonly Image[]> {
  if (stateOptions === undefined) return [await takeImage(options)];
  for (let attempt = 1; ; attempt++) {
    const before = await deletionsIn(stateOptions, clock);
    const images = [await takeImage(options)];
    try {
      images.push(await takeImage(stateOptions));
      if ((await deletionsIn(stateOptions, clock)) === before) return images;
    } catch (error) {
      for (const image of images) await image.close();
      throw error;
    }
    for (const image of images) await image.close();
    if (attempt === maxAttempts)
      throw new CommandError(
        'State groups are deleted all the time, so that main database and state do not fit together\nTry again when no room is being deleted.',
      );
    await clock.sleep(againMs);
  }
}

/** How often state groups have been deleted. */
async function deletionsIn(options: DatabaseOptions, clock: Clock): Promise<number> {
  const { stateStore } = await import('@rookery/rooms');
  const reader = await openReader(options, clock);
  if (reader === undefined) throw new CommandError('There is no database of state where the settings lead');
  try {
    return await stateStore.deletions(reader.db);
  } finally {
    await reader.close();
  }
}

/** Second by second; a further one within one gets a number behind it, so that it comes after those that are there. */
async function idFor(folder: BackupFolder, madeAtMs: number): Promise<string> {
  const id = new Date(madeAtMs).toISOString().replaceAll(/[-:]|\.\d+/g, '');
  const numbers = (await folder.backups())
    .filter((taken) => taken.startsWith(id))
    .map((taken) => Number(taken.slice(id.length + 1)) || 1);
  return numbers.length === 0 ? id : `${id}-${Math.max(...numbers) + 1}`;
}

async function storeSettings(job: BackupJob, counts: { newBytes: number }): Promise<Manifest['settings']> {
  const files: StoredFile[] = [];
  for (const { path, setting } of await settingsFiles(job.config)) {
    const pieces = await openPieces(path);
    if (pieces === undefined) throw new CommandError(`${path} has gone`);
    const stored = await store(job.folder, pieces, (_, newBytes) => (counts.newBytes += newBytes));
    files.push({ path, setting, mode: statSync(path).mode & 0o777, ...stored });
  }
  return { paths: job.config.paths.map((path) => resolve(path)), files };
}

/** The media, of which only what is new since the last backup is read. */
async function storeMedia(
  job: BackupJob,
  before: string | undefined,
  counts: { newBytes: number; sameFiles: number },
): Promise<Manifest['media']> {
  const { folder, config, onProgress } = job;
  const root = config.get('media_store_path');
  const known = mediaEntries(
    folder,
    before === undefined ? { bytes: 0, pieces: [] } : (await folder.manifest(before)).media,
  );
  let old = await known.next();
  let [files, fileBytes] = [0, 0];
  const entries = async function* (): AsyncGenerator<MediaEntry> {
    for await (const found of filesOf(root)) {
      while (!old.done && comparePaths(old.value.path, found.path) < 0) old = await known.next();
      const same = old.done ? undefined : old.value;
      if (same?.path === found.path && same.sizeBytes === found.sizeBytes && same.modifiedMs === found.modifiedMs) {
        counts.sameFiles += 1;
        yield same;
      } else {
        const pieces = await openPieces(join(root, found.path));
        // It has gone meanwhile.
        if (pieces === undefined) continue;
        const { bytes, pieces: names } = await store(folder, pieces, (_, newBytes) => (counts.newBytes += newBytes));
        yield { ...found, sizeBytes: bytes, pieces: names };
      }
      files += 1;
      fileBytes += found.sizeBytes;
      onProgress(`media, ${files.toLocaleString('en-US')} files`, fileBytes);
    }
  };
  const stored = await store(folder, indexPieces(entries()), (_, newBytes) => (counts.newBytes += newBytes));
  await known.return(undefined);
  return { ...stored, files, fileBytes };
}

/** An index in pieces that end where a folder of the store does, so that a new file changes one of them. */
async function* indexPieces(entries: AsyncIterable<MediaEntry>): AsyncGenerator<Uint8Array> {
  let lines: string[] = [];
  let [bytes, folder] = [0, ''];
  for await (const entry of entries) {
    const line = lineOf(entry);
    const top = entry.path.split('/', 2).join('/');
    if ((top !== folder && bytes >= indexBytes / 16) || bytes >= indexBytes) {
      yield Buffer.from(lines.join(''));
      lines = [];
      bytes = 0;
    }
    folder = top;
    lines.push(line);
    bytes += line.length;
  }
  if (lines.length > 0) yield Buffer.from(lines.join(''));
}
