import { type DatabaseOptions, parseDatabaseOptions } from '@rookery/database';
import type { Config } from '@rookery/platform';
import { resolve } from 'node:path';

/** The database of the settings; a file of SQLite is looked for beside them. @throws DatabaseError */
export function databaseOptions(config: Config): DatabaseOptions {
  const options = parseDatabaseOptions({
    name: config.get('database.name'),
    args: config.get('database.args'),
    txn_limit: config.get('database.txn_limit'),
    allow_unsafe_locale: config.get('database.allow_unsafe_locale'),
  });
  return options.name === 'sqlite3' ? { ...options, path: resolve(config.configDir, options.path) } : options;
}
