import { closeSync, existsSync, openSync } from 'node:fs';
import { chmod, type FileHandle, open, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import Sqlite from 'better-sqlite3';
import { SystemClock } from '@rookery/platform';
import { lockBeside } from '../claim/sqlite-claim.js';
import { DatabaseError, errorText } from '../errors.js';
import { openDatabase } from '../open-database.js';
import type { SqliteOptions } from '../options.js';
import { type DatabaseImage, type ImagePart, type LoadOptions, pieceBytes } from './image.js';
import { notEmpty } from './not-empty.js';

const ownerOnly = 0o600;
const pagesAtATime = 2_000;
const busyMs = 60_000;
/** Beside the database, so that what it holds lies nowhere else for a while. */
const copySuffix = '.backup-copy';
const lockSuffix = '.backup.lock';
const restoringSuffix = '.restoring';
const ownPart = 'file';

/**
 * Takes everything as of this moment, while others go on reading and writing: first as a copy beside the file, which needs as
 * much space on the disk and is removed at the end. One at a time: two would take each other's copy away.
 * @throws DatabaseError
 */
export async function takeSqliteImage(options: SqliteOptions): Promise<DatabaseImage> {
  const { path } = options;
  if (!existsSync(path)) throw new DatabaseError(`There is no database ${path}`, 'Is that where the settings lead?');
  const lock = await lockBeside(options, lockSuffix);
  if ('heldBy' in lock)
    throw new DatabaseError(`Another backup of ${path} is being made`, 'Wait until it is done, then try again.');
  const copy = `${path}${copySuffix}`;
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (!isOpen) return;
    isOpen = false;
    await removeCopy(copy).finally(() => lock.release());
  };
  try {
    await removeCopy(copy);
    await makeCopy(path, copy);
    const sizeBytes = (await stat(copy)).size;
    return { kind: 'sqlite', sizeBytes, parts: () => partsOf(copy), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function removeCopy(copy: string): Promise<void> {
  for (const file of [copy, `${copy}-journal`, `${copy}-wal`, `${copy}-shm`]) await rm(file, { force: true });
}

async function makeCopy(path: string, copy: string): Promise<void> {
  const needed = (await stat(path)).size;
  const { bavail, bsize } = await statfs(dirname(path));
  if (bavail * bsize < needed) {
    throw new DatabaseError(
      `There is too little space beside ${path}: its copy needs ${needed} bytes, ${bavail * bsize} are free`,
      'Make space there. The copy is removed once it is in the backup.',
    );
  }
  try {
    closeSync(openSync(copy, 'wx', ownerOnly));
    const source = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: busyMs });
    try {
      // While it reads, the copy stays at this moment: else each write of others would make it begin anew.
      source.exec('BEGIN');
      source.prepare('SELECT count(*) FROM sqlite_master').get();
      await source.backup(copy, { progress: () => pagesAtATime });
      source.exec('ROLLBACK');
    } finally {
      source.close();
    }
  } catch (error) {
    throw new DatabaseError(`The database ${path} cannot be copied: ${errorText(error)}`, undefined, { cause: error });
  }
}

async function* partsOf(copy: string): AsyncGenerator<ImagePart> {
  yield { name: ownPart, pieces: readPieces(copy) };
}

async function* readPieces(path: string): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r');
  try {
    for (let at = 0; ;) {
      const piece = Buffer.alloc(pieceBytes);
      const bytes = await fill(file, piece, at);
      if (bytes === 0) return;
      at += bytes;
      yield piece.subarray(0, bytes);
    }
  } finally {
    await file.close();
  }
}

async function fill(file: FileHandle, buffer: Buffer, at: number): Promise<number> {
  let filled = 0;
  while (filled < buffer.length) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, at + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}

/**
 * Puts an image where no file is yet. It gets its name when it is whole, checked and on the disk.
 * @throws DatabaseError when there is a file
 */
export async function loadSqliteImage(
  { path }: SqliteOptions,
  parts: AsyncIterable<ImagePart>,
  { finish, onProgress }: LoadOptions,
): Promise<void> {
  if (!isEmptySqlite({ name: 'sqlite3', path })) throw notEmpty();
  const made = `${path}${restoringSuffix}`;
  const leftOvers = [`${made}-wal`, `${made}-shm`, `${made}.lock`];
  for (const file of [made, ...leftOvers]) await rm(file, { force: true });
  const file = await open(made, 'wx', ownerOnly);
  try {
    for await (const { name, pieces } of parts) {
      for await (const piece of pieces) {
        await file.appendFile(piece);
        onProgress?.(name, piece.length);
      }
    }
    await file.sync();
  } finally {
    await file.close();
  }
  await chmod(made, ownerOnly);
  const database = await openDatabase({ name: 'sqlite3', path: made }, new SystemClock());
  try {
    const verdict = await database.get<{ quick_check: string }>('PRAGMA quick_check(1)');
    if (verdict?.quick_check !== 'ok')
      throw new DatabaseError(`The database of the backup is damaged: ${verdict?.quick_check ?? 'no answer'}`);
    if (finish !== undefined) await database.write(finish, { name: 'restore_finish', limitMs: Infinity });
  } finally {
    await database.close();
  }
  for (const left of leftOvers) await rm(left, { force: true });
  await rename(made, path);
  const folder = await open(dirname(path), 'r');
  await folder.sync().finally(() => folder.close());
}

/** Whether there is no file yet. */
export const isEmptySqlite = ({ path }: SqliteOptions): boolean => !existsSync(path) && !existsSync(`${path}-wal`);
