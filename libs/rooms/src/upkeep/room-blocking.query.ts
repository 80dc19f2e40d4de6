import type { Db, Tx } from '@rookery/database';

/** @param adminId who blocks it. Whoever was first stays. */
export async function insertBlock(tx: Tx, roomId: string, adminId: string): Promise<void> {
  await tx.run('INSERT INTO blocked_rooms (room_id, user_id) VALUES (?, ?) ON CONFLICT (room_id) DO NOTHING', [
    roomId,
    adminId,
  ]);
}

export async function deleteBlock(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM blocked_rooms WHERE room_id = ?', [roomId]);
}

/** Who blocked a room. */
export async function selectBlocker(db: Db, roomId: string): Promise<string | undefined> {
  const row = await db.get<{ user_id: string }>('SELECT user_id FROM blocked_rooms WHERE room_id = ?', [roomId]);
  return row?.user_id;
}
