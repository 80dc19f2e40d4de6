import type { Tx } from '@rookery/database';

/** When messages that destroy themselves are due, milliseconds since the epoch. */
export async function eventExpirySchema(tx: Tx): Promise<void> {
  await tx.run('CREATE TABLE event_expiry (event_id TEXT NOT NULL PRIMARY KEY, expiry_ts BIGINT NOT NULL)');
  await tx.run('CREATE INDEX event_expiry_expiry_ts_idx ON event_expiry (expiry_ts)');
}
