import type { Db, Tx } from '@rookery/database';

/** A device that exists at the server alone, until its user takes it up. */
export interface DehydratedDevice {
  readonly deviceId: string;
  /** JSON text. */
  readonly data: string;
}

export async function findDehydrated(db: Db, userId: string): Promise<DehydratedDevice | undefined> {
  const row = await db.get<{ device_id: string; device_data: string }>(
    'SELECT device_id, device_data FROM dehydrated_devices WHERE user_id = ?',
    [userId],
  );
  return row && { deviceId: row.device_id, data: row.device_data };
}

export async function writeDehydrated(tx: Tx, userId: string, deviceId: string, data: string): Promise<void> {
  await tx.run(
    `INSERT INTO dehydrated_devices (user_id, device_id, device_data) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET device_id = excluded.device_id, device_data = excluded.device_data`,
    [userId, deviceId, data],
  );
}

export async function deleteDehydrated(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM dehydrated_devices WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [
    userId,
    deviceIds,
  ]);
}
