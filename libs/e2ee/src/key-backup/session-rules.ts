import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { isName, limits, objectText } from '../common/limits.js';
import type { BackedUpSession } from './backup.query.js';

type Rank = Pick<BackedUpSession, 'firstMessageIndex' | 'forwardedCount' | 'isVerified'>;

/**
 * Whether a session is worth more than the one that is there: from a verified device, then able to read more, then forwarded
 * less often.
 * @spec client-server-api#put_matrixclientv3room_keyskeysroomidsessionid
 */
export function isBetter(offered: Rank, stored: Rank): boolean {
  if (offered.isVerified !== stored.isVerified) return offered.isVerified;
  if (offered.firstMessageIndex !== stored.firstMessageIndex)
    return offered.firstMessageIndex < stored.firstMessageIndex;
  return offered.forwardedCount < stored.forwardedCount;
}

/** Reads `{rooms: {…: {sessions: {…}}}}`. @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE` */
export function parseRooms(body: JsonObject): BackedUpSession[] {
  const { rooms } = body;
  if (!isJsonObject(rooms)) throw MatrixError.badJson("'rooms' must be an object");
  return checkCount(
    Object.entries(rooms).flatMap(([roomId, room]) => {
      if (!isJsonObject(room)) throw MatrixError.badJson("'rooms' must hold objects with sessions");
      return parseSessions(roomId, room);
    }),
  );
}

/** Reads `{sessions: {…}}`. @throws MatrixError as {@link parseRooms} */
export function parseSessions(roomId: string, body: JsonObject): BackedUpSession[] {
  const { sessions } = body;
  if (!isJsonObject(sessions)) throw MatrixError.badJson("'sessions' must be an object");
  return checkCount(Object.entries(sessions).map(([sessionId, session]) => parseSession(roomId, sessionId, session)));
}

/** Reads one session. @throws MatrixError as {@link parseRooms} */
export function parseSession(roomId: string, sessionId: string, session: unknown): BackedUpSession {
  if (!isName(roomId) || !isName(sessionId)) throw MatrixError.invalidParam('Not a valid room or session id');
  if (!isJsonObject(session)) throw MatrixError.badJson('A session must be an object');
  const { first_message_index: firstMessageIndex, forwarded_count: forwardedCount, is_verified: isVerified } = session;
  if (!isCount(firstMessageIndex)) throw MatrixError.badJson("'first_message_index' must be a whole number");
  if (!isCount(forwardedCount)) throw MatrixError.badJson("'forwarded_count' must be a whole number");
  if (typeof isVerified !== 'boolean') throw MatrixError.badJson("'is_verified' must be true or false");
  const sessionData = objectText(session['session_data'], "'session_data'", limits.backupSessionBytes);
  return { roomId, sessionId, firstMessageIndex, forwardedCount, isVerified, sessionData };
}

/** A session on the wire, as text. */
export function sessionText(session: BackedUpSession): string {
  const { firstMessageIndex, forwardedCount, isVerified, sessionData } = session;
  return `{"first_message_index":${firstMessageIndex},"forwarded_count":${forwardedCount},"is_verified":${isVerified},"session_data":${sessionData}}`;
}

/** The sessions of one room, which come some at a time, as the text of `{sessions: {…}}`. */
export async function* sessionsText(pages: AsyncIterable<readonly BackedUpSession[]>): AsyncGenerator<string> {
  yield '{"sessions":{';
  let separator = '';
  for await (const page of pages) {
    yield separator + page.map((one) => `${JSON.stringify(one.sessionId)}:${sessionText(one)}`).join(',');
    separator = ',';
  }
  yield '}}';
}

/** The sessions of many rooms, which come some at a time and room by room, as the text of `{rooms: {…}}`. */
export async function* roomsText(pages: AsyncIterable<readonly BackedUpSession[]>): AsyncGenerator<string> {
  yield '{"rooms":{';
  let open: string | undefined;
  for await (const page of pages) {
    const texts: string[] = [];
    for (const one of page) {
      if (one.roomId === open) texts.push(',');
      else texts.push(open === undefined ? '' : '}},', `${JSON.stringify(one.roomId)}:{"sessions":{`);
      open = one.roomId;
      texts.push(JSON.stringify(one.sessionId), ':', sessionText(one));
    }
    yield texts.join('');
  }
  yield open === undefined ? '}}' : '}}}}';
}

function checkCount(sessions: BackedUpSession[]): BackedUpSession[] {
  if (sessions.length > limits.backupSessions)
    throw MatrixError.tooLarge(`Not more than ${limits.backupSessions} sessions can be stored at once`);
  return sessions;
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}
