import type { Tx } from '@rookery/database';

/**
 * Whose events of a room are redacted because they were removed from it, all those before `end_ordering`; NULL while that is
 * not known.
 */
export async function removalRedactionsSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE room_removal_redactions (
       room_id TEXT NOT NULL, user_id TEXT NOT NULL, event_id TEXT NOT NULL, end_ordering BIGINT,
       PRIMARY KEY (room_id, user_id))`,
  );
}
