import { existsSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { modulesFolder } from '@rookery/module-host';
import { type Config, filesAt, readSources, settingNames } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { filesOf } from './media-store.js';

/** A file that belongs to the settings. */
export interface SettingsFile {
  readonly path: string;
  readonly setting: string;
}

/** What the server writes itself, or what is backed up otherwise, or looked into below. */
const notSettings =
  /^(?:media_store_path|backup_media_store_path|media_storage_providers|databases?|database_path|(?:worker_)?pid_file|listeners|redis\.path|saml2_config\.sp_config)(?:\.|$)/;
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
  return [
    ...settingNames
      .filter((name) => !notSettings.test(name))
      .flatMap((setting) => [...textsIn(config.get(setting))].map((path) => ({ path, setting }))),
    ...databaseCertificates(config),
    ...samlFiles(config),
  ].filter(({ path }) => path.startsWith('/') && dirname(path) !== path && !path.includes('\0'));
}

/** What shows who connects to the database, and who answers. */
function databaseCertificates(config: Config): SettingsFile[] {
  const databases = (['database.args', 'databases'] as const).filter((name) => config.isGiven(name));
  return databases.flatMap((setting) =>
    [...textsAt(config.get(setting), /^ssl(?:rootcert|cert|key)$/)].map((path) => ({ path, setting })),
  );
}

/** What the set-up of SAML names; relative paths start at the folder of the settings. */
function samlFiles(config: Config): SettingsFile[] {
  const file = config.get('saml2_config.config_path');
  const inline = config.get('saml2_config.sp_config');
  const setting = inline === undefined ? 'saml2_config.config_path' : 'saml2_config.sp_config';
  const setup: unknown = inline ?? (file === undefined ? undefined : readSources([file]).raw);
  return [...textsAt(setup, /^(?:key_file|cert_file|local)$/)].map((path) => ({
    path: resolve(config.configDir, path),
    setting,
  }));
}

/** The texts below keys of such a name, however deep. */
function* textsAt(value: unknown, name: RegExp): Generator<string> {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, each] of Object.entries(value)) {
    if (name.test(key)) yield* textsIn(each);
    else yield* textsAt(each, name);
  }
}

function* textsIn(value: unknown): Generator<string> {
  if (typeof value === 'string') yield value;
  else if (Array.isArray(value)) for (const each of value) yield* textsIn(each);
  else if (typeof value === 'object' && value !== null) for (const each of Object.values(value)) yield* textsIn(each);
}
