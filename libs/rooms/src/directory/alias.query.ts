import type { Db, Tx } from '@rookery/database';
import { holdRooms } from '../store/room-hold.query.js';

export interface AliasRow {
  readonly room_alias: string;
  readonly room_id: string;
  readonly creator: string | null;
}

export function selectAlias(db: Db, alias: string): Promise<AliasRow | undefined> {
  return db.get<AliasRow>('SELECT room_alias, room_id, creator FROM room_aliases WHERE room_alias = ?', [alias]);
}

/** The local aliases of a room, in order. */
export async function selectAliasesOf(db: Db, roomId: string): Promise<string[]> {
  const rows = await db.query<{ room_alias: string }>(
    'SELECT room_alias FROM room_aliases WHERE room_id = ? ORDER BY room_alias',
    [roomId],
  );
  return rows.map((row) => row.room_alias);
}

/** Gives a room an alias, unless there is no such room: one that is just being deleted is waited for. */
export async function insertAlias(
  tx: Tx,
  alias: string,
  roomId: string,
  creator: string,
): Promise<'made' | 'taken' | 'no room'> {
  if (!(await holdRooms(tx, [roomId])).has(roomId)) return 'no room';
  const made = await tx.run(
    'INSERT INTO room_aliases (room_alias, room_id, creator) VALUES (?, ?, ?) ON CONFLICT (room_alias) DO NOTHING',
    [alias, roomId, creator],
  );
  return made > 0 ? 'made' : 'taken';
}

export async function deleteAlias(tx: Tx, alias: string): Promise<void> {
  await tx.run('DELETE FROM room_aliases WHERE room_alias = ?', [alias]);
  await tx.run('DELETE FROM room_alias_servers WHERE room_alias = ?', [alias]);
}

/** Deletes the local aliases of a room. */
export async function deleteAliasesOf(tx: Tx, roomId: string): Promise<void> {
  await tx.run('DELETE FROM room_aliases WHERE room_id = ?', [roomId]);
}

/** Lets aliases point to another room. */
export async function moveAliases(tx: Tx, from: string, to: string): Promise<void> {
  await tx.run('UPDATE room_aliases SET room_id = ? WHERE room_id = ?', [to, from]);
}
