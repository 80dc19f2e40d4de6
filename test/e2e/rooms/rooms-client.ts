import { createTestHomeserver, type TestHomeserver, type TestResponse, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

/** An event as clients see it. */
export interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly origin_server_ts: number;
  readonly content: Readonly<Record<string, unknown>>;
  readonly unsigned?: Readonly<Record<string, unknown>>;
}

/** Both databases that a server can have. */
export const databases = ['sqlite', 'postgres'] as const;

/** A server whose every answer is held against the specification. */
export const startHomeserver = (
  database: (typeof databases)[number],
  settings: Readonly<Record<string, unknown>> = {},
): Promise<TestHomeserver> => createTestHomeserver({ database, settings, fetch: validatedFetch });

let transactions = 0;

/** Another transaction id each time. */
export const nextTransaction = (): string => `t${(transactions += 1)}`;

/** A request that must be answered with 200. */
export async function ok<T = Record<string, unknown>>(
  user: TestUser,
  method: string,
  path: string,
  body?: unknown,
): Promise<T> {
  const answer = await user.request<T>(method, path, body);
  if (answer.status !== 200) {
    throw new Error(`${method} ${path} by ${user.userId}: ${answer.status} ${JSON.stringify(answer.body)}`);
  }
  return answer.body;
}

/** Makes a room; its id. */
export async function createRoom(user: TestUser, options: object = {}): Promise<string> {
  return (await ok<{ room_id: string }>(user, 'POST', '/createRoom', { preset: 'private_chat', ...options })).room_id;
}

/** Sends a text, or what `content` says; the event's id. */
export async function say(user: TestUser, roomId: string, body: string, content: object = {}): Promise<string> {
  const path = `/rooms/${roomId}/send/m.room.message/${nextTransaction()}`;
  return (await ok<{ event_id: string }>(user, 'PUT', path, { msgtype: 'm.text', body, ...content })).event_id;
}

/** Sets state; the event's id. */
export async function setState(
  user: TestUser,
  roomId: string,
  type: string,
  content: object,
  stateKey = '',
): Promise<string> {
  const path = `/rooms/${roomId}/state/${type}/${encodeURIComponent(stateKey)}`;
  return (await ok<{ event_id: string }>(user, 'PUT', path, content)).event_id;
}

export const join = (user: TestUser, roomId: string): Promise<unknown> => ok(user, 'POST', `/rooms/${roomId}/join`, {});
export const leave = (user: TestUser, roomId: string): Promise<unknown> =>
  ok(user, 'POST', `/rooms/${roomId}/leave`, {});
/** `invite`, `kick`, `ban` or `unban`. */
export const act = (user: TestUser, verb: string, roomId: string, target: TestUser): Promise<unknown> =>
  ok(user, 'POST', `/rooms/${roomId}/${verb}`, { user_id: target.userId });

/** Status and errcode, for comparing with what a table says: `403 M_FORBIDDEN`, or `200`. */
export const outcome = ({ status, body }: Pick<TestResponse<unknown>, 'status' | 'body'>): string => {
  const errcode = (body as { errcode?: string } | undefined)?.errcode;
  return errcode === undefined ? String(status) : `${status} ${errcode}`;
};
