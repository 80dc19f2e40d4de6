import type { Db, Tx } from '@rookery/database';
import { splitStateKey, type StateMap } from '@rookery/state-res';

/** How a room came to be joined before its state was here. */
export interface PartialJoin {
  /** The server that let the user in. */
  readonly via: string;
  /** The servers that were in the room before the join, as that server says. */
  readonly servers: readonly string[];
}

export interface PartialRoomRow {
  readonly room_id: string;
  readonly join_event_id: string | null;
  readonly joined_via: string | null;
}

export function selectPartialRooms(db: Db): Promise<PartialRoomRow[]> {
  return db.query<PartialRoomRow>('SELECT room_id, join_event_id, joined_via FROM partial_state_rooms');
}

export function selectPartialServers(db: Db): Promise<{ room_id: string; server_name: string }[]> {
  return db.query('SELECT room_id, server_name FROM partial_state_rooms_servers');
}

/** Events of a room that were judged without its whole state, with the group that each has. */
export async function selectPartialEvents(db: Db, roomId: string): Promise<Map<string, number | undefined>> {
  const rows = await db.query<{ event_id: string; state_group: number | null }>(
    `SELECT p.event_id, g.state_group FROM partial_state_events p
     LEFT JOIN event_to_state_groups g ON g.event_id = p.event_id WHERE p.room_id = ?`,
    [roomId],
  );
  return new Map(rows.map((row) => [row.event_id, row.state_group ?? undefined]));
}

/** Earlier joins that are looked at: what was judged by the others stays as it is. */
const maxEarlierJoins = 10;

/**
 * Earlier joins of a room by users of this server that came without all of the state, and before which it is still not known.
 * @param joinEventId the one that counts
 */
export function selectEarlierJoins(
  db: Db,
  roomId: string,
  joinEventId: string,
): Promise<{ event_id: string; user_id: string }[]> {
  return db.query(
    `SELECT DISTINCT p.event_id, m.user_id FROM partial_state_events p
     JOIN room_memberships m ON m.event_id = p.event_id JOIN event_edges d ON d.event_id = p.event_id
     WHERE p.room_id = ? AND p.event_id <> ? AND m.membership = 'join' AND m.sender = m.user_id
     LIMIT ${maxEarlierJoins}`,
    [roomId, joinEventId],
  );
}

/** A room begins to be known in part, be it once more: what was judged by an earlier part is still to be judged by all. */
export async function insertPartialRoom(
  tx: Tx,
  roomId: string,
  joinEventId: string,
  { via, servers }: PartialJoin,
): Promise<void> {
  await deleteFrom(tx, ['partial_state_rooms_servers'], roomId);
  await tx.exec(
    `INSERT INTO partial_state_rooms (room_id, join_event_id, joined_via) VALUES (?, ?, ?)
     ON CONFLICT (room_id) DO UPDATE SET join_event_id = excluded.join_event_id, joined_via = excluded.joined_via`,
    [roomId, joinEventId, via],
  );
  await tx.insertMany(
    'partial_state_rooms_servers',
    ['room_id', 'server_name'],
    [...new Set(servers)].map((server) => [roomId, server]),
  );
}

/** Everything is known of a room from now on, or nothing is wanted to be. */
export function deletePartialRoom(tx: Tx, roomId: string): Promise<void> {
  return deleteFrom(tx, ['partial_state_rooms', 'partial_state_rooms_servers', 'partial_state_events'], roomId);
}

async function deleteFrom(tx: Tx, tables: readonly string[], roomId: string): Promise<void> {
  for (const table of tables) await tx.exec(`DELETE FROM ${table} WHERE room_id = ?`, [roomId]);
}

/** The group that is being written for all of a room's state. */
export async function selectBegunGroup(db: Db, roomId: string): Promise<number | undefined> {
  const row = await db.get<{ state_group: number | null }>(
    'SELECT state_group FROM partial_state_rooms WHERE room_id = ?',
    [roomId],
  );
  return row?.state_group ?? undefined;
}

/** Begins a group for all of a room's state, where groups lie; its rows come with {@link insertGroupRows}. */
export function insertBegunGroup(tx: Tx, roomId: string, group: number, eventId: string): Promise<void> {
  return tx.insertMany('state_groups', ['id', 'room_id', 'event_id', 'chain_position'], [[group, roomId, eventId, 0]]);
}

/** Notes the group that was begun. */
export function noteBegunGroup(tx: Tx, roomId: string, group: number): Promise<void> {
  return tx.exec('UPDATE partial_state_rooms SET state_group = ? WHERE room_id = ?', [group, roomId]);
}

/** Forgets the group that was begun; another may have been begun since. */
export function forgetBegunGroup(tx: Tx, roomId: string, group: number): Promise<void> {
  return tx.exec('UPDATE partial_state_rooms SET state_group = NULL WHERE room_id = ? AND state_group = ?', [
    roomId,
    group,
  ]);
}

/** Some of the rows of a group that was begun. */
export function insertGroupRows(tx: Tx, roomId: string, group: number, rows: StateMap): Promise<void> {
  return tx.insertMany(
    'state_groups_state',
    ['state_group', 'room_id', 'type', 'state_key', 'event_id'],
    [...rows].map(([key, eventId]) => [group, roomId, ...splitStateKey(key), eventId]),
  );
}

/**
 * Deletes some of the rows of groups, not the groups.
 * @returns whether any may be left
 */
export async function deleteSomeRows(tx: Tx, groups: readonly number[], limit: number): Promise<boolean> {
  const rows = await tx.query<{ state_group: number; type: string; state_key: string }>(
    `SELECT state_group, type, state_key FROM state_groups_state WHERE ${tx.dialect.anyOf('state_group')} LIMIT ?`,
    [groups, limit],
  );
  for (const [, some] of Map.groupBy(rows, (row) => `${row.state_group} ${row.type}`)) {
    await tx.exec(
      `DELETE FROM state_groups_state WHERE state_group = ? AND type = ? AND ${tx.dialect.anyOf('state_key')}`,
      [some[0]!.state_group, some[0]!.type, some.map((row) => row.state_key)],
    );
  }
  return rows.length === limit;
}

/**
 * Takes a part of a group away that was begun and is not used; with the last one the group.
 * @returns whether anything is left of it
 */
export async function dropSomeOfGroup(tx: Tx, group: number, limit: number): Promise<boolean> {
  if (await deleteSomeRows(tx, [group], limit)) return true;
  await tx.exec('DELETE FROM state_groups WHERE id = ?', [group]);
  return false;
}

/** Takes all of the group away that was begun and that nobody goes on with. */
export async function dropBegunGroup(tx: Tx, roomId: string): Promise<void> {
  const group = await selectBegunGroup(tx, roomId);
  if (group === undefined) return;
  await tx.exec('DELETE FROM state_groups_state WHERE state_group = ?', [group]);
  await tx.exec('DELETE FROM state_groups WHERE id = ?', [group]);
}

/** Notes that members of a room became known at a position, be it the last of them. */
export function insertCompletion(tx: Tx, roomId: string, position: number): Promise<void> {
  return tx.insertMany(
    'un_partial_stated_room_stream',
    ['stream_id', 'instance_name', 'room_id'],
    [[position, 'master', roomId]],
  );
}

/** Positions after `after` and up to `upTo` at which members of rooms became known, by room. */
export async function selectCompletions(
  db: Db,
  roomIds: readonly string[],
  after: number,
  upTo: number,
): Promise<Map<string, ReadonlySet<number>>> {
  const rows = await db.query<{ room_id: string; position: number }>(
    `SELECT room_id, stream_id AS position FROM un_partial_stated_room_stream
     WHERE ${db.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ?`,
    [roomIds, after, upTo],
  );
  const byRoom = Map.groupBy(rows, (row) => row.room_id);
  return new Map([...byRoom].map(([roomId, some]) => [roomId, new Set(some.map((row) => row.position))]));
}

/** The last position at which members of a room became known; 0 for never. */
export async function selectLastCompletion(db: Db): Promise<number> {
  const row = await db.get<{ last: number | null }>('SELECT MAX(stream_id) AS last FROM un_partial_stated_room_stream');
  return row?.last ?? 0;
}
