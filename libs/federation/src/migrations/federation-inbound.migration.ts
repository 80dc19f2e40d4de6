import type { Migration } from '@rookery/database';

/**
 * What other servers have sent. `federation_inbound_events_staging` holds events that were acknowledged and are not in their
 * rooms yet: `ordering` is their order of arrival, `attempts` counts how often a start of the server found them.
 */
export const inboundTables: Migration = {
  version: 1,
  name: 'federation_03_inbound',
  async up(tx) {
    const end = tx.dialect.name === 'sqlite' ? 'WITHOUT ROWID' : '';
    for (const statement of [
      `CREATE TABLE federation_inbound_events_staging (
        origin TEXT NOT NULL, room_id TEXT NOT NULL, event_id TEXT NOT NULL, received_ts BIGINT NOT NULL,
        event_json TEXT NOT NULL, internal_metadata TEXT NOT NULL, ordering BIGINT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (room_id, event_id, origin)) ${end}`,
      `CREATE INDEX federation_inbound_events_staging_order ON federation_inbound_events_staging (room_id, ordering)`,
      `CREATE INDEX federation_inbound_events_staging_ts ON federation_inbound_events_staging (received_ts)`,
      `CREATE TABLE received_transactions (
        origin TEXT NOT NULL, transaction_id TEXT NOT NULL, ts BIGINT NOT NULL, response_code INTEGER NOT NULL,
        response_json TEXT NOT NULL, PRIMARY KEY (origin, transaction_id)) ${end}`,
      `CREATE INDEX received_transactions_ts ON received_transactions (ts)`,
    ])
      await tx.run(statement);
  },
};
