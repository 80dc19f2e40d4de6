import { type Db, givenRows, type Tx } from '@rookery/database';

/** A device that was seen at an address. */
export interface Sighting {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly ip: string;
  readonly userAgent: string;
  readonly seenMs: number;
}

const keyOf = ({ userId, deviceId = '', ip }: Sighting): string => `${userId}\n${deviceId}\n${ip}`;

/** Upserts the addresses and the devices' last sightings. What was seen later stays, in whichever order batches come. */
export async function recordActivity(tx: Tx, batch: readonly Sighting[]): Promise<void> {
  // All processes lock rows in one order: otherwise two of them could wait for each other.
  const sightings = batch.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
  await tx.insertMany(
    'user_ips',
    ['user_id', 'device_id', 'ip', 'user_agent', 'last_seen'],
    sightings.map((one) => [one.userId, one.deviceId ?? '', one.ip, one.userAgent, one.seenMs]),
    `ON CONFLICT (user_id, device_id, ip) DO UPDATE SET user_agent = excluded.user_agent, last_seen = excluded.last_seen
     WHERE user_ips.last_seen <= excluded.last_seen`,
  );
  const latest = new Map<string, Sighting & { readonly deviceId: string }>();
  for (const { deviceId, ...one } of sightings) {
    if (deviceId === undefined) continue;
    const key = `${one.userId}\n${deviceId}`;
    if ((latest.get(key)?.seenMs ?? 0) <= one.seenMs) latest.set(key, { ...one, deviceId });
  }
  // A device that went meanwhile, or is just going, is not brought back.
  const known = new Set<string>();
  const seen = [...latest.values()];
  const lock = tx.dialect.name === 'postgres' ? ' ORDER BY d.user_id, d.device_id FOR KEY SHARE OF d' : '';
  const pairs = seen.map(({ userId, deviceId }) => [userId, deviceId]);
  const wanted = givenRows(tx, ['user_id', 'device_id'], pairs);
  for (const row of await tx.query<{ user_id: string; device_id: string }>(
    `SELECT d.user_id, d.device_id FROM ${wanted.sql} CROSS JOIN devices d
     WHERE d.user_id = w.user_id AND d.device_id = w.device_id${lock}`,
    [wanted.value],
  )) {
    known.add(`${row.user_id}\n${row.device_id}`);
  }
  const rows = [...latest]
    .filter(([key]) => known.has(key))
    .map(([, one]) => [one.userId, one.deviceId, one.seenMs, one.ip, one.userAgent]);
  if (rows.length === 0) return;
  await tx.insertMany(
    'devices',
    ['user_id', 'device_id', 'last_seen', 'ip', 'user_agent'],
    rows,
    `ON CONFLICT (user_id, device_id) DO UPDATE
     SET last_seen = excluded.last_seen, ip = excluded.ip, user_agent = excluded.user_agent
     WHERE devices.last_seen IS NULL OR devices.last_seen <= excluded.last_seen`,
  );
}

/** An address from which a user was active. */
export interface UserAddress {
  readonly device_id: string;
  readonly ip: string;
  readonly user_agent: string;
  /** Milliseconds. */
  readonly last_seen: number;
}

/** The addresses of a user since a moment, newest first, at most a thousand. */
export async function addressesOf(db: Db, userId: string, sinceMs = 0): Promise<UserAddress[]> {
  return db.query(
    'SELECT device_id, ip, user_agent, last_seen FROM user_ips WHERE user_id = ? AND last_seen >= ? ORDER BY last_seen DESC LIMIT 1000',
    [userId, sinceMs],
  );
}

/** Forgets addresses older than a moment. @returns how many */
export async function pruneAddresses(tx: Tx, beforeMs: number): Promise<number> {
  return tx.run('DELETE FROM user_ips WHERE last_seen < ?', [beforeMs]);
}

/** Users who were seen between two moments, by id, with the application service that made their account; else `native`. */
export async function activeUsersByService(
  db: Db,
  startMs: number,
  endMs: number,
): Promise<{ readonly service: string; readonly userId: string }[]> {
  const rows = await db.query<{ user_id: string; appservice_id: string | null }>(
    `SELECT u.name AS user_id, u.appservice_id FROM users u
     WHERE EXISTS (SELECT 1 FROM user_ips i WHERE i.user_id = u.name AND i.last_seen >= ? AND i.last_seen <= ?)
     ORDER BY u.name`,
    [startMs, endMs],
  );
  return rows.map((row) => ({ service: row.appservice_id ?? 'native', userId: row.user_id }));
}

/** How many users made a request since a time. */
export async function countActiveUsers(db: Db, sinceMs: number): Promise<number> {
  const row = await db.get<{ total: number }>(
    'SELECT COUNT(DISTINCT user_id) AS total FROM user_ips WHERE last_seen > ?',
    [sinceMs],
  );
  return Number(row?.total ?? 0);
}
