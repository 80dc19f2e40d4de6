import { Sequence, type Tx } from '@rookery/database';
import { insertChanges } from '../device-lists/device-list.query.js';
import { deviceListsStream } from '../device-lists/device-list.service.js';

const devicesAtATime = 1_000;

/**
 * What a database needs that was put back to an earlier day, in the transaction that has let its counters skip ahead. One-time
 * keys may have been given out since then, and a key that is given out twice protects nothing: all count as given out, so that
 * clients upload new ones. Fallback keys count as used, for the same reason. Every device here is announced as changed, so that
 * clients and servers ask for what they may know otherwise.
 */
export async function reviveKeys(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('UPDATE e2e_one_time_keys_json SET claimed_ts = ? WHERE claimed_ts IS NULL', [nowMs]);
  await tx.run('UPDATE e2e_fallback_keys_json SET used = TRUE WHERE used = FALSE');
  const count = await tx.get<{ count: number }>('SELECT COUNT(*) AS count FROM e2e_device_keys_json');
  // Counters go on behind their reservation: what lies just before it is free, and readers see it.
  let position = (await Sequence.positionOf(tx, deviceListsStream.name)) - (count?.count ?? 0);
  for (let after: readonly [string, string] = ['', '']; ;) {
    const devices: { user_id: string; device_id: string }[] = await tx.query(
      `SELECT user_id, device_id FROM e2e_device_keys_json WHERE (user_id, device_id) > (?, ?)
       ORDER BY user_id, device_id LIMIT ${devicesAtATime}`,
      after,
    );
    await insertChanges(
      tx,
      devices.map(({ user_id: userId, device_id: deviceId }) => ({ userId, deviceId, position: ++position })),
    );
    const last = devices.at(-1);
    if (last === undefined || devices.length < devicesAtATime) return;
    after = [last.user_id, last.device_id];
  }
}
