import { existsSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { modulesFolder } from '@rookery/module-host';
import { type Config, filesAt, settingNames } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { filesOf } from './media-store.js';

/** A file that belongs to the settings. */
export interface SettingsFile {
  readonly path: string;
  readonly setting: string;
}

/** What the server writes itself, or what is backed up otherwise. */
const notSettings =
  /^(?:media_store_path|backup_media_store_path|media_storage_providers|databases?|database_path|pid_file|listeners|redis\.path)(?:\.|$)/;
/** Which versions of modules are installed: by `rookery module add`, or by npm beside the settings. */
const packageFiles = [modulesFolder, '.'].flatMap((folder) =>
  ['package.json', 'package-lock.json'].map((name) => join(folder, name)),
);
const mostFiles = 2_000;
const mostBytes = 256 * 1_048_576;

/**
 * The files of the settings and those that settings name: signing key, certificates, secrets, registrations, templates.
 * @throws CommandError when there are too many: a setting must name a large folder
 */
export async function settingsFiles(config: Config): Promise<SettingsFile[]> {
  const found = new Map<string, SettingsFile>();
  let bytes = 0;
  const add = (path: string, setting: string): void => {
    if (found.has(path)) return;
    bytes += statSync(path).size;
    if (found.size >= mostFiles || bytes > mostBytes)
      throw new CommandError(`${setting} names too many files, or too large ones, for a part of the settings: ${path}`);
    found.set(path, { path, setting });
  };
  for (const path of config.paths.flatMap((each) => filesAt(each))) add(resolve(path), 'settings');
  for (const name of packageFiles) {
    const path = join(config.configDir, name);
    if (existsSync(path)) add(path, 'modules');
  }
  for (const { path, setting } of namedFiles(config)) {
    const there = statSync(path, { throwIfNoEntry: false });
    if (there?.isFile()) add(path, setting);
    // What modules name is their code, with packages of its own, or what they store.
    else if (there?.isDirectory() && setting !== 'modules')
      for await (const file of filesOf(path)) add(join(path, file.path), setting);
  }
  return [...found.values()];
}

/** Absolute paths that the settings name, whether there is anything or not. */
export function namedFiles(config: Config): SettingsFile[] {
  return settingNames
    .filter((name) => !notSettings.test(name))
    .flatMap((setting) => [...textsIn(config.get(setting))].map((path) => ({ path, setting })))
    .filter(({ path }) => path.startsWith('/') && dirname(path) !== path && !path.includes('\0'));
}

function* textsIn(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  else if (Array.isArray(value)) for (const each of value) yield* textsIn(each);
  else if (typeof value === 'object' && value !== null) for (const each of Object.values(value)) yield* textsIn(each);
}
