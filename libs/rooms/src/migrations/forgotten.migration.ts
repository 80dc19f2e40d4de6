import type { Tx } from '@rookery/database';

/** Rooms that no user of this server remembers, and since when: they may be deleted after a while. */
export async function forgottenSchema(tx: Tx): Promise<void> {
  await tx.run('CREATE TABLE forgotten_rooms (room_id TEXT PRIMARY KEY, forgotten_ts BIGINT NOT NULL)');
  await tx.run('CREATE INDEX forgotten_rooms_ts ON forgotten_rooms (forgotten_ts)');
}
