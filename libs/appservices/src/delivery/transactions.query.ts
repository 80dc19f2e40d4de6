import type { Db, SqlValue, Tx } from '@rookery/database';

/** What a transaction brings besides events. */
export interface TransactionExtras {
  /** To-device messages, as the service gets them. */
  readonly toDevice?: readonly unknown[];
  /** Users whose devices changed. */
  readonly changed?: readonly string[];
}

/** A transaction that a service has not taken yet. */
export interface Transaction extends TransactionExtras {
  readonly asId: string;
  readonly txnId: number;
  readonly eventIds: readonly string[];
}

interface TransactionRow {
  readonly txn_id: number;
  readonly event_ids: string;
  readonly extra_json: string | null;
}

const columns = ['as_id', 'txn_id', 'event_ids', 'extra_json'];

export async function insertTransactions(tx: Tx, transactions: readonly Transaction[]): Promise<void> {
  const rows = transactions.map(({ asId, txnId, eventIds, toDevice, changed }): SqlValue[] => {
    const extras = toDevice || changed ? JSON.stringify({ toDevice, changed }) : null;
    return [asId, txnId, JSON.stringify(eventIds), extras];
  });
  await tx.insertMany('application_services_txns', columns, rows);
}

/** Replaces the events of a transaction. */
export async function updateEventIds(tx: Tx, asId: string, txnId: number, eventIds: readonly string[]): Promise<void> {
  await tx.exec('UPDATE application_services_txns SET event_ids = ? WHERE as_id = ? AND txn_id = ?', [
    JSON.stringify(eventIds),
    asId,
    txnId,
  ]);
}

/** Whether a transaction lies there with just these events. */
export async function isStored(db: Db, { asId, txnId, eventIds }: Transaction): Promise<boolean> {
  const sql = 'SELECT 1 AS found FROM application_services_txns WHERE as_id = ? AND txn_id = ? AND event_ids = ?';
  return (await db.get(sql, [asId, txnId, JSON.stringify(eventIds)])) !== undefined;
}

const whole = 'SELECT txn_id, event_ids, extra_json FROM application_services_txns WHERE as_id = ?';

/** The transaction that a service has to take next. */
export async function oldestTransaction(db: Db, asId: string): Promise<Transaction | undefined> {
  const row = await db.get<TransactionRow>(`${whole} ORDER BY txn_id LIMIT 1`, [asId]);
  return row && fromRow(asId, row);
}

/** The id of that transaction. */
export async function oldestTransactionId(db: Db, asId: string): Promise<{ readonly txnId: number } | undefined> {
  const sql = 'SELECT txn_id FROM application_services_txns WHERE as_id = ? ORDER BY txn_id LIMIT 1';
  const row = await db.get<{ txn_id: number }>(sql, [asId]);
  return row && { txnId: row.txn_id };
}

/** A transaction, unless the service has taken it. */
export async function findTransaction(db: Db, asId: string, txnId: number): Promise<Transaction | undefined> {
  const row = await db.get<TransactionRow>(`${whole} AND txn_id = ?`, [asId, txnId]);
  return row && fromRow(asId, row);
}

function fromRow(asId: string, row: TransactionRow): Transaction {
  return {
    ...(row.extra_json === null ? {} : (JSON.parse(row.extra_json) as TransactionExtras)),
    asId,
    txnId: row.txn_id,
    eventIds: JSON.parse(row.event_ids) as string[],
  };
}

export async function deleteTransaction(tx: Tx, asId: string, txnId: number): Promise<void> {
  await tx.exec('DELETE FROM application_services_txns WHERE as_id = ? AND txn_id = ?', [asId, txnId]);
}

/** The highest transaction id, 0 when there is none. */
export async function highestTransactionId(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(txn_id) AS top FROM application_services_txns'))?.top ?? 0;
}

/** Notes whether a service could be reached. */
export async function writeState(tx: Tx, asId: string, state: 'up' | 'down'): Promise<void> {
  await tx.exec(
    `INSERT INTO application_services_state (as_id, state) VALUES (?, ?)
     ON CONFLICT (as_id) DO UPDATE SET state = excluded.state`,
    [asId, state],
  );
}

/** Services that could not be reached when it was last noted. */
export async function servicesDown(db: Db): Promise<Set<string>> {
  const rows = await db.query<{ as_id: string }>("SELECT as_id FROM application_services_state WHERE state = 'down'");
  return new Set(rows.map((row) => row.as_id));
}
