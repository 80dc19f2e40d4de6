import type { Db, Tx } from '@rookery/database';

/** The steps that a module has taken. */
export async function appliedSteps(db: Db, module: string): Promise<ReadonlySet<string>> {
  const rows = await db.query<{ file: string }>('SELECT file FROM applied_module_schemas WHERE module_name = ?', [
    module,
  ]);
  return new Set(rows.map(({ file }) => file));
}

/** Two processes that start together must not take a step twice. Any fixed number that nobody else uses will do. */
const advisoryLock = 7_246_502;

/** Holds off other processes that take steps until the transaction ends. */
export async function lockSteps(tx: Tx): Promise<void> {
  if (tx.dialect.name === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(?)', [advisoryLock]);
}

/** Any fixed number that nobody else uses will do. */
const writesClass = 7_246_505;

/** Holds off other transactions of the module that write, in whichever process, until this one ends. */
export async function lockWrites(tx: Tx, module: string): Promise<void> {
  if (tx.dialect.name === 'postgres')
    await tx.query('SELECT pg_advisory_xact_lock(?, hashtext(?))', [writesClass, module]);
}

/** Whether a module has taken a step. */
export async function isApplied(db: Db, module: string, step: string): Promise<boolean> {
  const known = 'SELECT 1 AS found FROM applied_module_schemas WHERE module_name = ? AND file = ?';
  return (await db.get(known, [module, step])) !== undefined;
}

export async function insertStep(tx: Tx, module: string, step: string): Promise<void> {
  await tx.run('INSERT INTO applied_module_schemas (module_name, file) VALUES (?, ?)', [module, step]);
}

/** Writes down whose a table is. @returns false where it is another module's */
export async function takeTable(tx: Tx, module: string, table: string): Promise<boolean> {
  const mine = await tx.run(
    `INSERT INTO module_tables (table_name, module_name) VALUES (?, ?) ON CONFLICT (table_name) DO UPDATE
       SET module_name = excluded.module_name WHERE module_tables.module_name = excluded.module_name`,
    [table, module],
  );
  return mine > 0;
}

/** The table is gone. */
export async function releaseTable(tx: Tx, table: string): Promise<void> {
  await tx.run('DELETE FROM module_tables WHERE table_name = ?', [table]);
}
