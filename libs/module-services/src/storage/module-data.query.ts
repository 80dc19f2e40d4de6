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
  // Their names were checked when they were made.
  await dropTogether(
    tx,
    tables.map(({ table_name: name }) => `"${name}"`),
  );
  await tx.run('DELETE FROM module_tables WHERE module_name = ?', [module]);
  await tx.run('DELETE FROM applied_module_schemas WHERE module_name = ?', [module]);
  return documents;
}

/** Drops tables that may refer to each other. */
async function dropTogether(tx: Tx, tables: readonly string[]): Promise<void> {
  if (tables.length === 0) return;
  if (tx.dialect.name === 'postgres') return void (await tx.run(`DROP TABLE IF EXISTS ${tables.join(', ')}`));
  // It drops one at a time: what refers to rows that are gone is looked for at the end of the transaction, when nothing does.
  await tx.run('PRAGMA defer_foreign_keys = ON');
  for (const table of tables) await tx.run(`DROP TABLE IF EXISTS ${table}`);
}
