import type { Migration } from '@rookery/database';
import { txnIdSequence } from '../delivery/transaction-ids.query.js';

/**
 * `event_ids` is a JSON list; `extra_json` holds what else a transaction brings and must not be lost: to-device messages and
 * users whose devices changed. `state` is `up` or `down`.
 */
const statements = [
  `CREATE TABLE application_services_state (as_id TEXT PRIMARY KEY, state TEXT)`,
  `CREATE TABLE application_services_txns (
    as_id TEXT NOT NULL, txn_id BIGINT NOT NULL, event_ids TEXT NOT NULL, extra_json TEXT, UNIQUE (as_id, txn_id))`,
];

/** The tables of this lib. */
export const appservicesMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'appservices_01_transactions',
    async up(tx) {
      for (const statement of statements) await tx.run(statement);
    },
  },
  {
    version: 1,
    // What operators know how to set; SQLite has no sequences.
    name: 'appservices_02_txn_id_sequence',
    async up(tx) {
      if (tx.dialect.name !== 'postgres') return;
      await tx.run(`CREATE SEQUENCE ${txnIdSequence}`);
      await tx.query(
        `SELECT setval('${txnIdSequence}', stream_id) FROM stream_positions WHERE stream_name = ? AND stream_id > 0`,
        [txnIdSequence],
      );
      await tx.run('DELETE FROM stream_positions WHERE stream_name = ?', [txnIdSequence]);
    },
  },
];
