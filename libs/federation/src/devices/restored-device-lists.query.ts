import type { Tx } from '@rookery/database';

/**
 * What a database needs that was put back to an earlier day: what other servers have told of their users' devices since then is
 * lost, so that all of them are asked again.
 */
export async function askForAllDeviceLists(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    `INSERT INTO device_lists_remote_resync (user_id, added_ts)
       SELECT user_id, ? FROM device_lists_remote_extremeties WHERE TRUE ON CONFLICT (user_id) DO NOTHING`,
    [nowMs],
  );
}
