import type { Db, Tx } from '@rookery/database';
import type { Regrouped } from './own-rules.js';

/** So many changes of one user in one room are remembered; older messages are then as if there had been none before. */
const maxPerUser = 100;
/** So many rows go with one purge of events. */
const maxCollected = 1_000;

/** The users of a room by the group that they are in. */
export async function selectGroups(db: Db, roomId: string): Promise<Map<string, string>> {
  const rows = await db.query<{ user_id: string; rules: string }>(
    'SELECT user_id, rules FROM push_rule_groups WHERE room_id = ? AND until IS NULL',
    [roomId],
  );
  return new Map(rows.map((row) => [row.user_id, row.rules]));
}

/** The groups that a user is in, by room. */
export async function selectGroupsOf(db: Db, userId: string, roomIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await db.query<{ room_id: string; rules: string }>(
    `SELECT room_id, rules FROM push_rule_groups WHERE user_id = ? AND ${db.dialect.anyOf('room_id')} AND until IS NULL`,
    [userId, roomIds],
  );
  return new Map(rows.map((row) => [row.room_id, row.rules]));
}

/** From a position on users are in other groups of a room. Events before it go on referring to what was. */
export async function writeGroups(tx: Tx, roomId: string, since: number, regrouped: Regrouped): Promise<void> {
  if (regrouped.size === 0) return;
  const userIds = [...regrouped.keys()];
  const these = `room_id = ? AND ${tx.dialect.anyOf('user_id')}`;
  await tx.exec(`UPDATE push_rule_groups SET until = ? WHERE ${these} AND until IS NULL`, [since, roomId, userIds]);
  await tx.exec(
    `DELETE FROM push_rule_groups WHERE ${these} AND (
       until <= (SELECT m.joined_at FROM push_read_marks m WHERE m.user_id = push_rule_groups.user_id
         AND m.room_id = push_rule_groups.room_id AND m.thread_id = '')
       OR since <= (SELECT o.since FROM push_rule_groups o WHERE o.user_id = push_rule_groups.user_id
         AND o.room_id = push_rule_groups.room_id ORDER BY o.since DESC LIMIT 1 OFFSET ${maxPerUser}))`,
    [roomId, userIds],
  );
  await tx.insertMany(
    'push_rule_groups',
    ['user_id', 'room_id', 'since', 'rules'],
    [...regrouped].flatMap(([userId, rules]) => (rules === undefined ? [] : [[userId, roomId, since, rules]])),
    'ON CONFLICT (user_id, room_id, since) DO UPDATE SET rules = excluded.rules, until = NULL',
  );
}

/** Deletes what only events refer to that are about to go. */
export async function collectGroups(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
  await tx.exec(
    `DELETE FROM push_rule_groups WHERE (user_id, room_id, since) IN (
       SELECT g.user_id, g.room_id, g.since FROM push_rule_groups g
       WHERE g.room_id = ? AND g.until <= (SELECT MAX(stream_ordering) + 1 FROM events WHERE ${tx.dialect.anyOf('event_id')})
         AND NOT EXISTS (SELECT 1 FROM events e WHERE e.room_id = g.room_id AND e.stream_ordering >= g.since
           AND e.stream_ordering < g.until AND e.push_except IS NOT NULL AND NOT (${tx.dialect.anyOf('e.event_id')}))
       LIMIT ${maxCollected})`,
    [roomId, eventIds, eventIds],
  );
}

/** Forgets everything about a room. */
export async function deleteGroups(tx: Tx, roomId: string): Promise<void> {
  await tx.exec('DELETE FROM push_rule_groups WHERE room_id = ?', [roomId]);
}
