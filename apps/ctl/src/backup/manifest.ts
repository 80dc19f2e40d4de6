/** Bytes in a backup: the names of the pieces that they are put together from. */
export interface Stored {
  readonly bytes: number;
  readonly pieces: readonly string[];
}

/** A file that settings consist of, or name. */
export interface StoredFile extends Stored {
  /** Where it lay. */
  readonly path: string;
  readonly mode: number;
  /** The setting that names it; `settings` for the files with the settings themselves. */
  readonly setting: string;
}

/** A database in a backup. */
export interface DatabaseParts {
  readonly kind: 'sqlite' | 'postgres';
  readonly parts: readonly (Stored & { readonly name: string })[];
}

/** What a backup consists of. */
export interface Manifest {
  readonly id: string;
  /** When the database was as it is in the backup, milliseconds. */
  readonly madeAtMs: number;
  /** The version of Rookery that made it. */
  readonly madeBy: string;
  readonly serverName: string;
  readonly database: DatabaseParts;
  /** Of the database of state, where that was one of its own. */
  readonly state?: DatabaseParts | undefined;
  /** Lines of {@link MediaEntry}, in the order of {@link comparePaths}. */
  readonly media: Stored & { readonly files: number; readonly fileBytes: number };
  readonly settings: {
    /** As they were given: files and folders. */
    readonly paths: readonly string[];
    readonly files: readonly StoredFile[];
  };
}

/** A file of the media store. */
export interface MediaEntry {
  /** Below the media store, `/` between segments. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
  readonly pieces: readonly string[];
}

/** Order of paths: segment by segment, so that folders come as a whole. */
export function comparePaths(one: string, other: string): number {
  const [left, right] = [one.split('/'), other.split('/')];
  for (let i = 0; i < left.length && i < right.length; i++) {
    const [a, b] = [left[i] as string, right[i] as string];
    if (a !== b) return a < b ? -1 : 1;
  }
  return left.length - right.length;
}

/** All pieces that a manifest names itself; those of media files lie in its index. */
export function* piecesOf({ database, state, media, settings }: Manifest): Generator<string> {
  for (const part of [...database.parts, ...(state?.parts ?? [])]) yield* part.pieces;
  for (const file of settings.files) yield* file.pieces;
  yield* media.pieces;
}
