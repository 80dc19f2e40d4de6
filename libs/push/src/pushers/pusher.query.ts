import type { Db, SqlBool, Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { contains } from '../actions/push-actions.query.js';
import type { Pusher, PusherKey, PusherSettings } from './pusher.js';

interface PusherRow {
  readonly id: number;
  readonly user_name: string;
  readonly device_id: string | null;
  readonly profile_tag: string;
  readonly kind: 'http' | 'email';
  readonly app_id: string;
  readonly app_display_name: string;
  readonly device_display_name: string;
  readonly pushkey: string;
  readonly ts: number;
  readonly lang: string | null;
  readonly data: string;
  readonly enabled: SqlBool;
  readonly last_stream_ordering: number;
  readonly failing_since: number | null;
  readonly due_after: number | null;
  readonly due_up_to: number | null;
}

const columns = `id, user_name, device_id, profile_tag, kind, app_id, app_display_name, device_display_name, pushkey, ts,
  lang, data, enabled, last_stream_ordering, failing_since, due_after, due_up_to`;

const fromRow = (row: PusherRow): Pusher => ({
  id: row.id,
  userId: row.user_name,
  deviceId: row.device_id ?? undefined,
  profileTag: row.profile_tag,
  kind: row.kind,
  appId: row.app_id,
  appDisplayName: row.app_display_name,
  deviceDisplayName: row.device_display_name,
  pushkey: row.pushkey,
  ts: row.ts,
  lang: row.lang ?? 'en',
  data: JSON.parse(row.data) as JsonObject,
  enabled: !!row.enabled,
  lastStreamOrdering: row.last_stream_ordering,
  failingSince: row.failing_since ?? undefined,
  due: row.due_up_to === null ? undefined : { after: row.due_after ?? row.last_stream_ordering, upTo: row.due_up_to },
});

/** A user's pushers, the oldest first. */
export async function pushersOf(db: Db, userId: string): Promise<Pusher[]> {
  const rows = await db.query<PusherRow>(`SELECT ${columns} FROM pushers WHERE user_name = ? ORDER BY id`, [userId]);
  return rows.map(fromRow);
}

/** One pusher, while it exists. */
export async function findPusher(db: Db, id: number): Promise<Pusher | undefined> {
  const row = await db.get<PusherRow>(`SELECT ${columns} FROM pushers WHERE id = ?`, [id]);
  return row && fromRow(row);
}

/** The highest id, and whether there is any. */
export async function highestPusher(db: Db): Promise<number> {
  return (await db.get<{ top: number | null }>('SELECT MAX(id) AS top FROM pushers'))?.top ?? 0;
}

/** Whose pusher it is, and from where on it sends. */
export interface PusherOwner {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly accessTokenId: number | undefined;
  readonly ts: number;
  /** A pusher that is new, or was switched off, sends what comes after this position. */
  readonly position: number;
}

/**
 * Sets a pusher up, or changes it.
 * @param keepsOwner whether it stays with the device that set it up, whichever changes it
 */
export async function upsertPusher(
  tx: Tx,
  id: number,
  settings: PusherSettings,
  owner: PusherOwner,
  keepsOwner = false,
): Promise<void> {
  const source = keepsOwner ? 'pushers' : 'excluded';
  await tx.run(
    `INSERT INTO pushers (id, user_name, access_token, device_id, profile_tag, kind, app_id, app_display_name,
       device_display_name, pushkey, ts, lang, data, enabled, last_stream_ordering)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (app_id, pushkey, user_name) DO UPDATE SET access_token = ${source}.access_token,
       device_id = ${source}.device_id, profile_tag = excluded.profile_tag, kind = excluded.kind,
       app_display_name = excluded.app_display_name, device_display_name = excluded.device_display_name, ts = excluded.ts,
       lang = excluded.lang, data = excluded.data, enabled = excluded.enabled,
       due_after = CASE WHEN excluded.enabled THEN pushers.due_after END,
       due_up_to = CASE WHEN excluded.enabled THEN pushers.due_up_to END, failing_since = NULL,
       last_stream_ordering = CASE WHEN pushers.enabled THEN pushers.last_stream_ordering
         ELSE excluded.last_stream_ordering END`,
    [
      id,
      owner.userId,
      owner.accessTokenId ?? null,
      owner.deviceId ?? null,
      settings.profileTag,
      settings.kind,
      settings.appId,
      settings.appDisplayName,
      settings.deviceDisplayName,
      settings.pushkey,
      owner.ts,
      settings.lang,
      JSON.stringify(settings.data),
      settings.enabled,
      owner.position,
    ],
  );
}

/** Deletes pushers that a user has for one app. */
export async function deletePushers(tx: Tx, userId: string, appId: string, pushkeys: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM pushers WHERE user_name = ? AND app_id = ? AND ${tx.dialect.anyOf('pushkey')}`, [
    userId,
    appId,
    pushkeys,
  ]);
}

/** Deletes the pushers that others have for the same key. */
export async function deletePushersOfOthers(tx: Tx, userId: string, key: PusherKey): Promise<void> {
  await tx.run('DELETE FROM pushers WHERE user_name <> ? AND app_id = ? AND pushkey = ?', [
    userId,
    key.appId,
    key.pushkey,
  ]);
}

/** Deletes what was set up by devices or tokens that are gone. */
export async function deletePushersOfSessions(
  tx: Tx,
  userId: string,
  deviceIds: readonly string[],
  accessTokenIds: readonly number[],
): Promise<void> {
  await tx.run(
    `DELETE FROM pushers WHERE user_name = ? AND
       (${tx.dialect.anyOf('device_id')} OR (device_id IS NULL AND ${tx.dialect.anyOf('access_token')}))`,
    [userId, deviceIds, accessTokenIds],
  );
}

/** Deletes all of a user's. */
export async function deleteAllPushers(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM pushers WHERE user_name = ?', [userId]);
}

/** Deletes one that its gateway refused, unless it was set up anew meanwhile. */
export async function deleteRejected(tx: Tx, { id, ts }: Pick<Pusher, 'id' | 'ts'>): Promise<void> {
  await tx.run('DELETE FROM pushers WHERE id = ? AND ts = ?', [id, ts]);
}

/** Users with a pusher whom something concerns that lies in `(after, upTo]`; some may turn out to be spared. */
export async function usersToPush(db: Db, after: number, upTo: number): Promise<string[]> {
  const rows = await db.query<{ user_name: string }>(
    `SELECT p.user_name FROM event_push_actions a JOIN pushers p ON p.user_name = a.user_id
     WHERE a.stream_ordering > ? AND a.stream_ordering <= ?
     UNION
     SELECT p.user_name FROM (
         SELECT room_id, push_except, MIN(stream_ordering) AS oldest, MAX(stream_ordering) AS newest,
           MIN(sender) AS sender, MAX(sender) AS other FROM events
         WHERE stream_ordering > ? AND stream_ordering <= ? AND push_thread IS NOT NULL
         GROUP BY room_id, push_except) AS e
       JOIN local_current_membership m ON m.room_id = e.room_id AND m.membership = 'join'
         AND (m.user_id <> e.sender OR e.sender <> e.other)
       JOIN pushers p ON p.user_name = m.user_id
     WHERE e.push_except IS NULL OR NOT EXISTS (
       SELECT 1 FROM push_rule_groups g WHERE g.user_id = m.user_id AND g.room_id = m.room_id
         AND g.since <= e.oldest AND (g.until IS NULL OR g.until > e.newest)
         AND ${contains(db.dialect, 'e.push_except', `'"' || g.rules || '"'`)})`,
    [after, upTo, after, upTo],
  );
  return rows.map((row) => row.user_name);
}

/** Notes that users' pushers, those that are not switched off, have something to send; a note that is there already is extended. */
export async function markDue(tx: Tx, userIds: readonly string[], after: number, upTo: number): Promise<void> {
  await tx.run(
    `UPDATE pushers SET due_after = COALESCE(due_after, ?), due_up_to = ?
     WHERE enabled = TRUE AND ${tx.dialect.anyOf('user_name')}`,
    [after, upTo, userIds],
  );
}

/** A pusher, and whose it is. */
export interface DuePusher {
  readonly id: number;
  readonly userId: string;
}

/** HTTP pushers with something to send; of some users, or all. */
export async function duePushers(db: Db, userIds?: readonly string[]): Promise<DuePusher[]> {
  const rows = await db.query<{ id: number; user_name: string }>(
    `SELECT id, user_name FROM pushers WHERE due_up_to IS NOT NULL AND kind = 'http' AND enabled = TRUE ${userIds ? `AND ${db.dialect.anyOf('user_name')}` : ''} ORDER BY id`,
    userIds ? [userIds] : [],
  );
  return rows.map((row) => ({ id: row.id, userId: row.user_name }));
}

/** Which of some users have HTTP pushers that are switched on. */
export async function haveBadges(db: Db, userIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ user_name: string }>(
    `SELECT DISTINCT user_name FROM pushers WHERE kind = 'http' AND enabled = TRUE AND ${db.dialect.anyOf('user_name')}`,
    [userIds],
  );
  return rows.map((row) => row.user_name);
}

/** Everything up to a position was sent: clears the note, unless it was extended meanwhile. */
export async function clearDue(tx: Tx, id: number, upTo: number): Promise<void> {
  await tx.run('UPDATE pushers SET last_stream_ordering = ? WHERE id = ? AND last_stream_ordering < ?', [
    upTo,
    id,
    upTo,
  ]);
  await tx.run('UPDATE pushers SET due_after = NULL, due_up_to = NULL WHERE id = ? AND due_up_to = ?', [id, upTo]);
}

/** Something was sent. */
export async function recordSuccess(tx: Tx, id: number, position: number, nowMs: number): Promise<void> {
  await tx.run('UPDATE pushers SET last_stream_ordering = ?, last_success = ?, failing_since = NULL WHERE id = ?', [
    position,
    nowMs,
    id,
  ]);
}

/** Nothing gets through; the first time counts. */
export async function recordFailure(tx: Tx, id: number, nowMs: number): Promise<void> {
  await tx.run('UPDATE pushers SET failing_since = COALESCE(failing_since, ?) WHERE id = ?', [nowMs, id]);
}

/** Most kinds of pushers that are told apart: clients choose the names. */
const maxApps = 100;

/** How many pushers there are of each kind and app, the most used first. */
export async function countPushers(
  db: Db,
): Promise<{ readonly kind: string; readonly appId: string; readonly total: number }[]> {
  const rows = await db.query<{ kind: string; app_id: string; total: number }>(
    `SELECT kind, app_id, COUNT(*) AS total FROM pushers GROUP BY kind, app_id ORDER BY COUNT(*) DESC LIMIT ${maxApps}`,
  );
  return rows.map((row) => ({ kind: row.kind, appId: row.app_id, total: Number(row.total) }));
}
