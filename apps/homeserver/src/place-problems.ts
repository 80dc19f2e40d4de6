import { accessSync, constants, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { servesMedia } from '@rookery/media';
import {
  type Config,
  type ConfigProblem,
  fileProblem,
  loggerOptions,
  type SettingName,
  settingProblem,
} from '@rookery/platform';
import { databaseOptions, stateDatabaseOptions } from './database-options.js';
import { isLoopback } from './manhole.js';

/** A setting, and the place inside of it. */
export type SettingPlace = readonly [name: SettingName, path: readonly (string | number)[]];

/**
 * What a start would not get of the system: files that it writes from the beginning (logs, process id, database), and addresses that
 * this machine does not have. Nothing is made or changed, and ports that are in use are no problem: the server may run already.
 */
export async function placeProblems(config: Config): Promise<readonly ConfigProblem[]> {
  const problems = [...mediaFolderProblems(config)];
  for (const [place, what, file] of writtenFiles(config)) {
    const reason = whyNotWritable(file);
    if (reason !== undefined)
      problems.push(settingProblem(config, ...place, `cannot write ${what} ${file}: ${reason}`));
  }
  const isWorker = config.get('worker_app') !== undefined;
  const name = isWorker ? 'worker_listeners' : 'listeners';
  for (const [index, { type, path, bind_addresses: hosts = [] }] of config.get(name).entries()) {
    if (path !== undefined) {
      const reason = whyNoSocket(path);
      if (reason !== undefined)
        problems.push(settingProblem(config, name, [index, 'path'], `cannot listen on ${path}: ${reason}`));
    }
    for (const host of hosts) {
      const place = [name, [index, 'bind_addresses']] as const;
      if (type === 'manhole' && !isLoopback(host))
        problems.push(settingProblem(config, ...place, `a manhole listens on loopback addresses only, not on ${host}`));
      // Without IPv6 a listener serves what there is.
      else if (host !== '::' && !(await isAddressHere(host)))
        problems.push(settingProblem(config, ...place, `cannot listen on ${host}: this machine has no such address`));
    }
  }
  return problems;
}

/** Why media could not be stored: found out with the first upload it would be too late. */
export function mediaFolderProblems(config: Config): readonly ConfigProblem[] {
  if (!servesMedia(config)) return [];
  const folder = config.get('media_store_path');
  const reason = whyNotWritable(join(folder, 'local_content'), true);
  if (reason === undefined) return [];
  return [settingProblem(config, 'media_store_path', [], `cannot write to ${folder}: ${reason}`)];
}

function writtenFiles(config: Config): readonly (readonly [SettingPlace, what: string, file: string])[] {
  const isWorker = config.get('worker_app') !== undefined;
  const { file, outputs = [], named = {} } = loggerOptions(config);
  const logs = [{ file }, ...outputs, ...Object.values(named).flatMap((one) => one.outputs)];
  const logConfig =
    isWorker && config.get('worker_log_config') !== undefined ? 'worker_log_config' : ('log_config' as const);
  const pid = isWorker ? 'worker_pid_file' : 'pid_file';
  const database = databaseOptions(config);
  const state = stateDatabaseOptions(config);
  const found: (readonly [SettingName, string, string | undefined])[] = [
    ...[...new Set(logs.map((one) => one.file))].map((log) => [logConfig, 'the log', log] as const),
    [pid, 'the process id', config.get(pid)],
    ['database.args', 'the database', database.name === 'sqlite3' ? database.path : undefined],
    ['databases', 'the database of state', state?.name === 'sqlite3' ? state.path : undefined],
  ];
  return found.flatMap(([name, what, path]) =>
    path === undefined || path === ':memory:' ? [] : [[[name, []], what, path] as const],
  );
}

/** Why a file, or the files of a folder, could not be written, whose folders are made where they are missing; `undefined` when it could. */
function whyNotWritable(file: string, isFolder = false): string | undefined {
  for (let place = file; ; place = dirname(place)) {
    try {
      const stats = statSync(place);
      if (place === file && !isFolder && !stats.isFile()) return stats.isDirectory() ? 'it is a folder' : undefined;
      if ((place !== file || isFolder) && !stats.isDirectory()) return 'a part of the path is not a folder';
      accessSync(place, constants.W_OK);
      return undefined;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if ((code !== 'ENOENT' && code !== 'ENOTDIR') || place === dirname(place)) return fileProblem(error);
    }
  }
}

function whyNoSocket(path: string): string | undefined {
  try {
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats !== undefined && !stats.isSocket()) return 'a file of that name is in the way';
    if (!statSync(dirname(path)).isDirectory()) return 'a part of the path is not a folder';
    accessSync(dirname(path), constants.W_OK);
    return undefined;
  } catch (error) {
    return fileProblem(error);
  }
}

/** Whether this machine has an address: a port of the system's choice can be bound there. */
function isAddressHere(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host, port: 0 }, () => server.close(() => resolve(true)));
  });
}
