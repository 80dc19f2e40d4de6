import type { Db, Tx } from '@rookery/database';
import { handlerPrefixes } from '../jobs/jobs.js';

/** Whether a database has the tables in which modules keep something: the server has run on it. */
export async function hasModuleData(db: Db): Promise<boolean> {
  const found = await db.get(
    db.dialect.name === 'sqlite'
      ? `SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'module_documents'`
      : `SELECT tablename AS name FROM pg_tables WHERE tablename = 'module_documents' AND schemaname = current_schema()`,
  );
  return found !== undefined;
}

/**
 * Forgets everything that a module kept: documents, jobs, its own tables. For a module that was removed and will not come
 * back; a module that runs would miss it.
 * @returns how many documents there were
 */
export async function deleteModuleData(tx: Tx, module: string): Promise<number> {
  const documents = await tx.run('DELETE FROM module_documents WHERE module = ?', [module]);
  for (const prefix of handlerPrefixes(module)) {
    await tx.run('DELETE FROM module_jobs WHERE substr(handler, 1, ?) = ?', [prefix.length, prefix]);
  }
  const tables = await tx.query<{ table_name: string }>('SELECT table_name FROM module_tables WHERE module_name = ?', [
    module,
  ]);
  // A module's tables are as few as its migrations; the names were checked when they were made.
  for (const { table_name: name } of tables) await tx.run(`DROP TABLE IF EXISTS "${name}"`);
  await tx.run('DELETE FROM module_tables WHERE module_name = ?', [module]);
  await tx.run('DELETE FROM applied_module_schemas WHERE module_name = ?', [module]);
  return documents;
}
