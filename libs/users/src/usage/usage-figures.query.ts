import type { Db, Tx } from '@rookery/database';

const dayMs = 86_400_000;

/** How many accounts there are, and who of them was there. */
export interface UserFigures {
  /** Accounts in use; guests and application services' users among them. */
  readonly total: number;
  /** Those that no application service made. */
  readonly nonbridged: number;
  /** Accounts made within the last day. */
  readonly madeToday: { readonly native: number; readonly guest: number; readonly bridged: number };
  /** Users seen within the last day, and within thirty. */
  readonly activeToday: number;
  readonly activeThisMonth: number;
}

/** Counts accounts. Reads the table of accounts once and the addresses of a month: for reports, not for requests. */
export async function userFigures(db: Db, nowMs: number): Promise<UserFigures> {
  const [accounts, seen] = await Promise.all([
    db.query<{ kind: 'native' | 'guest' | 'bridged'; total: number; made: number }>(
      `SELECT CASE WHEN appservice_id IS NOT NULL THEN 'bridged' WHEN is_guest = TRUE THEN 'guest' ELSE 'native' END AS kind,
         COUNT(*) AS total, COUNT(CASE WHEN creation_ts > ? THEN 1 END) AS made
       FROM users WHERE deactivated = FALSE GROUP BY 1`,
      [nowMs - dayMs],
    ),
    db.get<{ today: number; month: number }>(
      `SELECT COUNT(DISTINCT CASE WHEN last_seen > ? THEN user_id END) AS today, COUNT(DISTINCT user_id) AS month
       FROM user_ips WHERE last_seen > ?`,
      [nowMs - dayMs, nowMs - 30 * dayMs],
    ),
  ]);
  const of = (kind: string, column: 'total' | 'made'): number =>
    Number(accounts.find((row) => row.kind === kind)?.[column] ?? 0);
  const total = accounts.reduce((sum, row) => sum + Number(row.total), 0);
  return {
    total,
    nonbridged: total - of('bridged', 'total'),
    madeToday: { native: of('native', 'made'), guest: of('guest', 'made'), bridged: of('bridged', 'made') },
    activeToday: Number(seen?.today ?? 0),
    activeThisMonth: Number(seen?.month ?? 0),
  };
}

/** Clients that the field's usage reports tell apart. */
export type ClientKind = 'android' | 'electron' | 'ios' | 'web';

/**
 * Users who came back: seen within the last sixty days on two days that lie thirty or more apart, by the client they used and
 * altogether.
 */
export async function returningUsers(db: Db, nowMs: number): Promise<Record<'all' | ClientKind, number>> {
  const client = `CASE WHEN LOWER(user_agent) LIKE '%electron%' THEN 'electron' WHEN LOWER(user_agent) LIKE '%android%' THEN 'android'
    WHEN LOWER(user_agent) LIKE '%ios%' OR LOWER(user_agent) LIKE '%iphone%' THEN 'ios'
    WHEN LOWER(user_agent) LIKE '%mozilla%' OR LOWER(user_agent) LIKE '%gecko%' THEN 'web' ELSE 'unknown' END`;
  const apart = 'MAX(timestamp) - MIN(timestamp) >= ?';
  const bounds = [nowMs - 60 * dayMs, 30 * dayMs];
  const [byClient, all] = await Promise.all([
    db.query<{ client: string; total: number }>(
      `SELECT client, COUNT(*) AS total FROM (
         SELECT user_id, client FROM (SELECT user_id, timestamp, ${client} AS client FROM user_daily_visits WHERE timestamp > ?) AS visits
         GROUP BY user_id, client HAVING ${apart}) AS returning_users GROUP BY client`,
      bounds,
    ),
    db.get<{ total: number }>(
      `SELECT COUNT(*) AS total FROM (
         SELECT user_id FROM user_daily_visits WHERE timestamp > ? GROUP BY user_id HAVING ${apart}) AS returning_users`,
      bounds,
    ),
  ]);
  const of = (kind: ClientKind): number => Number(byClient.find((row) => row.client === kind)?.total ?? 0);
  return {
    all: Number(all?.total ?? 0),
    android: of('android'),
    electron: of('electron'),
    ios: of('ios'),
    web: of('web'),
  };
}

/** Notes once for each device and day who was there since the day began, UTC. Application services' users do not count. */
export async function noteDailyVisits(tx: Tx, nowMs: number): Promise<void> {
  const today = nowMs - (nowMs % dayMs);
  await tx.run(
    `INSERT INTO user_daily_visits (user_id, device_id, timestamp, user_agent)
     SELECT i.user_id, i.device_id, CAST(? AS BIGINT), MAX(i.user_agent) FROM user_ips i JOIN users u ON u.name = i.user_id
     WHERE i.last_seen >= ? AND u.appservice_id IS NULL GROUP BY i.user_id, i.device_id
     ON CONFLICT (user_id, timestamp, device_id) DO NOTHING`,
    [today, today],
  );
}

/** Forgets visits that no figure asks for any more. */
export async function forgetDailyVisits(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('DELETE FROM user_daily_visits WHERE timestamp < ?', [nowMs - 90 * dayMs]);
}
