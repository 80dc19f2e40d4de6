import type { Dirent } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';

/** A file as it lies in the media store. */
export interface FoundFile {
  /** Below the media store, `/` between segments. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
}

/** In here lies what is not part of anything yet. */
const staging = 'tmp';
const pieceBytes = 4 * 1_048_576;
const mostDepth = 20;

/** The files of a media store, in the order of their paths; none where there is no such folder. */
export async function* filesOf(root: string, below = '', depth = 0): AsyncGenerator<FoundFile> {
  for (const entry of await entriesOf(join(root, below), below === '')) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    if (path === staging) continue;
    // Folders may be links to another disk.
    const found = await stat(join(root, path)).catch(() => undefined);
    if (found?.isDirectory() && depth < mostDepth) yield* filesOf(root, path, depth + 1);
    else if (found?.isFile()) yield { path, sizeBytes: found.size, modifiedMs: Math.trunc(found.mtimeMs) };
  }
}

async function entriesOf(folder: string, isRoot: boolean): Promise<Dirent[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.sort((one, other) => (one.name < other.name ? -1 : 1));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // It may have gone since its own folder was read.
    if (code === 'ENOENT') return [];
    throw new CommandError(`${isRoot ? 'The media store ' : ''}${folder} cannot be read: ${fileProblem(error)}`);
  }
}

/** A file's contents; nothing when it has gone meanwhile. @throws CommandError when it cannot be read */
export async function openPieces(path: string): Promise<AsyncIterable<Uint8Array> | undefined> {
  const file = await open(path, 'r').catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new CommandError(`${path} cannot be read: ${fileProblem(error)}`);
  });
  if (file === undefined) return undefined;
  return (async function* () {
    try {
      for (;;) {
        const piece = Buffer.allocUnsafe(pieceBytes);
        let filled = 0;
        for (let got = -1; got !== 0 && filled < pieceBytes; filled += got)
          got = (await file.read(piece, filled, pieceBytes - filled)).bytesRead;
        if (filled > 0) yield piece.subarray(0, filled);
        if (filled < pieceBytes) return;
      }
    } finally {
      await file.close();
    }
  })();
}
