import { existsSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Logger } from '@rookery/platform';
import type { LoadedModule } from './loader.js';

/**
 * Where a module's own code lies: its package's folder, else its file's folder, as far as that does not hold the server, else
 * the one file. Ends of paths are marked, so that no other path begins with them.
 */
function placeOf({ url }: LoadedModule): string {
  const file = fileURLToPath(url);
  const folders = [packageFolder(file), dirname(file)].map((folder) => (folder.endsWith(sep) ? folder : folder + sep));
  return folders.find((folder) => !import.meta.filename.startsWith(folder)) ?? `${file}:`;
}

function packageFolder(file: string): string {
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder;
  }
  return dirname(file);
}

/** The module whose code threw an error, from the error's stack: the innermost frame that belongs to one. */
export function ownerOf(error: unknown, modules: readonly LoadedModule[]): string | undefined {
  const stack = error instanceof Error ? error.stack : undefined;
  if (stack === undefined) return undefined;
  const places = modules.map((module) => ({ name: module.definition.name, place: placeOf(module) }));
  for (const line of stack.split('\n')) {
    const found = places.find(({ place }) => line.includes(place) || line.includes(pathToFileURL(place).href));
    if (found) return found.name;
  }
  return undefined;
}

/**
 * Keeps what modules let escape from ending the process. A promise that is rejected with nobody listening is logged,
 * whoever made it. An exception that nobody caught is logged when it comes from a module; any other still ends the process.
 * For the program, once per process. The result undoes it.
 * @param modules the modules in service, asked when something has escaped
 */
export function guardProcess(modules: () => readonly LoadedModule[], logger: Logger): () => void {
  const onRejection = (error: unknown): void => {
    logger.error('A promise was rejected with nobody listening', { module: ownerOf(error, modules()), err: error });
  };
  const onException = (error: Error): void => {
    const module = ownerOf(error, modules());
    if (module !== undefined) {
      logger.error('A module threw where nobody could catch it', { module, err: error });
      return;
    }
    undo();
    // Nothing of ours is to be trusted now. Thrown again without this listener, it ends the process as it would have.
    setImmediate(() => {
      throw error;
    });
  };
  const undo = (): void => {
    process.off('unhandledRejection', onRejection);
    process.off('uncaughtException', onException);
  };
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtException', onException);
  return undo;
}
