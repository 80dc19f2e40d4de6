import { type Database, type Db, Sequence, type Tx } from '@rookery/database';

/** What gives transactions their ids: a sequence in PostgreSQL, a row of `stream_positions` in SQLite, which has none. */
export const txnIdSequence = 'application_services_txn_id_seq';

/** Ids of transactions: ascending from 1, never one twice; what comes to nothing leaves gaps. */
export interface TransactionIds {
  /** The next `count` ids, ascending. */
  takeIn(tx: Tx, count: number): Promise<number[]>;
}

/** Needs the tables of the lib. */
export async function openTransactionIds(database: Database): Promise<TransactionIds> {
  return database.dialect.name === 'sqlite' ? Sequence.load(database, txnIdSequence) : sharedTransactionIds;
}

/** Those of a PostgreSQL database, for any process. */
export const sharedTransactionIds: TransactionIds = {
  async takeIn(tx, count) {
    const sql = `SELECT nextval('${txnIdSequence}') AS id FROM generate_series(1, ?)`;
    const rows = await tx.query<{ id: number }>(sql, [count]);
    return rows.map(({ id }) => id).sort((a, b) => a - b);
  },
};

/** The id that was given out last, as far as the database tells; 0 before the first. */
export async function txnIdPosition(db: Db): Promise<number> {
  if (db.dialect.name === 'sqlite') return Sequence.positionOf(db, txnIdSequence);
  const row = await db.get<{ position: number }>(
    `SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS position FROM ${txnIdSequence}`,
  );
  return row?.position ?? 0;
}

/** The statements that set the sequence, for an operator. */
export function settingStatements(db: Db, position: number): string[] {
  if (db.dialect.name === 'postgres') return [`SELECT setval('${txnIdSequence}', ${position});`];
  return Sequence.settingStatements(txnIdSequence, position);
}
