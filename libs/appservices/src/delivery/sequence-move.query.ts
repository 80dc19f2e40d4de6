import type { Db, Tx } from '@rookery/database';
import { settingStatements, txnIdPosition, txnIdSequence } from './transaction-ids.query.js';

/** Lets the ids of transactions go on in a database to which another one's rows were copied, whatever kind either is. */
export async function moveSequence(source: Db, tx: Tx): Promise<void> {
  const position = await txnIdPosition(source);
  // What SQLite keeps in a row came along.
  await tx.run('DELETE FROM stream_positions WHERE stream_name = ?', [txnIdSequence]);
  if (position === 0) return;
  for (const statement of settingStatements(tx, position)) {
    if (statement.startsWith('SELECT')) await tx.query(statement.replace(/;$/, ''));
    else await tx.run(statement.replace(/;$/, ''));
  }
}
