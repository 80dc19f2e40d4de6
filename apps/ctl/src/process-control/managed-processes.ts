import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Config, fileProblem, loadConfig } from '@rookery/platform';
import { writtenSettings } from '../written-settings.js';
import { CommandError } from '../command-error.js';

/** A process that is started and stopped by its settings. */
export interface ManagedProcess {
  /** For people: `homeserver`, or what a worker is called. */
  readonly name: string;
  /** Settings files, in the order in which it gets them. */
  readonly files: readonly string[];
  readonly pidFile: string;
}

const defaultMain = 'homeserver.yaml';

/**
 * The processes that a call is about, the main process first.
 * @param given settings files as they were given: that of the main process, `homeserver.yaml` unless told, and behind it those
 *   of the workers that alone are meant
 * @throws CommandError when a file names none, or no place for its process id
 */
export function managedProcesses(
  given: readonly string[],
  { worker, allProcesses: folder }: { readonly worker?: string; readonly allProcesses?: string },
): ManagedProcess[] {
  const [first = defaultMain] = given;
  const [main, positional] = isOfWorker(first) ? [defaultMain, given] : [first, given.slice(1)];
  const workers = [...positional, ...(worker === undefined ? [] : [worker])];
  if (workers.length > 0 && folder !== undefined)
    throw new CommandError('Either all processes or those of the files that are named', 2);
  if (workers.length > 0) return workers.map((file) => managed([main, file]));
  if (folder === undefined) return [managed([main])];
  const files = yamlFilesIn(folder).filter((file) => resolve(file) !== resolve(main));
  return [managed([main]), ...files.map((file) => managed([main, file]))];
}

/** Whether a file has the settings of a worker alone. What it has else is looked at when it is loaded. */
function isOfWorker(file: string): boolean {
  if (!existsSync(file)) return false;
  const find = writtenSettings([file]);
  return find('worker_app') !== undefined && find('server_name') === undefined;
}

function yamlFilesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /\.ya?ml$/.test(name))
      .sort()
      .map((name) => join(folder, name));
  } catch (error) {
    throw new CommandError(`${folder} cannot be read: ${fileProblem(error)}`);
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
