import type { SqlValue, Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { figuresIn } from '../store/room-figures.js';
import type { StoredEvent } from '../model/stored-event.js';
import { type CurrentChange, membershipIn, type WorkingRoom } from '../room/working-room.js';

/** A batch of one room, as far as current state is concerned. */
export interface StateBatch {
  readonly room: WorkingRoom;
  readonly stored: readonly StoredEvent[];
  /** Of what changes without an event. */
  readonly position: number;
  readonly serverName: string;
}

/** The last change of an entry, and where it lies in the stream. */
interface FinalChange {
  readonly room: WorkingRoom;
  readonly change: CurrentChange;
  readonly position: number;
  readonly serverName: string;
}

/** Writes what batches of different rooms change in current state, memberships and the rooms' figures. */
export async function writeCurrentState(tx: Tx, batches: readonly StateBatch[]): Promise<void> {
  for (const { room, stored } of batches) await writeOutOfBand(tx, room, stored);
  const changed = batches.filter(({ room }) => room.changes.length > 0);
  if (changed.length === 0) return;
  const final = changed.flatMap(finalChanges);
  const set = final.filter(({ change }) => change.eventId !== undefined);
  const gone = final.filter(({ change }) => change.eventId === undefined);
  for (const { room, change } of gone) {
    await tx.exec('DELETE FROM current_state_events WHERE room_id = ? AND type = ? AND state_key = ?', [
      room.roomId,
      change.type,
      change.stateKey,
    ]);
  }
  await tx.insertMany(
    'current_state_events',
    ['event_id', 'room_id', 'type', 'state_key', 'membership', 'event_stream_ordering'],
    set.map(({ room, change, position }) => [
      change.eventId!,
      room.roomId,
      change.type,
      change.stateKey,
      change.membership ?? null,
      position,
    ]),
    `ON CONFLICT (room_id, type, state_key) DO UPDATE SET event_id = excluded.event_id,
     membership = excluded.membership, event_stream_ordering = excluded.event_stream_ordering`,
  );
  await tx.insertMany(
    'current_state_delta_stream',
    ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
    changed.flatMap(({ room, stored, position }) =>
      room.changes.map((change) => [
        stored[change.cause]?.streamOrdering ?? position,
        room.roomId,
        change.type,
        change.stateKey,
        change.eventId ?? null,
        change.prevEventId ?? null,
      ]),
    ),
  );
  await writeLocalMemberships(tx, set.filter(isLocalMember), gone.filter(isLocalMember));
  await writeFigures(tx, changed, final);
}

function finalChanges({ room, stored, position, serverName }: StateBatch): FinalChange[] {
  const orderings = new Map(stored.map((entry) => [entry.event.eventId, entry.streamOrdering]));
  return room.finalChanges().map((change) => ({
    room,
    change,
    position: orderings.get(change.eventId ?? '') ?? stored[change.cause]?.streamOrdering ?? position,
    serverName,
  }));
}

const isLocalMember = ({ change, serverName }: FinalChange): boolean =>
  change.type === 'm.room.member' && domainOf(change.stateKey) === serverName;

const isKnown = `local_current_membership.event_id = excluded.event_id
  AND local_current_membership.membership = excluded.membership`;

/**
 * Where the state of the room only says what was known of the user's membership before, that is no news: it keeps its position, and the
 * room stays forgotten.
 */
const membershipUpsert = `ON CONFLICT (user_id, room_id) DO UPDATE SET event_id = excluded.event_id,
  membership = excluded.membership,
  event_stream_ordering = CASE WHEN ${isKnown}
    THEN local_current_membership.event_stream_ordering ELSE excluded.event_stream_ordering END,
  forgotten = CASE WHEN ${isKnown} THEN local_current_membership.forgotten ELSE 0 END`;

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

/**
 * Of whom the state of the room says nothing any more has left it: the row then names the event that counted last, so that
 * whoever reads it learns of the room, and no user is shown a room that they are not in.
 */
async function writeLocalMemberships(tx: Tx, set: readonly FinalChange[], gone: readonly FinalChange[]): Promise<void> {
  await tx.insertMany(
    'local_current_membership',
    ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering', 'forgotten'],
    set.map(({ room, change, position }) => [
      room.roomId,
      change.stateKey,
      change.eventId!,
      change.membership!,
      position,
      0,
    ]),
    membershipUpsert,
  );
  await tx.insertMany(
    'local_current_membership',
    ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering', 'forgotten'],
    gone.map(({ room, change, position }) => [room.roomId, change.stateKey, change.prevEventId!, 'leave', position, 0]),
    `ON CONFLICT (user_id, room_id) DO UPDATE SET event_id = excluded.event_id, membership = excluded.membership,
     event_stream_ordering = excluded.event_stream_ordering`,
  );
}

/** The columns of `room_stats_current`, without the room's id. */
export const countColumns: readonly string[] = [
  'current_state_events',
  'joined_members',
  'invited_members',
  'left_members',
  'banned_members',
  'knocked_members',
  'local_users_in_room',
];

async function writeFigures(tx: Tx, batches: readonly StateBatch[], final: readonly FinalChange[]): Promise<void> {
  const named = new Map<WorkingRoom, Map<string, SqlValue>>();
  const counted = new Set<WorkingRoom>();
  for (const { room, change } of final) {
    if (change.type === 'm.room.member') counted.add(room);
    if (change.stateKey !== '') continue;
    // What is gone says as little as an empty event.
    for (const [column, value] of figuresIn(change.type, change.event?.content ?? {})) {
      named.set(room, (named.get(room) ?? new Map<string, SqlValue>()).set(column, value));
      counted.add(room);
    }
  }
  for (const [room, columns] of named) {
    await upsertFigures(tx, 'room_stats_state', [...columns.keys()], [[room.roomId, ...columns.values()]]);
  }
  const hasSameSize = (room: WorkingRoom): boolean =>
    room.changes.every((change) => change.eventId !== undefined && change.prevEventId !== undefined);
  const rows = batches
    .filter(({ room }) => counted.has(room) || !hasSameSize(room))
    .map(({ room }) => {
      const { join, invite, leave, ban, knock } = room.base.tally;
      return [room.roomId, room.size, join, invite, leave, ban, knock, room.base.localMembers.size];
    });
  await upsertFigures(tx, 'room_stats_current', countColumns, rows);
}

/** What people call a room, and themselves in it, lies beside the events: where those are redacted it is not shown any more, either. */
export async function dropRedactedFigures(tx: Tx, roomId: string, redacted: readonly string[]): Promise<void> {
  if (redacted.length === 0) return;
  const { anyOf } = tx.dialect;
  const rows = await tx.query<{ type: string }>(
    `SELECT type FROM current_state_events
     WHERE room_id = ? AND state_key = '' AND ${anyOf('type')} AND ${anyOf('event_id')}`,
    [roomId, namingTypes, redacted],
  );
  const columns = rows.flatMap(({ type }) => figuresIn(type, {}));
  if (columns.length > 0) {
    const values = columns.map(([, value]) => value);
    await upsertFigures(
      tx,
      'room_stats_state',
      columns.map(([column]) => column),
      [[roomId, ...values]],
    );
  }
  await tx.exec(`UPDATE room_memberships SET display_name = NULL, avatar_url = NULL WHERE ${anyOf('event_id')}`, [
    redacted,
  ]);
}

/** The types by which people give a room its looks; a redaction leaves nothing of their content. */
const namingTypes = ['m.room.name', 'm.room.topic', 'm.room.avatar', 'm.room.canonical_alias'];

/**
 * Writes figures of rooms, at most one row for each.
 * @param rows each with its room's id before the columns
 */
export async function upsertFigures(
  tx: Tx,
  table: 'room_stats_current' | 'room_stats_state',
  columns: readonly string[],
  rows: readonly (readonly SqlValue[])[],
): Promise<void> {
  const set = columns.map((name) => `${name} = excluded.${name}`).join(', ');
  await tx.insertMany(table, ['room_id', ...columns], rows, `ON CONFLICT (room_id) DO UPDATE SET ${set}`);
}
