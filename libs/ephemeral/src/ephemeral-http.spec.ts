import type { JsonObject } from '@rookery/matrix-types';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { openApiValidator } from '../../../test/support/openapi.js';

const faults: string[] = [];

/** A `fetch` that holds every exchange against the specification's data. */
const checked: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  const text = await response.clone().text();
  faults.push(
    ...openApiValidator().check({
      method: init?.method ?? 'GET',
      path: new URL(String(input)).pathname,
      requestBody: typeof init?.body === 'string' ? (JSON.parse(init.body) as unknown) : undefined,
      status: response.status,
      responseBody: text === '' ? undefined : (JSON.parse(text) as unknown),
    }),
  );
  return response;
};

describe('typing, receipts and presence over HTTP', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let room: string;
  let roomId: string;
  let eventId: string;

  const id = encodeURIComponent;
  const answer = async (user: TestUser, method: string, path: string, body?: unknown): Promise<string> => {
    const { status, body: reply } = await user.request<JsonObject>(method, path, body);
    return status === 200 ? '200' : `${status} ${String(reply['errcode'])}`;
  };
  const sync = async (user: TestUser, since?: string): Promise<JsonObject> => {
    const query = since === undefined ? '' : `?since=${since}&timeout=5000`;
    return (await user.request<JsonObject>('GET', `/sync${query}`)).body;
  };
  const ephemeral = (body: JsonObject): JsonObject[] => {
    const rooms = body['rooms'] as { join?: Record<string, { ephemeral?: { events: JsonObject[] } }> } | undefined;
    return rooms?.join?.[roomId]?.ephemeral?.events ?? [];
  };

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ fetch: checked });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = (await alice.request<JsonObject>('POST', '/createRoom', { preset: 'public_chat' })).body[
      'room_id'
    ] as string;
    room = `/rooms/${id(roomId)}`;
    await bob.request('POST', `${room}/join`, {});
    const sent = await alice.request<JsonObject>('PUT', `${room}/send/m.room.message/1`, {
      msgtype: 'm.text',
      body: 'x',
    });
    eventId = sent.body['event_id'] as string;
  });
  afterAll(() => homeserver.stop());

  it('somebody who types is shown to others, and no longer afterwards', async () => {
    const since = (await sync(bob))['next_batch'] as string;
    const path = `${room}/typing/${id(alice.userId)}`;
    expect(await answer(alice, 'PUT', path, { typing: true, timeout: 20_000 })).toBe('200');
    expect(ephemeral(await sync(bob, since))).toEqual([{ type: 'm.typing', content: { user_ids: [alice.userId] } }]);
    expect(await answer(alice, 'PUT', path, { typing: false })).toBe('200');
    expect(await answer(alice, 'PUT', path, {})).toBe('400 M_MISSING_PARAM');
    expect(await answer(alice, 'PUT', path, { typing: 'yes' })).toBe('400 M_BAD_JSON');
    expect(await answer(bob, 'PUT', path, { typing: true })).toBe('403 M_FORBIDDEN');
    expect(await answer(alice, 'PUT', `/rooms/nonsense/typing/${id(alice.userId)}`, { typing: true })).toBe(
      '400 M_INVALID_PARAM',
    );
  });

  it('a read receipt reaches the others in the room', async () => {
    const since = (await sync(alice))['next_batch'] as string;
    expect(await answer(bob, 'POST', `${room}/receipt/m.read/${id(eventId)}`)).toBe('200');
    const receipt = { [eventId]: { 'm.read': { [bob.userId]: { ts: expect.any(Number) } } } };
    expect(ephemeral(await sync(alice, since))).toEqual([{ type: 'm.receipt', content: receipt }]);
    expect(await answer(bob, 'POST', `${room}/receipt/m.read/${id(eventId)}`, { thread_id: 'main' })).toBe('200');
    expect(await answer(bob, 'POST', `${room}/receipt/m.read/${id(eventId)}`, { thread_id: '' })).toBe(
      '400 M_INVALID_PARAM',
    );
    expect(await answer(bob, 'POST', `${room}/receipt/m.other/${id(eventId)}`, {})).toBe('400 M_INVALID_PARAM');
    const markers = { 'm.fully_read': eventId, 'm.read': eventId, 'm.read.private': eventId };
    expect(await answer(bob, 'POST', `${room}/read_markers`, markers)).toBe('200');
    expect(await answer(bob, 'POST', `${room}/read_markers`, {})).toBe('200');
    expect(await answer(bob, 'POST', `${room}/read_markers`, { 'm.read': 5 })).toBe('400 M_BAD_JSON');
    const stored = await bob.request('GET', `/user/${id(bob.userId)}${room}/account_data/m.fully_read`);
    expect(stored.body).toEqual({ event_id: eventId });
  });

  it('a presence that was set is read back by others', async () => {
    const path = (user: TestUser) => `/presence/${id(user.userId)}/status`;
    expect(await answer(alice, 'PUT', path(alice), { presence: 'unavailable', status_msg: 'lunch' })).toBe('200');
    expect(await answer(alice, 'PUT', path(alice), { presence: 'asleep' })).toBe('400 M_INVALID_PARAM');
    expect(await answer(alice, 'PUT', path(bob), { presence: 'online' })).toBe('403 M_FORBIDDEN');
    expect(await answer(bob, 'GET', path(alice))).toBe('200');
    const carol = await homeserver.registerUser('carol');
    expect(await answer(carol, 'GET', path(alice))).toBe('403 M_FORBIDDEN');
    expect(await answer(carol, 'GET', '/presence/nobody/status')).toBe('400 M_INVALID_PARAM');
  });

  it('a presence cannot be set again and again', async () => {
    const dave = await homeserver.registerUser('dave');
    const path = `/presence/${id(dave.userId)}/status`;
    // That a sync comes by is another matter.
    await sync(dave);
    expect(await answer(dave, 'PUT', path, { presence: 'online', status_msg: 'one' })).toBe('200');
    expect(await answer(dave, 'PUT', path, { presence: 'online', status_msg: 'two' })).toBe('429 M_LIMIT_EXCEEDED');
    expect((await dave.request<JsonObject>('GET', path)).body['status_msg']).toBe('one');
  });

  it('keeps to the specification', () => {
    expect(faults).toEqual([]);
  });
});
