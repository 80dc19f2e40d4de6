import type { Tx } from '@rookery/database';

/**
 * Which of some rooms there are. They stay until the transaction ends, so that what it writes of them goes with them: one that is
 * just being deleted is waited for.
 */
export async function holdRooms(tx: Tx, roomIds: readonly string[]): Promise<ReadonlySet<string>> {
  const lock = tx.dialect.name === 'postgres' ? ' ORDER BY room_id FOR KEY SHARE' : '';
  const rows = await tx.query<{ room_id: string }>(
    `SELECT room_id FROM rooms WHERE ${tx.dialect.anyOf('room_id')}${lock}`,
    [roomIds],
  );
  return new Set(rows.map((row) => row.room_id));
}

/** Waits for whoever holds a room, and has those who want to hold it wait: what they have written is there to be deleted. */
export async function holdForDeletion(tx: Tx, roomId: string): Promise<void> {
  if (tx.dialect.name !== 'postgres') return;
  await tx.get('SELECT 1 AS found FROM rooms WHERE room_id = ? FOR UPDATE', [roomId]);
}
