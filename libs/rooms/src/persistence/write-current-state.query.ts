import type { SqlValue, Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { figuresIn } from './room-figures.js';
import type { StoredEvent } from './stored-event.js';
import { type CurrentChange, membershipIn, type WorkingRoom } from './working-room.js';

/** Writes what the batch changes in current state, memberships and the room's figures. */
export async function writeCurrentState(
  tx: Tx,
  room: WorkingRoom,
  stored: readonly StoredEvent[],
  serverName: string,
): Promise<void> {
  await writeOutOfBand(tx, room, stored);
  if (room.changes.length === 0) return;
  const final = room.finalChanges();
  const gone = final.filter((change) => change.eventId === undefined);
  for (const change of gone) {
    await tx.exec('DELETE FROM current_state_events WHERE room_id = ? AND type = ? AND state_key = ?', [
      room.roomId,
      change.type,
      change.stateKey,
    ]);
  }
  const orderings = new Map(stored.map((entry) => [entry.event.eventId, entry.streamOrdering]));
  const positionOf = (change: CurrentChange): number => stored[change.cause]!.streamOrdering;
  const set = final.filter((change) => change.eventId !== undefined);
  if (set.length > 0) {
    await tx.insertMany(
      'current_state_events',
      ['event_id', 'room_id', 'type', 'state_key', 'membership', 'event_stream_ordering'],
      set.map((change) => [
        change.eventId!,
        room.roomId,
        change.type,
        change.stateKey,
        change.membership ?? null,
        orderings.get(change.eventId!) ?? positionOf(change),
      ]),
      `ON CONFLICT (room_id, type, state_key) DO UPDATE SET event_id = excluded.event_id,
       membership = excluded.membership, event_stream_ordering = excluded.event_stream_ordering`,
    );
  }
  await tx.insertMany(
    'current_state_delta_stream',
    ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
    room.changes.map((change) => [
      positionOf(change),
      room.roomId,
      change.type,
      change.stateKey,
      change.eventId ?? null,
      change.prevEventId ?? null,
    ]),
  );
  await writeLocalMemberships(
    tx,
    room,
    final,
    (change) => orderings.get(change.eventId!) ?? positionOf(change),
    serverName,
  );
  await writeFigures(tx, room, set);
}

const membershipUpsert = `ON CONFLICT (user_id, room_id) DO UPDATE SET event_id = excluded.event_id,
  membership = excluded.membership, event_stream_ordering = excluded.event_stream_ordering, forgotten = 0`;

/** Memberships of rooms in which this server has nobody. */
async function writeOutOfBand(tx: Tx, room: WorkingRoom, stored: readonly StoredEvent[]): Promise<void> {
  const entries = stored.filter((_, index) => room.staged[index]!.isOutOfBand);
  if (entries.length === 0) return;
  await tx.insertMany(
    'local_current_membership',
    ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering', 'forgotten'],
    entries.map(({ event, streamOrdering }) => [
      room.roomId,
      event.stateKey!,
      event.eventId,
      membershipIn(event),
      streamOrdering,
      0,
    ]),
    membershipUpsert,
  );
}

async function writeLocalMemberships(
  tx: Tx,
  room: WorkingRoom,
  final: readonly CurrentChange[],
  positionOf: (change: CurrentChange) => number,
  serverName: string,
): Promise<void> {
  const local = final.filter((change) => change.type === 'm.room.member' && domainOf(change.stateKey) === serverName);
  const set = local.filter((change) => change.eventId !== undefined);
  if (set.length > 0) {
    await tx.insertMany(
      'local_current_membership',
      ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering', 'forgotten'],
      set.map((change) => [room.roomId, change.stateKey, change.eventId!, change.membership!, positionOf(change), 0]),
      membershipUpsert,
    );
  }
  const gone = local.filter((change) => change.eventId === undefined).map((change) => change.stateKey);
  if (gone.length > 0) {
    await tx.exec(`DELETE FROM local_current_membership WHERE room_id = ? AND ${tx.dialect.anyOf('user_id')}`, [
      room.roomId,
      gone,
    ]);
  }
}

async function writeFigures(tx: Tx, room: WorkingRoom, set: readonly CurrentChange[]): Promise<void> {
  const columns = new Map<string, SqlValue>();
  for (const change of set) {
    const { event } = change;
    if (change.stateKey !== '' || !event) continue;
    for (const [column, value] of figuresIn(change.type, event.content)) columns.set(column, value);
  }
  if (columns.size > 0) await upsert(tx, 'room_stats_state', room.roomId, columns);
  const hasMembers = set.some((change) => change.type === 'm.room.member');
  const hasSameSize = room.changes.every((change) => change.eventId !== undefined && change.prevEventId !== undefined);
  if (columns.size === 0 && !hasMembers && hasSameSize) return;
  await upsert(
    tx,
    'room_stats_current',
    room.roomId,
    new Map<string, SqlValue>([
      ['current_state_events', room.size],
      ['joined_members', room.base.tally.join],
      ['invited_members', room.base.tally.invite],
      ['left_members', room.base.tally.leave],
      ['banned_members', room.base.tally.ban],
      ['knocked_members', room.base.tally.knock],
      ['local_users_in_room', room.base.localMembers.size],
    ]),
  );
}

async function upsert(tx: Tx, table: string, roomId: string, columns: ReadonlyMap<string, SqlValue>): Promise<void> {
  const names = [...columns.keys()];
  await tx.insertMany(
    table,
    ['room_id', ...names],
    [[roomId, ...columns.values()]],
    `ON CONFLICT (room_id) DO UPDATE SET ${names.map((name) => `${name} = excluded.${name}`).join(', ')}`,
  );
}
