import type { DatabaseOptions } from '../options.js';
import type { DatabaseImage, ImagePart, LoadOptions } from './image.js';
import { isEmptySqlite, loadSqliteImage, takeSqliteImage } from './sqlite-image.js';

/**
 * Takes everything that a database holds, as of one moment, while its server goes on. Close it.
 * @throws DatabaseError
 */
export async function takeImage(options: DatabaseOptions): Promise<DatabaseImage> {
  if (options.name === 'sqlite3') return takeSqliteImage(options);
  return (await import('./postgres-image.js')).takePostgresImage(options);
}

/**
 * Puts an image into an empty database of the same kind; it is there as a whole or not at all.
 * @throws DatabaseError when the database is not empty or the image is damaged
 */
export async function loadImage(
  options: DatabaseOptions,
  parts: AsyncIterable<ImagePart>,
  how: LoadOptions = {},
): Promise<void> {
  if (options.name === 'sqlite3') return loadSqliteImage(options, parts, how);
  return (await import('./postgres-image.js')).loadPostgresImage(options, parts, how);
}

/** Whether there is nothing in a database, or no file yet. @throws DatabaseError when it cannot be reached */
export async function isEmptyDatabase(options: DatabaseOptions): Promise<boolean> {
  if (options.name === 'sqlite3') return isEmptySqlite(options);
  return (await import('./postgres-image.js')).isEmptyPostgres(options);
}
