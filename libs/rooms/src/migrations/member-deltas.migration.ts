import type { Tx } from '@rookery/database';

/** What became of one user's memberships, by state resolution as well, is asked for by each sync after one of them moved. */
export async function memberDeltasSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE INDEX current_state_delta_stream_member ON current_state_delta_stream (state_key, stream_id)
     WHERE type = 'm.room.member'`,
  );
}
