import type { Db } from '@rookery/database';

/** A device of a user. */
export interface UserDevice {
  readonly userId: string;
  readonly deviceId: string;
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
