import { createReadStream } from 'node:fs';
import { copyFile, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import type { MediaFileInfo, MediaStorageProvider } from '@rookery/module-api';

/** Whether a file operation failed because nothing is there. */
export const isMissing = (error: unknown): boolean =>
  ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException | undefined)?.code ?? '');

/**
 * The absolute path of a file below a folder.
 * @throws Error when the path would leave the folder
 */
export function pathBelow(folder: string, path: string): string {
  const full = resolve(folder, path);
  if (!full.startsWith(resolve(folder) + sep)) throw new Error('The path of a file leaves its folder');
  return full;
}

/** Makes what was written to a file durable. @throws Error where the disk does not take it */
export async function syncFile(path: string): Promise<void> {
  const handle = await open(path, 'r+');
  await handle.sync().finally(() => handle.close());
}

/** Makes what is in a folder durable; systems that cannot sync a folder do it by themselves. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r').catch(() => undefined);
  await handle?.sync().catch(() => undefined);
  await handle?.close();
}

/** The built-in provider `file_system`: another folder, for example on a network drive. */
export class FileSystemProvider implements MediaStorageProvider {
  #count = 0;

  /** @param directory absolute path; made where it is missing */
  constructor(private readonly directory: string) {}

  async storeFile(path: string, _info: MediaFileInfo, localPath: string): Promise<void> {
    const target = pathBelow(this.directory, path);
    const made = await mkdir(dirname(target), { recursive: true });
    // Nobody may find half a file.
    const partial = `${target}.${process.pid}-${++this.#count}.partial`;
    try {
      await copyFile(localPath, partial);
      await syncFile(partial);
      await rename(partial, target);
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
    // So far up as folders are new: a file is lost with the folder that it lies in.
    const last = made === undefined ? dirname(target) : dirname(made);
    for (let folder = dirname(target); ; folder = dirname(folder)) {
      await syncFolder(folder);
      if (folder === last || folder === dirname(folder)) break;
    }
  }

  async fetch(path: string): Promise<AsyncIterable<Uint8Array> | undefined> {
    const source = pathBelow(this.directory, path);
    const found = await stat(source).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    return found?.isFile() ? createReadStream(source) : undefined;
  }

  async remove(path: string): Promise<void> {
    await rm(pathBelow(this.directory, path), { force: true });
  }
}

/** The provider from the `config` of its setting. @throws Error when it names no folder */
export function fileSystemProvider(config: unknown, baseDir: string): FileSystemProvider {
  const directory = (config as { readonly directory?: unknown } | null | undefined)?.directory;
  if (typeof directory !== 'string' || directory === '') throw new Error("'config.directory' must name a folder");
  return new FileSystemProvider(join(resolve(baseDir, directory)));
}
