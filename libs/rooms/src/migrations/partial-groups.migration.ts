import type { Tx } from '@rookery/database';

/** The group that is being written, piece by piece, for all of a room's state: a server that was killed meanwhile takes it away. */
export async function partialGroupsSchema(tx: Tx): Promise<void> {
  await tx.run('ALTER TABLE partial_state_rooms ADD COLUMN state_group BIGINT');
}
