import type { Migration } from '@rookery/database';

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
];
