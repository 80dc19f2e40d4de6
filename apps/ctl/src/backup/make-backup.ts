import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type DatabaseOptions, takeImage } from '@rookery/database';
import { Clock, type Config } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { BackupFolder } from './backup-folder.js';
import { comparePaths, type Manifest, type MediaEntry, type StoredFile } from './manifest.js';
import { filesOf, openPieces } from './media-store.js';
import { settingsFiles } from './settings-files.js';
import { lineOf, mediaEntries, store } from './stored.js';

/** For {@link makeBackup}. */
export interface BackupJob {
  readonly folder: BackupFolder;
  readonly config: Config;
  readonly options: DatabaseOptions;
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
  const image = await takeImage(options);
  const madeAtMs = clock.nowMs();
  const settings = await storeSettings(job, counts);
  const parts: Manifest['database']['parts'][number][] = [];
  try {
    let done = 0;
    for await (const { name, pieces } of image.parts()) {
      const stored = await store(folder, pieces, (bytes, newBytes) => {
        counts.newBytes += newBytes;
        job.onProgress('database', (done += bytes), image.sizeBytes);
      });
      parts.push({ name, ...stored });
    }
  } finally {
    await image.close();
  }
  const media = await storeMedia(job, before, counts);
  const manifest: Manifest = {
    id: await idFor(folder, madeAtMs),
    ...{ madeAtMs, madeBy: version, serverName: config.serverName, media, settings },
    database: { kind: image.kind, parts },
  };
  await folder.finish(manifest);
  return { manifest, ...counts };
}

/** Second by second; who makes two within one gets a number behind it. */
async function idFor(folder: BackupFolder, madeAtMs: number): Promise<string> {
  const id = new Date(madeAtMs).toISOString().replaceAll(/[-:]|\.\d+/g, '');
  const taken = new Set(await folder.backups());
  if (!taken.has(id)) return id;
  for (let number = 2; ; number++) if (!taken.has(`${id}-${number}`)) return `${id}-${number}`;
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
