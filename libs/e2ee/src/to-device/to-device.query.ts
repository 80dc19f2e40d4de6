import { type Db, distinctValues, givenRows, type Tx } from '@rookery/database';
import { batchesBySize } from '@rookery/platform';
import { devicesOfUsers } from '@rookery/users';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** What is put into inboxes in one turn of the event loop: messages, and characters of them. */
const messagesPerTurn = 1_000;
const charsPerTurn = 1_048_576;

/**
 * Behind a position, and behind what is left of a deleted device of the same name. The parameters are the position, the user and the device.
 */
const behind = `stream_id > (SELECT MAX(p.stream_id) FROM (SELECT CAST(? AS BIGINT) AS stream_id
  UNION ALL SELECT l.stream_id FROM device_inboxes_left l WHERE l.user_id = ? AND l.device_id = ?) AS p)`;

/** A message in the inbox of one device. */
export interface InboxMessage {
  readonly userId: string;
  readonly deviceId: string;
  /** `{"type": …, "sender": …, "content": …}` */
  readonly json: string;
}

/** A message in an inbox, with its place in the stream `to_device`. */
export interface StoredMessage {
  readonly position: number;
  readonly json: string;
}

/** What waits to be sent to another server. */
export interface OutboxMessage {
  readonly destination: string;
  readonly position: number;
  /** The content of an `m.direct_to_device` EDU. */
  readonly json: string;
}

/** The devices of users, cross-signing keys left out. None is deleted before the transaction ends: what it puts into their inboxes goes with them. */
export async function devicesOf(tx: Tx, userIds: readonly string[]): Promise<Map<string, string[]>> {
  const devices = new Map<string, string[]>();
  for (const { userId, deviceId } of await devicesOfUsers(tx, userIds, { held: true })) {
    const list = devices.get(userId);
    if (list) list.push(deviceId);
    else devices.set(userId, [deviceId]);
  }
  return devices;
}

/** Puts messages into inboxes, a part in each turn of the event loop; one device at most once. */
export async function insertMessages(tx: Tx, streamId: number, messages: readonly InboxMessage[]): Promise<void> {
  const parts = batchesBySize(messages, ({ json }) => json.length, charsPerTurn, messagesPerTurn);
  for (const [index, part] of parts.entries()) {
    if (index > 0) await nextTurn();
    await tx.insertMany(
      'device_inbox',
      ['user_id', 'device_id', 'stream_id', 'message_json'],
      part.map((message) => [message.userId, message.deviceId, streamId, message.json]),
    );
  }
}

/** Messages of a device with `after < position <= upTo`, ascending, at most `limit`. */
export async function messagesOf(
  db: Db,
  userId: string,
  deviceId: string,
  after: number,
  upTo: number,
  limit: number,
): Promise<StoredMessage[]> {
  const rows = await db.query<{ stream_id: number; message_json: string }>(
    `SELECT stream_id, message_json FROM device_inbox
     WHERE user_id = ? AND device_id = ? AND ${behind} AND stream_id <= ? ORDER BY stream_id LIMIT ?`,
    [userId, deviceId, after, userId, deviceId, upTo, limit],
  );
  return rows.map((row) => ({ position: row.stream_id, json: row.message_json }));
}

/** Whether a device has messages up to a position. */
export async function hasMessages(db: Db, userId: string, deviceId: string, upTo: number): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM device_inbox WHERE user_id = ? AND device_id = ? AND ${behind} AND stream_id <= ? LIMIT 1`,
    [userId, deviceId, 0, userId, deviceId, upTo],
  );
  return row !== undefined;
}

/** Deletes a device's messages up to a position. */
export async function deleteMessages(tx: Tx, userId: string, deviceId: string, upTo: number): Promise<void> {
  await tx.run(`DELETE FROM device_inbox WHERE user_id = ? AND device_id = ? AND ${behind} AND stream_id <= ?`, [
    ...[userId, deviceId, 0, userId, deviceId, upTo],
  ]);
}

/**
 * Deletes messages of devices, and what is known of their requests. Where there are more than `limit` messages, the others stay, which nobody
 * gets any more, and of which it is noted that they are to be deleted: {@link nextLeftInbox}.
 */
export async function deleteInboxes(
  tx: Tx,
  userId: string,
  deviceIds: readonly string[],
  limit: number,
): Promise<void> {
  const deleted = await tx.run(
    `DELETE FROM device_inbox WHERE (user_id, device_id, stream_id) IN (
       SELECT user_id, device_id, stream_id FROM device_inbox WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}
       LIMIT ${Math.trunc(limit)})`,
    [userId, deviceIds],
  );
  if (deleted === limit) {
    const pairs = deviceIds.map((deviceId) => [userId, deviceId]);
    const devices = givenRows(tx, ['user_id', 'device_id'], pairs);
    const inbox = 'FROM device_inbox i WHERE i.user_id = w.user_id AND i.device_id = w.device_id';
    await tx.run(
      `INSERT INTO device_inboxes_left (user_id, device_id, stream_id)
       SELECT w.user_id, w.device_id, (SELECT MAX(i.stream_id) ${inbox}) FROM ${devices.sql} WHERE EXISTS (SELECT 1 ${inbox})
       ON CONFLICT (user_id, device_id) DO UPDATE SET stream_id = excluded.stream_id`,
      [devices.value],
    );
  }
  await tx.run(`DELETE FROM to_device_transactions WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [
    userId,
    deviceIds,
  ]);
}

/** What is left of an inbox, up to a position. */
export interface LeftInbox {
  readonly userId: string;
  readonly deviceId: string;
  readonly upTo: number;
}

/** An inbox of a deleted device with messages that are to be deleted. */
export async function nextLeftInbox(db: Db): Promise<LeftInbox | undefined> {
  const row = await db.get<{ user_id: string; device_id: string; stream_id: number }>(
    'SELECT user_id, device_id, stream_id FROM device_inboxes_left LIMIT 1',
  );
  return row && { userId: row.user_id, deviceId: row.device_id, upTo: row.stream_id };
}

/** Deletes messages of an inbox that was left, at most `limit`, and with the last ones what is noted of it. @returns whether it was all */
export async function deleteSomeLeft(tx: Tx, { userId, deviceId, upTo }: LeftInbox, limit: number): Promise<boolean> {
  const deleted = await tx.run(
    `DELETE FROM device_inbox WHERE (user_id, device_id, stream_id) IN (
       SELECT user_id, device_id, stream_id FROM device_inbox WHERE user_id = ? AND device_id = ? AND stream_id <= ?
       LIMIT ${Math.trunc(limit)})`,
    [userId, deviceId, upTo],
  );
  if (deleted >= limit) return false;
  // Unless another device of that name has gone since.
  await tx.run('DELETE FROM device_inboxes_left WHERE user_id = ? AND device_id = ? AND stream_id = ?', [
    ...[userId, deviceId, upTo],
  ]);
  return true;
}

/** Notes a client's request. @returns false when it was made before */
export async function noteRequest(
  tx: Tx,
  request: { readonly userId: string; readonly deviceId: string; readonly type: string; readonly txnId: string },
  nowMs: number,
): Promise<boolean> {
  const inserted = await tx.run(
    `INSERT INTO to_device_transactions (user_id, device_id, event_type, txn_id, sent_ts) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
    [request.userId, request.deviceId, request.type, request.txnId, nowMs],
  );
  return inserted > 0;
}

/** Notes a message of another server. @returns false when it came before */
export async function noteMessage(tx: Tx, origin: string, messageId: string, nowMs: number): Promise<boolean> {
  const inserted = await tx.run(
    'INSERT INTO device_federation_inbox (origin, message_id, received_ts) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
    [origin, messageId, nowMs],
  );
  return inserted > 0;
}

/** Whether {@link noteMessage} noted a message. */
export async function isNoted(db: Db, origin: string, messageId: string): Promise<boolean> {
  const sql = 'SELECT 1 AS found FROM device_federation_inbox WHERE origin = ? AND message_id = ?';
  return (await db.get(sql, [origin, messageId])) !== undefined;
}

/** Forgets requests and messages noted before a time. */
export async function forgetNoted(tx: Tx, beforeMs: number): Promise<void> {
  await tx.run('DELETE FROM to_device_transactions WHERE sent_ts < ?', [beforeMs]);
  await tx.run('DELETE FROM device_federation_inbox WHERE received_ts < ?', [beforeMs]);
}

/** Queues messages for other servers. */
export async function insertOutbox(tx: Tx, messages: readonly OutboxMessage[], nowMs: number): Promise<void> {
  await tx.insertMany(
    'device_federation_outbox',
    ['destination', 'stream_id', 'queued_ts', 'messages_json'],
    messages.map((message) => [message.destination, message.position, nowMs, message.json]),
  );
}

/** What waits for a server, oldest first. */
export async function outboxOf(
  db: Db,
  destination: string,
  after: number,
  upTo: number,
  limit: number,
): Promise<OutboxMessage[]> {
  const rows = await db.query<{ stream_id: number; messages_json: string }>(
    `SELECT stream_id, messages_json FROM device_federation_outbox
     WHERE destination = ? AND stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT ?`,
    [destination, after, upTo, limit],
  );
  return rows.map((row) => ({ destination, position: row.stream_id, json: row.messages_json }));
}

/** Servers for which something is queued. */
export function outboxDestinations(db: Db): Promise<string[]> {
  return distinctValues(db, 'device_federation_outbox', 'destination');
}

/** Deletes what a server has got. */
export async function deleteOutbox(tx: Tx, destination: string, upTo: number): Promise<void> {
  await tx.run('DELETE FROM device_federation_outbox WHERE destination = ? AND stream_id <= ?', [destination, upTo]);
}

/** The furthest position in the stream that the tables hold. */
export async function highestToDeviceId(db: Db): Promise<number> {
  const row = await db.get<Record<'inbox' | 'outbox', number | null>>(
    `SELECT (SELECT MAX(stream_id) FROM device_inbox) AS inbox,
       (SELECT MAX(stream_id) FROM device_federation_outbox) AS outbox`,
  );
  return Math.max(row?.inbox ?? 0, row?.outbox ?? 0);
}

/** A message in the inbox of a device, whoever's it is. */
export interface InboxEntry extends InboxMessage {
  readonly position: number;
}

/** Messages with `after < position <= upTo`, ascending, those left of deleted devices included; about `limit`, but all of those that share a position. */
export async function inboxEntries(db: Db, after: number, upTo: number, limit: number): Promise<InboxEntry[]> {
  const rows = await db.query<{ user_id: string; device_id: string; stream_id: number; message_json: string }>(
    `SELECT user_id, device_id, stream_id, message_json FROM device_inbox
     WHERE stream_id > ? AND stream_id <= COALESCE((SELECT stream_id FROM device_inbox
       WHERE stream_id > ? AND stream_id <= ? ORDER BY stream_id LIMIT 1 OFFSET ${Math.trunc(limit)}), ?)
     ORDER BY stream_id, user_id, device_id`,
    [after, after, upTo, upTo],
  );
  return rows.map((row) => ({
    userId: row.user_id,
    deviceId: row.device_id,
    position: row.stream_id,
    json: row.message_json,
  }));
}

/** Takes messages of users out of their inboxes: all that have one of these positions. */
export async function deleteInboxEntries(tx: Tx, entries: readonly InboxEntry[]): Promise<void> {
  const positions = [...new Set(entries.map(({ position }) => position))];
  const users = [...new Set(entries.map(({ userId }) => userId))];
  await tx.exec(`DELETE FROM device_inbox WHERE ${tx.dialect.anyOf('stream_id')} AND ${tx.dialect.anyOf('user_id')}`, [
    positions,
    users,
  ]);
}
