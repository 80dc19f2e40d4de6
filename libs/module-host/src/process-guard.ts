import { existsSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Logger } from '@rookery/platform';
import { withoutMark } from './code-files.js';
import { currentOwner, type Owner } from './owner.js';
import { readableError } from './watch.js';

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
function placeOf(url: string): string {
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

/**
 * The module whose code threw an error, as the error's stack tells it: by the innermost frame that belongs to one. Modules may
 * share a folder, so the file of an entry says more than the folder that it lies in; where only that is known, all of them are
 * named.
 */
export function ownerOf(error: unknown, modules: readonly ModuleCode[]): string | undefined {
  const stack = error instanceof Error ? error.stack : undefined;
  if (stack === undefined) return undefined;
  const placed = modules.map(({ url, definition }) => ({
    name: definition.name,
    file: `${fileURLToPath(url)}:`,
    place: placeOf(url),
  }));
  const lies = (line: string, place: string): boolean =>
    line.includes(place) || line.includes(pathToFileURL(place).href);
  for (const line of withoutMark(stack).split('\n')) {
    const byFile = placed.filter(({ file }) => lies(line, file));
    const found = byFile.length > 0 ? byFile : placed.filter(({ place }) => lies(line, place));
    if (found.length > 0) return [...new Set(found.map(({ name }) => name))].join(' or ');
  }
  return undefined;
}

/**
 * Does something with a module's code. When that code ends the process, the last line is about the module, and the process
 * does not pass for one that did its work.
 * @param report writes the line
 */
export async function notEndingTheProcess<T>(owner: Owner, report: () => string, work: () => Promise<T>): Promise<T> {
  const onExit = (): void => {
    // Called by process.exit(), in whose context this runs.
    if (currentOwner() !== owner) return;
    process.exitCode = 1;
    process.stderr.write(`${report()}\n`);
  };
  process.on('exit', onExit);
  const listenAgain = letSignalsEnd();
  try {
    return await work();
  } finally {
    listenAgain();
    process.off('exit', onExit);
  }
}

/** Whether this program is guarded: then what happens to its signals is for us to say. */
let isGuarded = false;
let loading = 0;
let held: readonly (readonly [NodeJS.Signals, readonly Function[]])[] = [];

/**
 * Code that never gives the thread back keeps every listener from running, those of signals as well; without any, the system ends
 * the process by itself. So it is while a module is loaded, at the start or by a reload.
 * @returns what brings the listeners back
 */
function letSignalsEnd(): () => void {
  if (!isGuarded) return () => {};
  if (loading++ === 0) {
    held = (['SIGTERM', 'SIGINT'] as const).map((signal) => [signal, process.rawListeners(signal)]);
    for (const [signal] of held) process.removeAllListeners(signal);
  }
  return () => {
    if (--loading > 0) return;
    for (const [signal, listeners] of held) {
      for (const listener of listeners) process.on(signal, listener as NodeJS.SignalsListener);
    }
    held = [];
  };
}

/**
 * Keeps what modules let escape from ending the process. A promise that is rejected with nobody listening is logged,
 * whoever made it. An exception that nobody caught, an `error` event without a listener among them, is logged when it comes
 * from a module or from anything that a module set going; any other still ends the process.
 * A module that ends the process itself is named, and the process counts as failed. One that hangs while it is loaded does not
 * keep signals from ending the process.
 * For the program, once per process. The result undoes it.
 * @param modules the modules in service, asked when something has escaped where no module is known to have been called
 */
export function guardProcess(modules: () => readonly ModuleCode[], logger: Logger): () => void {
  // These listeners run in the context of what has failed.
  const guilty = (error: unknown): string | undefined => currentOwner()?.name ?? ownerOf(error, modules());
  const onRejection = (error: unknown): void => {
    logger.error('A promise was rejected with nobody listening', { module: guilty(error), err: readableError(error) });
  };
  const onException = (error: unknown): void => {
    const module = guilty(error);
    if (module !== undefined) {
      logger.error('A module threw where nobody could catch it', { module, err: readableError(error) });
      return;
    }
    undo();
    // Nothing of ours is to be trusted now. Thrown again without this listener, it ends the process as it would have.
    setImmediate(() => {
      throw error;
    });
  };
  const onExit = (): void => {
    const module = guilty(new Error());
    if (module === undefined) return;
    process.exitCode = 1;
    logger.error('A module ended the process', { module });
  };
  isGuarded = true;
  const undo = (): void => {
    isGuarded = false;
    process.off('exit', onExit);
    process.off('unhandledRejection', onRejection);
    process.off('uncaughtException', onException);
  };
  process.on('exit', onExit);
  process.on('unhandledRejection', onRejection);
  process.on('uncaughtException', onException);
  return undo;
}
