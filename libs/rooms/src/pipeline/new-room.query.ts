import type { Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { NewRoom } from '../model/drafts.js';

/** @throws MatrixError 400 `M_ROOM_IN_USE` when an alias is taken */
export async function insertRoom(tx: Tx, roomId: string, room: NewRoom): Promise<void> {
  await tx.insertMany(
    'rooms',
    ['room_id', 'is_public', 'creator', 'room_version', 'has_auth_chain_index'],
    [[roomId, room.isPublic, room.creator, room.roomVersion, true]],
  );
  for (const alias of room.aliases ?? []) {
    const made = await tx.run(
      'INSERT INTO room_aliases (room_alias, room_id, creator) VALUES (?, ?, ?) ON CONFLICT (room_alias) DO NOTHING',
      [alias, roomId, room.creator],
    );
    if (made === 0) throw MatrixError.roomInUse(`The alias ${alias} is taken`);
  }
}

/** A room that this server joins or is invited to. An invite may have told a wrong version of it before. */
export async function insertRemoteRoom(tx: Tx, roomId: string, version: string): Promise<void> {
  await tx.insertMany(
    'rooms',
    ['room_id', 'is_public', 'room_version', 'has_auth_chain_index'],
    [[roomId, false, version, true]],
    'ON CONFLICT (room_id) DO UPDATE SET room_version = excluded.room_version',
  );
}
