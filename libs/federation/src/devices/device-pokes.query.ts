import type { Db, Tx } from '@rookery/database';

/** A change of a device, on its way to a server. */
export interface DevicePoke {
  readonly userId: string;
  readonly deviceId: string;
  readonly streamId: number;
}

/** Queues changes for servers; of each device only the latest is kept. No server and device twice. */
export async function insertPokes(
  tx: Tx,
  pokes: readonly (DevicePoke & { readonly destination: string })[],
  nowMs: number,
): Promise<void> {
  await tx.insertMany(
    'device_lists_outbound_pokes',
    ['destination', 'stream_id', 'user_id', 'device_id', 'ts'],
    pokes.map((poke) => [poke.destination, poke.streamId, poke.userId, poke.deviceId, nowMs]),
    'ON CONFLICT (destination, user_id, device_id) DO UPDATE SET stream_id = excluded.stream_id, ts = excluded.ts',
  );
}

/** What waits for a server, oldest first. */
export async function pokesFor(db: Db, destination: string, limit: number): Promise<DevicePoke[]> {
  const rows = await db.query<{ user_id: string; device_id: string; stream_id: number }>(
    `SELECT user_id, device_id, stream_id FROM device_lists_outbound_pokes
     WHERE destination = ? ORDER BY stream_id LIMIT ${Math.trunc(limit)}`,
    [destination],
  );
  return rows.map((row) => ({ userId: row.user_id, deviceId: row.device_id, streamId: row.stream_id }));
}

/** Servers for which something waits. */
export async function pokedServers(db: Db): Promise<string[]> {
  const rows = await db.query<{ destination: string }>('SELECT DISTINCT destination FROM device_lists_outbound_pokes');
  return rows.map((row) => row.destination);
}

/** The place of the change of each user that a server got last. */
export async function lastPokesOf(
  db: Db,
  destination: string,
  userIds: readonly string[],
): Promise<Map<string, number>> {
  const rows = await db.query<{ user_id: string; stream_id: number }>(
    `SELECT user_id, stream_id FROM device_lists_outbound_last_success
     WHERE destination = ? AND ${db.dialect.anyOf('user_id')}`,
    [destination, userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.stream_id]));
}

/** A server has got everything up to a place. @param last the place of each user's last change among it */
export async function pokesDelivered(
  tx: Tx,
  destination: string,
  upTo: number,
  last: ReadonlyMap<string, number>,
): Promise<void> {
  await tx.run('DELETE FROM device_lists_outbound_pokes WHERE destination = ? AND stream_id <= ?', [destination, upTo]);
  await tx.insertMany(
    'device_lists_outbound_last_success',
    ['destination', 'user_id', 'stream_id'],
    [...last].map(([userId, streamId]) => [destination, userId, streamId]),
    'ON CONFLICT (destination, user_id) DO UPDATE SET stream_id = excluded.stream_id',
  );
}
