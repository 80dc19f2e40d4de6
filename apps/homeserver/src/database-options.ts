import { type DatabaseOptions, parseDatabaseOptions } from '@rookery/database';
import { type Config, settingError } from '@rookery/platform';
import { resolve } from 'node:path';

/** The main database of the settings; a file of SQLite is looked for beside them. @throws DatabaseError */
export function databaseOptions(config: Config): DatabaseOptions {
  const [name] = entryWith(config, 'main') ?? [];
  const section = {
    name: config.get('database.name'),
    args: config.get('database.args'),
    txn_limit: config.get('database.txn_limit'),
    allow_unsafe_locale: config.get('database.allow_unsafe_locale'),
  };
  return optionsIn(config, section, name === undefined ? 'database' : `databases.${name}`);
}

/** The database of state, where the settings give it one of its own. @throws DatabaseError */
export function stateDatabaseOptions(config: Config): DatabaseOptions | undefined {
  const [name, entry] = entryWith(config, 'state') ?? [];
  if (entry === undefined || entry.data_stores.includes('main')) return undefined;
  return optionsIn(config, { ...entry }, `databases.${name}`);
}

/** The database of several that holds something, by name. */
const entryWith = (config: Config, store: 'main' | 'state') =>
  Object.entries(config.get('databases') ?? {}).find(([, { data_stores: held }]) => held.includes(store));

function optionsIn(config: Config, section: Readonly<Record<string, unknown>>, setting: string): DatabaseOptions {
  const options = parseDatabaseOptions(section, setting);
  return options.name === 'sqlite3' ? { ...options, path: resolve(config.configDir, options.path) } : options;
}

/** @throws SettingsError when several processes are to share a database that serves one only */
export function checkShareable(config: Config): void {
  if (databaseOptions(config).name !== 'sqlite3') return;
  const message = 'several processes need PostgreSQL (database.name: psycopg2): SQLite serves one only';
  throw settingError(config, 'redis.enabled', [], message);
}
