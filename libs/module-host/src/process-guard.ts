import { existsSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Logger } from '@rookery/platform';

/** What tells code of a module from other code. */
interface ModuleCode {
  /** `file:` URL of its entry. */
  readonly url: string;
  readonly definition: { readonly name: string };
}

/**
 * Where a module's own code lies: its package's folder, else its file's folder, as far as that does not hold the server, else
 * the one file. Ends of paths are marked, so that no other path begins with them.
 */
function placeOf({ url }: Pick<ModuleCode, 'url'>): string {
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
export function ownerOf(error: unknown, modules: readonly ModuleCode[]): string | undefined {
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
 * Does something with a module's code. When that code ends the process, the last line is about the module, and the process
 * does not pass for one that did its work.
 * @param report writes the line
 */
export async function notEndingTheProcess<T>(url: string, report: () => string, work: () => Promise<T>): Promise<T> {
  const onExit = (): void => {
    // Called by process.exit(), so whoever called that is still on the stack.
    if (ownerOf(new Error(), [{ url, definition: { name: '' } }]) === undefined) return;
    process.exitCode = 1;
    process.stderr.write(`${report()}\n`);
  };
  process.on('exit', onExit);
  try {
    return await work();
  } finally {
    process.off('exit', onExit);
  }
}

/**
 * Keeps what modules let escape from ending the process. A promise that is rejected with nobody listening is logged,
 * whoever made it. An exception that nobody caught is logged when it comes from a module; any other still ends the process.
 * A module that ends the process itself is named, and the process counts as failed.
 * For the program, once per process. The result undoes it.
 * @param modules the modules in service, asked when something has escaped
 */
export function guardProcess(modules: () => readonly ModuleCode[], logger: Logger): () => void {
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
  const onExit = (): void => {
    const module = ownerOf(new Error(), modules());
    if (module === undefined) return;
    process.exitCode = 1;
    logger.error('A module ended the process', { module });
  };
  const undo = (): void => {
    process.off('exit', onExit);
    process.off('unhandledRejection', onRejection);
    process.off('uncaughtException', onException);
  };
  process.on('exit', onExit);
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtException', onException);
  return undo;
}
