import { type DatabaseOptions, parseDatabaseOptions } from '@rookery/database';
import { type Config, settingError } from '@rookery/platform';
import { resolve } from 'node:path';

/** The main database of the settings; a file of SQLite is looked for beside them. @throws DatabaseError */
export function databaseOptions(config: Config): DatabaseOptions {
  return optionsIn(config, {
    name: config.get('database.name'),
    args: config.get('database.args'),
    txn_limit: config.get('database.txn_limit'),
    allow_unsafe_locale: config.get('database.allow_unsafe_locale'),
  });
}

/** The database of state, where the settings give it one of its own. @throws DatabaseError */
export function stateDatabaseOptions(config: Config): DatabaseOptions | undefined {
  const entry = Object.values(config.get('databases') ?? {}).find(
    ({ data_stores: held }) => held.includes('state') && !held.includes('main'),
  );
  return entry && optionsIn(config, { ...entry });
}

function optionsIn(config: Config, section: Readonly<Record<string, unknown>>): DatabaseOptions {
  const options = parseDatabaseOptions(section);
  return options.name === 'sqlite3' ? { ...options, path: resolve(config.configDir, options.path) } : options;
}

/** @throws ConfigError when several processes are to share a database that serves one only */
export function checkShareable(config: Config): void {
  if (databaseOptions(config).name !== 'sqlite3') return;
  const message = 'several processes need PostgreSQL (database.name: psycopg2): SQLite serves one only';
  throw settingError(config, 'redis.enabled', [], message);
}
