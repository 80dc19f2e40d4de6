import type { Tx } from '@rookery/database';

/**
 * What a database needs that was put back to an earlier day: connections of sliding sync say what their clients have got, which
 * is no longer so. They begin anew.
 */
export async function forgetConnections(tx: Tx): Promise<void> {
  for (const table of ['rooms', 'required_state']) await tx.run(`DELETE FROM sliding_sync_connection_${table}`);
  await tx.run('DELETE FROM sliding_sync_connections');
}
