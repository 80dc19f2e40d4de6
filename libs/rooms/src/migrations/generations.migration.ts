import type { Tx } from '@rookery/database';

/**
 * `event_auth_chains.generation` counts how far an event is from the beginning of its auth chain; walks know by it where to
 * stop. Rooms whose events lack it, or lack a place in the chain cover, are worked on in the background.
 */
const statements = [
  `ALTER TABLE event_auth_chains ADD COLUMN generation BIGINT`,
  `CREATE INDEX rooms_without_chain_cover ON rooms (room_id) WHERE has_auth_chain_index = FALSE`,
  `UPDATE rooms SET has_auth_chain_index = FALSE`,
];

/** Generations in the chain cover, and how to find rooms whose cover is incomplete. */
export async function generationsSchema(tx: Tx): Promise<void> {
  for (const statement of statements) await tx.run(statement);
}
