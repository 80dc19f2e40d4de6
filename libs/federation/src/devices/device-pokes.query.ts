import { type Db, distinctValues, type SqlBool, type Tx } from '@rookery/database';

/** A change of a device, or an introduction, on its way to a server. */
export interface DevicePoke {
  readonly userId: string;
  /** {@link wholeList} in an introduction. */
  readonly deviceId: string;
  readonly streamId: number;
}

/**
 * Stands for a device in introductions: the server is to ask for the whole list, whatever it was told before. Its place is that of the
 * latest change.
 */
export const wholeList = '';

/** One that waits. */
export interface WaitingPoke extends DevicePoke {
  /** It is no device: a cross-signing key of the user changed, which has no place in the chain of what a server is told. */
  readonly isKey: boolean;
}

/** Whether a poke is of a cross-signing key: its id is reserved among those of the user's devices. */
const isKey = (poke: string): string =>
  `EXISTS (SELECT 1 FROM devices k WHERE k.user_id = ${poke}.user_id AND k.device_id = ${poke}.device_id AND k.hidden = TRUE)`;

/** What a server has not taken for so long it need not be told change by change any more; milliseconds. */
const wholeMs = 86_400_000;
/** Changes that are given up at once, where servers were away. */
const maxGivenUp = 5_000;

/**
 * Queues changes for servers; of each device only the latest is kept. No server and device twice. Of users of whom something waits for
 * longer than a day, nothing but what came later is kept: a server that hears of it sees that it has missed something, and asks for the
 * whole list. So what waits for servers that never come back does not grow with every device that their users' friends ever had.
 */
export async function insertPokes(
  tx: Tx,
  pokes: readonly (DevicePoke & { readonly destination: string })[],
  nowMs: number,
): Promise<void> {
  await tx.insertMany(
    'device_lists_outbound_pokes',
    ['destination', 'stream_id', 'user_id', 'device_id', 'ts'],
    pokes.map((poke) => [poke.destination, poke.streamId, poke.userId, poke.deviceId, nowMs]),
    // An introduction may tell of a change that is older than what waits already.
    `ON CONFLICT (destination, user_id, device_id) DO UPDATE SET stream_id = excluded.stream_id, ts = excluded.ts
       WHERE device_lists_outbound_pokes.stream_id < excluded.stream_id`,
  );
  const destinations = [...new Set(pokes.map(({ destination }) => destination))];
  const userIds = [...new Set(pokes.map(({ userId }) => userId))];
  const { anyOf } = tx.dialect;
  const givenUp = await tx.query<{ destination: string; user_id: string; stream_id: number }>(
    `DELETE FROM device_lists_outbound_pokes WHERE (destination, user_id, device_id) IN (
       SELECT o.destination, o.user_id, o.device_id FROM device_lists_outbound_pokes o
       WHERE ${anyOf('o.destination')} AND ${anyOf('o.user_id')} AND o.ts < ? AND EXISTS (
         SELECT 1 FROM device_lists_outbound_pokes n WHERE n.destination = o.destination AND n.user_id = o.user_id
           AND n.stream_id > o.stream_id AND NOT ${isKey('n')})
       LIMIT ${maxGivenUp})
     RETURNING destination, user_id, stream_id`,
    [destinations, userIds, nowMs - wholeMs],
  );
  // The next change is said to follow upon one that the server never got.
  const latest = new Map<string, readonly [destination: string, userId: string, streamId: number]>();
  for (const { destination, user_id: userId, stream_id: streamId } of givenUp) {
    const key = `${destination}\n${userId}`;
    if ((latest.get(key)?.[2] ?? 0) < streamId) latest.set(key, [destination, userId, streamId]);
  }
  await raiseLastPokes(tx, [...latest.values()]);
}

/** Notes the place of the change of a user that a server got last, or was to get; never an earlier one. No server and user twice. */
async function raiseLastPokes(
  tx: Tx,
  rows: readonly (readonly [destination: string, userId: string, streamId: number])[],
): Promise<void> {
  await tx.insertMany(
    'device_lists_outbound_last_success',
    ['destination', 'user_id', 'stream_id'],
    rows,
    `ON CONFLICT (destination, user_id) DO UPDATE SET stream_id = excluded.stream_id
       WHERE device_lists_outbound_last_success.stream_id < excluded.stream_id`,
  );
}

/** What waits for a server, oldest first. */
export async function pokesFor(db: Db, destination: string, limit: number): Promise<WaitingPoke[]> {
  const rows = await db.query<{ user_id: string; device_id: string; stream_id: number; is_key: SqlBool }>(
    `SELECT p.user_id, p.device_id, p.stream_id, ${isKey('p')} AS is_key FROM device_lists_outbound_pokes p
     WHERE p.destination = ? ORDER BY p.stream_id LIMIT ${Math.trunc(limit)}`,
    [destination],
  );
  return rows.map((row) => ({
    ...{ userId: row.user_id, deviceId: row.device_id, streamId: row.stream_id, isKey: Boolean(row.is_key) },
  }));
}

/** Servers for which something waits. */
export function pokedServers(db: Db): Promise<string[]> {
  return distinctValues(db, 'device_lists_outbound_pokes', 'destination');
}

/**
 * The place of the change of a user of which a server was told last once it has all that waits for it; `undefined` where it was told of
 * none, and nothing waits.
 */
export async function lastPokeWaiting(db: Db, destination: string, userId: string): Promise<number | undefined> {
  const rows = await db.query<{ stream_id: number }>(
    `SELECT stream_id FROM device_lists_outbound_last_success WHERE destination = ? AND user_id = ?
     UNION ALL
     SELECT p.stream_id FROM device_lists_outbound_pokes p
     WHERE p.destination = ? AND p.user_id = ? AND NOT ${isKey('p')}`,
    [destination, userId, destination, userId],
  );
  return rows.length === 0 ? undefined : Math.max(...rows.map((row) => row.stream_id));
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

/** The device of a user that changed last, and the place of the latest change of any; `undefined` where nothing ever changed. */
export interface LatestDevice {
  readonly userId: string;
  readonly deviceId: string;
  readonly changedAt: number | undefined;
}

/** The devices of some users that changed last; whoever has none is absent. */
export async function latestDevices(db: Db, userIds: readonly string[]): Promise<LatestDevice[]> {
  const rows = await db.query<{ user_id: string; device_id: string; latest: number | null }>(
    `SELECT d.user_id, d.device_id,
       (SELECT MAX(s.stream_id) FROM device_lists_stream s WHERE s.user_id = d.user_id) AS latest
     FROM devices d WHERE ${db.dialect.anyOf('d.user_id')} AND d.hidden = FALSE
     ORDER BY (SELECT COALESCE(MAX(s.stream_id), 0) FROM device_lists_stream s
       WHERE s.user_id = d.user_id AND s.device_id = d.device_id)`,
    [userIds],
  );
  const devices = rows.map((row) => ({
    ...{ userId: row.user_id, deviceId: row.device_id },
    changedAt: row.latest ?? undefined,
  }));
  return [...new Map(devices.map((device) => [device.userId, device])).values()];
}

/** Those of some servers that were told of a user, as of a place or later. */
export async function serversTold(
  db: Db,
  servers: readonly string[],
  userId: string,
  streamId: number,
): Promise<Set<string>> {
  const rows = await db.query<{ destination: string }>(
    `SELECT destination FROM device_lists_outbound_last_success
     WHERE ${db.dialect.anyOf('destination')} AND user_id = ? AND stream_id >= ?`,
    [servers, userId, streamId],
  );
  return new Set(rows.map((row) => row.destination));
}

/** A server has got some changes. @param last the place of the last one of each of their users that it got */
export async function pokesDelivered(
  tx: Tx,
  destination: string,
  pokes: readonly DevicePoke[],
  last: ReadonlyMap<string, number>,
): Promise<void> {
  // Not all up to the last of them: older ones of others may have come meanwhile. No two changes have one place, but introductions
  // have that of a change.
  for (const [isOne, some] of [
    ['=', pokes.filter(({ deviceId }) => deviceId === wholeList)],
    ['<>', pokes.filter(({ deviceId }) => deviceId !== wholeList)],
  ] as const)
    if (some.length > 0)
      await tx.run(
        `DELETE FROM device_lists_outbound_pokes WHERE destination = ? AND device_id ${isOne} ?
           AND ${tx.dialect.anyOf('stream_id')} AND ${tx.dialect.anyOf('user_id')}`,
        [
          ...[destination, wholeList, some.map(({ streamId }) => streamId)],
          [...new Set(some.map(({ userId }) => userId))],
        ],
      );
  await raiseLastPokes(
    tx,
    [...last].map(([userId, streamId]) => [destination, userId, streamId]),
  );
}
