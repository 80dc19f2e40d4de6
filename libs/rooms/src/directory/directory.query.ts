import { type Db, holdsText, type SqlBool, type SqlValue, type Tx } from '@rookery/database';
import { holdRooms } from '../store/room-hold.query.js';
import { moveAliases } from './alias.query.js';

/** A published room, with the figures that the directory shows. */
export interface PublicRoomRow {
  readonly room_id: string;
  readonly name: string | null;
  readonly topic: string | null;
  readonly canonical_alias: string | null;
  readonly avatar: string | null;
  readonly join_rules: string | null;
  readonly history_visibility: string | null;
  readonly guest_access: string | null;
  readonly room_type: string | null;
  readonly joined_members: number;
}

/** What the directory is searched for. */
export interface PublicRoomSearch {
  readonly term: string | undefined;
  /** Room types to show, `null` for rooms without one; absent: all. */
  readonly types: readonly (string | null)[] | undefined;
  readonly after: { readonly members: number; readonly roomId: string } | undefined;
  readonly backwards: boolean;
  readonly limit: number;
  /** Only rooms that other servers may join. */
  readonly federatableOnly: boolean;
  /**
   * Rooms that an application service lists in its network, in place of the server's own list; `all`: that list and those of
   * all networks.
   */
  readonly network: { readonly appserviceId: string; readonly networkId: string } | 'all' | undefined;
}

/** The directory's rooms: the largest first, then by id; one page. */
export function selectPublicRooms(db: Db, search: PublicRoomSearch): Promise<PublicRoomRow[]> {
  const { where, params } = conditions(db, search);
  if (search.after) {
    const [more, further] = search.backwards ? ['>', '<'] : ['<', '>'];
    where.push(`(c.joined_members ${more} ? OR (c.joined_members = ? AND r.room_id ${further} ?))`);
    params.push(search.after.members, search.after.members, search.after.roomId);
  }
  const order = search.backwards ? 'c.joined_members ASC, r.room_id DESC' : 'c.joined_members DESC, r.room_id ASC';
  return db.query<PublicRoomRow>(
    `SELECT r.room_id, s.name, s.topic, s.canonical_alias, s.avatar, s.join_rules, s.history_visibility, s.guest_access,
       s.room_type, c.joined_members
     FROM rooms r JOIN room_stats_current c ON c.room_id = r.room_id LEFT JOIN room_stats_state s ON s.room_id = r.room_id
     WHERE ${where.join(' AND ')} ORDER BY ${order} LIMIT ${Math.trunc(search.limit)}`,
    params,
  );
}

/** How many rooms the directory holds, of those that the search may show. */
export async function countPublicRooms(db: Db, search: PublicRoomSearch): Promise<number> {
  const { where, params } = conditions(db, { ...search, term: undefined, types: undefined });
  const row = await db.get<{ total: number }>(
    `SELECT COUNT(*) AS total FROM rooms r JOIN room_stats_current c ON c.room_id = r.room_id
     LEFT JOIN room_stats_state s ON s.room_id = r.room_id WHERE ${where.join(' AND ')}`,
    params,
  );
  return row?.total ?? 0;
}

function conditions(db: Db, search: PublicRoomSearch): { where: string[]; params: SqlValue[] } {
  const params: SqlValue[] = [];
  const where = ['c.joined_members > 0'];
  if (search.network === 'all') {
    where.push('(r.is_public = TRUE OR r.room_id IN (SELECT room_id FROM appservice_room_list))');
  } else if (search.network) {
    where.push('r.room_id IN (SELECT room_id FROM appservice_room_list WHERE appservice_id = ? AND network_id = ?)');
    params.push(search.network.appserviceId, search.network.networkId);
  } else where.push('r.is_public = TRUE');
  where.push(`(s.join_rules IN ('public', 'knock', 'knock_restricted') OR s.history_visibility = 'world_readable')`);
  if (search.federatableOnly) where.push('(s.is_federatable IS NULL OR s.is_federatable = TRUE)');
  if (search.term !== undefined) {
    const held = holdsText(['s.name', 's.topic', 's.canonical_alias'], search.term);
    where.push(held.sql);
    params.push(...held.params);
  }
  if (search.types) {
    const named = search.types.filter((type) => type !== null);
    const either = search.types.includes(null) ? ['s.room_type IS NULL'] : [];
    if (named.length > 0) {
      either.push(db.dialect.anyOf('s.room_type'));
      params.push(named);
    }
    where.push(either.length > 0 ? `(${either.join(' OR ')})` : '1 = 0');
  }
  return { where, params };
}

export async function isPublished(db: Db, roomId: string): Promise<boolean | undefined> {
  const row = await db.get<{ is_public: SqlBool }>('SELECT is_public FROM rooms WHERE room_id = ?', [roomId]);
  return row && !!row.is_public;
}

export async function setPublished(tx: Tx, roomId: string, isPublic: boolean): Promise<void> {
  await tx.run('UPDATE rooms SET is_public = ? WHERE room_id = ?', [isPublic, roomId]);
}

/** Gives a room's local aliases, and its place in the directory if it has one, to the room that replaces it. */
export async function moveListing(tx: Tx, from: string, to: string): Promise<void> {
  await moveAliases(tx, from, to);
  if (!(await isPublished(tx, from))) return;
  await setPublished(tx, to, true);
  await setPublished(tx, from, false);
}

/** Lists a room in a network of an application service, or takes it out of there. @returns `false` where there is no room to be listed */
export async function setNetworkListing(
  tx: Tx,
  appserviceId: string,
  networkId: string,
  roomId: string,
  isListed: boolean,
): Promise<boolean> {
  if (isListed) {
    if (!(await holdRooms(tx, [roomId])).has(roomId)) return false;
    await tx.run(
      `INSERT INTO appservice_room_list (appservice_id, network_id, room_id) VALUES (?, ?, ?)
       ON CONFLICT (appservice_id, network_id, room_id) DO NOTHING`,
      [appserviceId, networkId, roomId],
    );
  } else {
    await tx.run('DELETE FROM appservice_room_list WHERE appservice_id = ? AND network_id = ? AND room_id = ?', [
      appserviceId,
      networkId,
      roomId,
    ]);
  }
  return true;
}
