import type { Tx } from '../database.js';
import type { PostgresOptions } from '../options.js';
import { hasTable } from '../schema-state.js';
import type { ProcessOptions, ProcessRegistry } from './process-registry.js';
import { registerTurn, running } from './processes.query.js';

export type { ProcessRegistry, ProcessView } from './process-registry.js';

/**
 * The processes that run, by what they told of themselves; none where the schema does not know processes yet. Until the end of
 * the transaction no other can register.
 */
export async function runningProcesses(
  tx: Tx,
): Promise<readonly { readonly name: string; readonly version: string; readonly address: string | null }[]> {
  if (!(await hasTable(tx, 'processes'))) return [];
  await tx.query(registerTurn);
  return tx.query(running);
}

/**
 * Registers this process beside the others of the server. Needs the migrated schema.
 * @throws DatabaseError when the database cannot be reached, or another process of this name runs
 */
export async function joinProcesses(options: PostgresOptions, own: ProcessOptions): Promise<ProcessRegistry> {
  // The driver stays in memory once it is loaded.
  const { ProcessRegistry } = await import('./process-registry.js');
  return ProcessRegistry.join(options, own);
}
