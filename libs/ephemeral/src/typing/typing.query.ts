import type { Tx } from '@rookery/database';

/** Notes in which rooms somebody is typing while the server stops. */
export async function writeTypingAtStop(tx: Tx, roomIds: readonly string[]): Promise<void> {
  await tx.insertMany(
    'typing_at_stop',
    ['room_id'],
    roomIds.map((roomId) => [roomId]),
    'ON CONFLICT DO NOTHING',
  );
}

/** Takes back what was noted at the last stop. */
export async function takeTypingAtStop(tx: Tx): Promise<string[]> {
  const rows = await tx.query<{ room_id: string }>('DELETE FROM typing_at_stop RETURNING room_id');
  return rows.map((row) => row.room_id);
}
