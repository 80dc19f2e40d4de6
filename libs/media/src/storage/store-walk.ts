import { type Dirent } from 'node:fs';
import { opendir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Media } from '../records/media.js';
import { foldersBelow, ownerOf, type StoreTree } from './file-place.js';
import { isMissing } from './file-system-provider.js';

/** A file of the store, or the folder of a file's thumbnails. */
export interface StoreEntry {
  readonly owner: Pick<Media, 'origin' | 'fileId' | 'urlCache'>;
  /** Relative to the media store. */
  readonly path: string;
}

/** What lies in the store is not read all at once: a folder at a time, and of that a few names. */
const namesAtOnce = 64;

/** Everything in a tree of the store whose name the server would give; of a store that is still being filled, what is met. */
export async function* entriesOf(root: string, tree: StoreTree): AsyncGenerator<StoreEntry> {
  for await (const first of namesIn(join(root, tree.folder))) {
    if (first.isDirectory()) yield* below(root, tree, [first.name], foldersBelow(tree, first.name));
  }
}

async function* below(
  root: string,
  tree: StoreTree,
  segments: readonly string[],
  folders: number,
): AsyncGenerator<StoreEntry> {
  for await (const found of namesIn(join(root, tree.folder, ...segments))) {
    const inside = [...segments, found.name];
    if (folders > 0) {
      if (found.isDirectory()) yield* below(root, tree, inside, folders - 1);
      continue;
    }
    const owner = ownerOf(tree, inside);
    if (owner !== undefined && found.isDirectory() === tree.thumbnails)
      yield { owner, path: `${tree.folder}/${inside.join('/')}` };
  }
}

/** A file's size and when it was written; `undefined` when it is not there any more, or is none. */
export async function fileFacts(
  path: string,
): Promise<{ readonly sizeBytes: number; readonly writtenTs: number } | undefined> {
  const found = await stat(path).catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
  return found?.isFile() ? { sizeBytes: found.size, writtenTs: found.mtimeMs } : undefined;
}

/** Names in a folder; none where it is not there, or goes meanwhile. */
export async function* namesIn(folder: string): AsyncGenerator<Dirent> {
  try {
    yield* await opendir(folder, { bufferSize: namesAtOnce });
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}
