import type { Tx } from '@rookery/database';

const statements = [
  `CREATE TABLE delayed_events (
    delay_id TEXT NOT NULL, user_localpart TEXT NOT NULL, device_id TEXT, delay BIGINT NOT NULL, send_ts BIGINT NOT NULL,
    room_id TEXT NOT NULL, event_type TEXT NOT NULL, state_key TEXT, origin_server_ts BIGINT, content TEXT NOT NULL,
    is_processed BOOLEAN NOT NULL DEFAULT FALSE, sticky_duration_ms BIGINT, txn_id TEXT,
    PRIMARY KEY (user_localpart, delay_id))`,
  `CREATE UNIQUE INDEX delayed_events_id ON delayed_events (delay_id)`,
  `CREATE INDEX delayed_events_due ON delayed_events (send_ts)`,
  `CREATE INDEX delayed_events_state ON delayed_events (room_id, event_type, state_key)`,
  `CREATE UNIQUE INDEX delayed_events_txn ON delayed_events (user_localpart, device_id, room_id, txn_id)`,
];

/** Events that are to be sent later (MSC4140). */
export async function delayedSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
