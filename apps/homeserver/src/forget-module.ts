import { openDatabase } from '@rookery/database';
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
  const database = await openDatabase(databaseOptions(config), new SystemClock());
  try {
    if (!(await hasModuleData(database))) return undefined;
    return await database.write((tx) => deleteModuleData(tx, module), { name: 'forget_module' });
  } finally {
    await database.close();
  }
}
