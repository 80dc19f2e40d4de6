import { readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Config, loadConfig } from '@rookery/platform';
import { because } from '../replace-file.js';
import { CommandError } from '../command-error.js';

/** A process that is started and stopped by its settings. */
export interface ManagedProcess {
  /** For people: `homeserver`, or what a worker is called. */
  readonly name: string;
  /** Settings files, in the order in which it gets them. */
  readonly files: readonly string[];
  readonly pidFile: string;
}

/**
 * The processes that a call is about, the main process first.
 * @throws CommandError when a file names none, or no place for its process id
 */
export function managedProcesses(
  main: string,
  { worker, allProcesses: folder }: { readonly worker?: string; readonly allProcesses?: string },
): ManagedProcess[] {
  if (worker !== undefined) return [managed([main, worker])];
  if (folder === undefined) return [managed([main])];
  const files = yamlFilesIn(folder).filter((file) => resolve(file) !== resolve(main));
  return [managed([main]), ...files.map((file) => managed([main, file]))];
}

function yamlFilesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /\.ya?ml$/.test(name))
      .sort()
      .map((name) => join(folder, name));
  } catch (error) {
    throw new CommandError(`${folder} cannot be read: ${because(error)}`);
  }
}

function managed(files: readonly string[]): ManagedProcess {
  const config: Config = loadConfig(files);
  const isWorker = files.length > 1;
  const setting = isWorker ? 'worker_pid_file' : 'pid_file';
  const pidFile = config.get(setting);
  const last = files.at(-1) ?? '';
  if (isWorker && config.get('worker_app') === undefined)
    throw new CommandError(`${last} has no worker_app: these are not the settings of a worker`);
  if (pidFile === undefined)
    throw new CommandError(`Set ${setting} in ${last}, so that the process can be found again`);
  const name = isWorker ? (config.get('worker_name') ?? config.get('worker_app') ?? last) : 'homeserver';
  return { name, files: files.map((file) => resolve(file)), pidFile };
}
