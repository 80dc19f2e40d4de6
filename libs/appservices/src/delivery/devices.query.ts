import type { Db, Tx } from '@rookery/database';

/** A device of a user. */
export interface UserDevice {
  readonly userId: string;
  readonly deviceId: string;
}

/** A to-device message in the inbox of a device. */
export interface InboxEntry extends UserDevice {
  readonly position: number;
  /** `{type, sender, content}` */
  readonly json: string;
}

/** Most devices of which the keys are counted. */
const maxDevices = 1_000;

/** Devices of users, cross-signing keys left out. */
export async function devicesOf(db: Db, userIds: readonly string[]): Promise<UserDevice[]> {
  const rows = await db.query<{ user_id: string; device_id: string }>(
    `SELECT user_id, device_id FROM devices WHERE ${db.dialect.anyOf('user_id')} AND hidden = ?
     ORDER BY user_id, device_id LIMIT ${maxDevices}`,
    [userIds, false],
  );
  return rows.map((row) => ({ userId: row.user_id, deviceId: row.device_id }));
}

/** Messages with `after < position <= upTo`, ascending; about `limit`, but all of those that share a position. */
export async function inboxEntries(db: Db, after: number, upTo: number, limit: number): Promise<InboxEntry[]> {
  const rows = await db.query<{ user_id: string; device_id: string; stream_id: number; message_json: string }>(
    `SELECT user_id, device_id, stream_id, message_json FROM device_inbox
     WHERE stream_id > ? AND stream_id <= COALESCE((SELECT stream_id FROM device_inbox
       WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT 1 OFFSET ${Math.trunc(limit)}), ?)
     ORDER BY stream_id, user_id, device_id`,
    [after, after, upTo, upTo],
  );
  return rows.map((row) => ({
    userId: row.user_id,
    deviceId: row.device_id,
    position: row.stream_id,
    json: row.message_json,
  }));
}

/** Takes messages of users out of their inboxes: all that have one of these positions. */
export async function deleteInboxEntries(tx: Tx, entries: readonly InboxEntry[]): Promise<void> {
  const positions = [...new Set(entries.map(({ position }) => position))];
  const users = [...new Set(entries.map(({ userId }) => userId))];
  await tx.exec(`DELETE FROM device_inbox WHERE ${tx.dialect.anyOf('stream_id')} AND ${tx.dialect.anyOf('user_id')}`, [
    positions,
    users,
  ]);
}
