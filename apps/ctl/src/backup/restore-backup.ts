import { existsSync } from 'node:fs';
import { chmod, mkdir, open, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import {
  type DatabaseOptions,
  type ImagePart,
  isEmptyDatabase,
  loadImage,
  markPart,
  markRestored,
  openReader,
  partOf,
} from '@rookery/database';
import { type Clock, type Config, eachLimit, fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { BackupFolder } from './backup-folder.js';
import { comparePaths, type DatabaseParts, type Manifest, type MediaEntry, type StoredFile } from './manifest.js';
import { filesOf } from './media-store.js';
import { namedFiles } from './settings-files.js';
import { load, loadWhole, mediaEntries } from './stored.js';

/** For {@link restoreBackup}. */
export interface RestoreJob {
  readonly folder: BackupFolder;
  readonly manifest: Manifest;
  readonly config: Config;
  readonly options: DatabaseOptions;
  /** Where state has a database of its own. */
  readonly state?: DatabaseOptions | undefined;
  readonly clock: Clock;
  readonly onProgress: (what: string, bytes: number, ofBytes?: number) => void;
  /** Told what is otherwise than somebody may expect. */
  readonly onNote: (text: string) => void;
}

const keySetting = 'signing_key_path';
const filesAtATime = 4;
/** Behind the name of a file that is being written. */
const unfinished = '.rookery-restoring';

/**
 * Writes the settings' files of a backup to where they lay. What is there already with the same contents stays.
 * @throws CommandError when there is another file in the place of one, before anything is written
 */
export async function restoreSettings({ folder, manifest }: Pick<RestoreJob, 'folder' | 'manifest'>): Promise<number> {
  const missing: { file: StoredFile; data: Buffer }[] = [];
  for (const file of manifest.settings.files) {
    const data = await loadWhole(folder, file);
    const there = await contentsOf(file.path);
    if (there === undefined) missing.push({ file, data });
    else if (!there.equals(data))
      throw new CommandError(
        `${file.path} is there already, and is not that of the backup (${file.setting})\nMove it away, or name your own settings with --config.`,
      );
  }
  for (const { file, data } of missing) await writeFileWhole(file.path, data, file.mode);
  return missing.length;
}

/**
 * Brings a server back into empty places: signing key and what else its settings name, media, database. The database comes last
 * and as a whole, so that one that was interrupted goes on when it is called again.
 * @throws CommandError, DatabaseError when a place is not empty, before anything is written
 */
export async function restoreBackup(job: RestoreJob): Promise<void> {
  const { folder, manifest, config, options, state, clock } = job;
  if (config.serverName !== manifest.serverName) {
    throw new CommandError(
      `The backup is one of ${manifest.serverName}; these settings are for ${config.serverName}, and a server cannot change its name`,
    );
  }
  const kind = options.name === 'sqlite3' ? 'sqlite' : 'postgres';
  if (kind !== manifest.database.kind) {
    throw new CommandError(
      `The backup is one of ${manifest.database.kind === 'sqlite' ? 'SQLite' : 'PostgreSQL'}, and is restored into the same\nAfterwards "rookery move-database" takes it to the other.`,
    );
  }
  if ((manifest.state === undefined) !== (state === undefined)) {
    throw new CommandError(
      `In the backup state ${manifest.state === undefined ? 'lies in the main database' : 'has a database of its own'}, and these settings have it otherwise\nRestore with settings like those of the backup. Afterwards "rookery move-database" moves it.`,
    );
  }
  const files = await missingFiles(job);
  await checkMediaStore(job);
  // That of state comes first: one that is there as a whole was put there by a restore that was interrupted after it.
  const isStateThere = state !== undefined && !(await isEmptyDatabase(state));
  if (!(await isEmptyDatabase(options)) || (isStateThere && !(await isFromBackup(job, state))))
    throw new CommandError('The database is not empty\nGive an empty one, or move it away: nothing is written over.');

  for (const { path, file } of files) await writeFileWhole(path, await loadWhole(folder, file), file.mode);
  await restoreMedia(job);
  for (const one of [options, state])
    if (one?.name === 'sqlite3') await mkdir(dirname(one.path), { recursive: true, mode: 0o700 });
  const all = [...manifest.database.parts, ...(manifest.state?.parts ?? [])];
  const total = all.reduce((sum, { bytes }) => sum + bytes, 0);
  let done = 0;
  const onProgress = (_: string, bytes: number): void => job.onProgress('database', (done += bytes), total);
  if (state !== undefined && manifest.state !== undefined && !isStateThere)
    await loadImage(state, imageParts(folder, manifest.state), {
      onProgress,
      finish: (tx) => markPart(tx, manifest.id),
    });
  await loadImage(options, imageParts(folder, manifest.database), {
    onProgress,
    finish: (tx) => markRestored(tx, clock.nowMs()),
  });
}

async function* imageParts(folder: BackupFolder, { parts }: DatabaseParts): AsyncGenerator<ImagePart> {
  for (const { name, pieces } of parts) yield { name, pieces: load(folder, pieces) };
}

/** Whether a database of state is that of this backup, and nobody has used it since. */
async function isFromBackup({ manifest, clock }: RestoreJob, state: DatabaseOptions): Promise<boolean> {
  const reader = await openReader(state, clock);
  try {
    return reader !== undefined && (await partOf(reader.db)) === manifest.id;
  } finally {
    await reader?.close();
  }
}

/** Files that the settings name, which the backup has and which are not there. */
async function missingFiles(job: RestoreJob): Promise<{ readonly path: string; readonly file: StoredFile }[]> {
  const { folder, manifest, config, onNote } = job;
  const named = namedFiles(config);
  const missing: { path: string; file: StoredFile }[] = [];
  for (const file of manifest.settings.files) {
    const { setting } = file;
    const places = named.filter((each) => each.setting === setting).map((each) => each.path);
    // One file that a setting names is at home where the settings of now have it.
    const isOnly = manifest.settings.files.filter((each) => each.setting === setting).length === 1;
    const isHere = places.some((place) => file.path === place || file.path.startsWith(`${place}${sep}`));
    const path = isHere ? file.path : isOnly && places.length === 1 ? places[0] : undefined;
    if (path === undefined) continue;
    const there = await contentsOf(path);
    if (there === undefined) missing.push({ path, file });
    else if (!there.equals(await loadWhole(folder, file))) {
      if (setting === keySetting)
        throw new CommandError(
          `${path} holds another signing key than the backup: other servers would not know this one any more\nMove it away.`,
        );
      onNote(`${path} stays as it is; the backup has another one (${setting})`);
    }
  }
  return missing;
}

/** @throws CommandError when there is something in the media store that an interrupted restore has not put there */
async function checkMediaStore({ folder, manifest, config }: RestoreJob): Promise<void> {
  const root = config.get('media_store_path');
  const entries = mediaEntries(folder, manifest.media);
  let entry = await entries.next();
  for await (const found of filesOf(root)) {
    if (found.path.endsWith(unfinished)) continue;
    while (!entry.done && comparePaths(entry.value.path, found.path) < 0) entry = await entries.next();
    if (entry.done || entry.value.path !== found.path || entry.value.sizeBytes !== found.sizeBytes)
      throw new CommandError(
        `The media store is not empty: ${join(root, found.path)} is not in the backup\nMove it away, or give another media_store_path.`,
      );
  }
  await entries.return(undefined);
}

async function restoreMedia(job: RestoreJob): Promise<void> {
  const { folder, manifest, config, onProgress } = job;
  const root = resolve(config.get('media_store_path'));
  await mkdir(root, { recursive: true, mode: 0o750 });
  let done = 0;
  const one = async (entry: MediaEntry): Promise<void> => {
    const path = resolve(root, entry.path);
    if (!path.startsWith(`${root}${sep}`))
      throw new CommandError(`The backup has a file outside of the media: ${entry.path}`);
    const there = await stat(path).catch(() => undefined);
    const isThere = there?.size === entry.sizeBytes && Math.trunc(there.mtimeMs) === entry.modifiedMs;
    if (!isThere) await writeMedia(folder, path, entry);
    onProgress('media', (done += entry.sizeBytes), manifest.media.fileBytes);
  };
  let waiting: MediaEntry[] = [];
  for await (const entry of mediaEntries(folder, manifest.media)) {
    waiting.push(entry);
    if (waiting.length < 500) continue;
    await eachLimit(waiting, filesAtATime, one);
    waiting = [];
  }
  await eachLimit(waiting, filesAtATime, one);
}

async function writeMedia(folder: BackupFolder, path: string, entry: MediaEntry): Promise<void> {
  const temporary = `${path}${unfinished}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o750 });
    const file = await open(temporary, 'w', 0o640);
    try {
      for await (const piece of load(folder, entry.pieces)) await file.appendFile(piece);
      await file.datasync();
    } finally {
      await file.close();
    }
    const modified = new Date(entry.modifiedMs);
    await utimes(temporary, modified, modified);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw readable(error, path);
  }
}

async function writeFileWhole(path: string, data: Uint8Array, mode: number): Promise<void> {
  const temporary = `${path}${unfinished}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o755 });
    const file = await open(temporary, 'w', mode);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await chmod(temporary, mode);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw readable(error, path);
  }
}

async function contentsOf(path: string): Promise<Buffer | undefined> {
  if (!existsSync(path)) return undefined;
  try {
    return await readFile(path);
  } catch (error) {
    throw new CommandError(`${path} cannot be read: ${fileProblem(error)}`);
  }
}

function readable(error: unknown, path: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (error instanceof CommandError || code === undefined) return error;
  return new CommandError(`${path} cannot be written: ${fileProblem(error)}`);
}
