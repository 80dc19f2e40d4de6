import { DatabaseError } from '@rookery/database';
import { ListenError } from '@rookery/http';
import {
  type Config,
  SettingsError,
  type ConfigProblem,
  type SettingName,
  settingNames,
  settingProblem,
} from '@rookery/platform';
import { Homeserver } from './create-homeserver.js';
import { checkShareable } from './database-options.js';
import { placeProblems, type SettingPlace } from './place-problems.js';
import { checkRedisOptions } from './processes/redis-options.js';
import { startupMessage } from './startup-error.js';

/**
 * What would end a start with settings that can be read: files that cannot be written and addresses that this machine does not have,
 * all of them; of the rest the first, found by building a server that is thrown away. Modules are not loaded, the database is not
 * opened, and no port of the settings is bound. Each problem names the setting behind it, as far as that can be told.
 */
export async function startProblems(config: Config): Promise<readonly ConfigProblem[]> {
  try {
    const problems = await placeProblems(config);
    if (problems.length > 0) return problems;
    if (config.get('redis.enabled')) {
      checkRedisOptions(config);
      checkShareable(config);
    }
    await Homeserver.rehearse(config);
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    const [message = ''] = (startupMessage(error) ?? String(error)).split('\n');
    const place = placeOf(config, error, message);
    return [
      place ? settingProblem(config, ...place, message) : { level: 'error', where: undefined, setting: '', message },
    ];
  }
}

/** The setting that a message is about, where it does not say so itself. */
function placeOf(config: Config, error: unknown, message: string): SettingPlace | undefined {
  if (/^\S+:\d+: /.test(message)) return undefined;
  if (error instanceof DatabaseError) {
    const entry = Object.keys(config.get('databases') ?? {}).find((one) => message.includes(`databases.${one}.`));
    if (entry !== undefined) return ['databases', [entry]];
    const names: readonly SettingName[] = ['database.args', 'databases', 'database.name'];
    const name = names.find((one) => config.isGiven(one));
    return name && [name, []];
  }
  // The longest: a file rather than the folder in which it lies.
  let found: { readonly place: SettingPlace; readonly file: string } | undefined;
  for (const name of settingNames) {
    if (!config.isGiven(name)) continue;
    for (const one of filesIn(config.get(name), [])) {
      if (message.includes(one.file) && one.file.length > (found?.file.length ?? 0))
        found = { place: [name, one.path], file: one.file };
    }
  }
  if (found) return found.place;
  return error instanceof ListenError && config.isGiven('tls_certificate_path')
    ? ['tls_certificate_path', []]
    : undefined;
}

/** The files and folders that a setting names: its absolute paths. */
function* filesIn(
  value: unknown,
  path: readonly (string | number)[],
): Generator<{ readonly file: string; readonly path: readonly (string | number)[] }> {
  if (typeof value === 'string') {
    if (value.startsWith('/') && value.length > 1) yield { file: value, path };
  } else if (Array.isArray(value)) {
    for (const [index, one] of value.entries()) yield* filesIn(one, [...path, index]);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, one] of Object.entries(value)) yield* filesIn(one, [...path, key]);
  }
}
