import { type DatabaseOptions, openDatabase, openReader } from '@rookery/database';
import { deleteModuleData, hasModuleData } from '@rookery/module-services';
import { type Config, SystemClock } from '@rookery/platform';
import { databaseOptions } from './database-options.js';

/**
 * Deletes what a module that was removed kept in the database of some settings: its documents, jobs and tables.
 * @param module the name that the module gives itself
 * @returns how many documents there were; `undefined` where the server has never run on this database
 * @throws DatabaseError
 */
export async function forgetModule(config: Config, module: string): Promise<number | undefined> {
  const options = databaseOptions(config);
  // Opening it to write would make one.
  if (!(await isServed(options))) return undefined;
  const database = await openDatabase(options, new SystemClock());
  try {
    return await database.write((tx) => deleteModuleData(tx, module), { name: 'forget_module' });
  } finally {
    await database.close();
  }
}

async function isServed(options: DatabaseOptions): Promise<boolean> {
  const reader = await openReader(options, new SystemClock());
  try {
    return reader !== undefined && (await hasModuleData(reader.db));
  } finally {
    await reader?.close();
  }
}
