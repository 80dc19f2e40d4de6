import type { Tx } from '@rookery/database';

/** Says how many have joined rooms, of which one is of this server, as if that had been counted. */
export async function insertRoomStats(tx: Tx, joined: ReadonlyMap<string, number>): Promise<void> {
  const [before, after] = [
    ['room_id', 'current_state_events', 'joined_members'],
    ['local_users_in_room', 'completed_delta_stream_id'],
  ];
  const none = ['invited_members', 'knocked_members', 'left_members', 'banned_members'];
  await tx.insertMany(
    'room_stats_current',
    [...before, ...none, ...after],
    [...joined].map(([roomId, count]) => [roomId, 1, count, ...none.map(() => 0), 1, 1]),
  );
}
