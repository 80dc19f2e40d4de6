import type { JsonObject } from '@rookery/matrix-types';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { openApiValidator } from '../../../../test/support/openapi.js';

const faults: string[] = [];

/** A `fetch` that holds every exchange that succeeded against the specification's data. */
const checked: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  const text = await response.clone().text();
  const path = new URL(String(input)).pathname;
  faults.push(
    ...openApiValidator().check({
      method: init?.method ?? 'GET',
      path,
      requestBody: typeof init?.body === 'string' ? (JSON.parse(init.body) as unknown) : undefined,
      status: response.status,
      responseBody: text === '' ? undefined : (JSON.parse(text) as unknown),
    }),
  );
  return response;
};

describe('the rooms part of the client API over HTTP', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      fetch: checked,
      settings: { room_list_publication_rules: [{ action: 'allow' }], default_room_version: '11' },
    });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver.stop());

  const id = encodeURIComponent;
  const ok = async (user: TestUser, method: string, path: string, body?: unknown): Promise<JsonObject> => {
    const answer = await user.request<JsonObject>(method, path, body);
    expect({ method, path, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };
  const refused = async (user: TestUser, method: string, path: string, body?: unknown): Promise<string> => {
    const answer = await user.request<JsonObject>(method, path, body);
    return `${answer.status} ${String(answer.body['errcode'])}`;
  };

  it('answers every endpoint as the specification says', async () => {
    const made = await ok(alice, 'POST', '/createRoom', {
      preset: 'public_chat',
      visibility: 'public',
      room_alias_name: 'home',
      name: 'Home',
      topic: 'All of it',
    });
    const roomId = made['room_id'] as string;
    const room = `/rooms/${id(roomId)}`;
    await ok(bob, 'POST', `/join/${id('#home:rookery.test')}?via=rookery.test`, {});
    await ok(bob, 'POST', `${room}/leave`, { reason: 'see you' });
    await ok(bob, 'POST', `${room}/forget`);
    await ok(alice, 'POST', `${room}/invite`, { user_id: bob.userId });
    await ok(bob, 'POST', `${room}/join`, {});
    const sent = await ok(alice, 'PUT', `${room}/send/m.room.message/1`, { msgtype: 'm.text', body: 'hello' });
    const eventId = sent['event_id'] as string;
    await ok(bob, 'PUT', `${room}/send/m.room.message/1`, {
      msgtype: 'm.text',
      body: 'in a thread',
      'm.relates_to': { rel_type: 'm.thread', event_id: eventId },
    });
    await ok(alice, 'PUT', `${room}/state/m.room.topic`, { topic: 'new' });
    await ok(alice, 'PUT', `${room}/state/m.room.topic/`, { topic: 'newer' });
    await ok(alice, 'PUT', `${room}/state/org.example.thing/a%2Fkey`, { x: 1 });
    expect(await ok(alice, 'GET', `${room}/state/org.example.thing/a%2Fkey`)).toEqual({ x: 1 });
    expect(await ok(alice, 'GET', `${room}/state/m.room.topic/`)).toEqual({ topic: 'newer' });
    expect(await ok(alice, 'GET', `${room}/state/m.room.topic?format=event`)).toMatchObject({ sender: alice.userId });
    await ok(alice, 'GET', `${room}/state`);
    expect(await ok(bob, 'GET', `${room}/event/${id(eventId)}`)).toMatchObject({ event_id: eventId });
    await ok(bob, 'GET', `${room}/context/${id(eventId)}?limit=4`);
    await ok(bob, 'GET', `${room}/messages?dir=b&limit=5&filter=${id('{"lazy_load_members":true}')}`);
    await ok(bob, 'GET', `${room}/members?not_membership=leave`);
    await ok(bob, 'GET', `${room}/joined_members`);
    await ok(bob, 'GET', '/joined_rooms');
    await ok(bob, 'GET', `${room}/aliases`);
    const v1 = `/_matrix/client/v1/rooms/${id(roomId)}`;
    await ok(bob, 'GET', `${v1}/relations/${id(eventId)}`);
    await ok(bob, 'GET', `${v1}/relations/${id(eventId)}/m.thread`);
    await ok(bob, 'GET', `${v1}/relations/${id(eventId)}/m.thread/m.room.message?recurse=true`);
    await ok(bob, 'GET', `${v1}/threads?include=participated`);
    await ok(bob, 'GET', `${v1}/timestamp_to_event?ts=0&dir=f`);
    await ok(bob, 'GET', `${v1}/hierarchy`);
    await ok(bob, 'GET', `/_matrix/client/v1/room_summary/${id(roomId)}`);
    await ok(bob, 'GET', `/_matrix/client/v1/mutual_rooms?user_id=${id(alice.userId)}`);
    await ok(bob, 'GET', `/directory/room/${id('#home:rookery.test')}`);
    await ok(alice, 'PUT', `/directory/room/${id('#second:rookery.test')}`, { room_id: roomId });
    await ok(alice, 'DELETE', `/directory/room/${id('#second:rookery.test')}`);
    await ok(alice, 'GET', `/directory/list/room/${id(roomId)}`);
    await ok(alice, 'PUT', `/directory/list/room/${id(roomId)}`, { visibility: 'public' });
    await ok(alice, 'GET', '/publicRooms?limit=3');
    await ok(alice, 'POST', '/publicRooms', { filter: { generic_search_term: 'home' } });
    await ok(bob, 'POST', `${room}/report/${id(eventId)}`, { reason: 'test', score: -50 });
    await ok(bob, 'POST', `${room}/report`, { reason: 'test' });
    await ok(bob, 'POST', `/users/${id(alice.userId)}/report`, { reason: 'test' });
    await ok(alice, 'PUT', `${room}/redact/${id(eventId)}/2`, { reason: 'mistake' });
    await ok(alice, 'POST', `${room}/kick`, { user_id: bob.userId, reason: 'test' });
    await ok(alice, 'POST', `${room}/ban`, { user_id: bob.userId });
    await ok(alice, 'POST', `${room}/unban`, { user_id: bob.userId });
    const knocking = await ok(alice, 'POST', '/createRoom', {
      initial_state: [{ type: 'm.room.join_rules', state_key: '', content: { join_rule: 'knock' } }],
    });
    await ok(bob, 'POST', `/knock/${id(knocking['room_id'] as string)}`, { reason: 'let me in' });
    await ok(alice, 'POST', `${room}/upgrade`, { new_version: '12' });
    expect(faults).toEqual([]);
  });

  it('refuses with the right errors', async () => {
    const { room_id: roomId } = await ok(alice, 'POST', '/createRoom', {});
    const room = `/rooms/${id(roomId as string)}`;
    expect(await refused(bob, 'PUT', `${room}/send/m.room.message/1`, { body: 'x' })).toBe('403 M_FORBIDDEN');
    expect(await refused(bob, 'GET', `${room}/state`)).toBe('403 M_FORBIDDEN');
    expect(await refused(bob, 'GET', `${room}/messages?dir=b`)).toBe('403 M_FORBIDDEN');
    expect(await refused(bob, 'GET', `${room}/event/$nothing`)).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'GET', `${room}/state/m.room.none`)).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'GET', `${room}/messages?dir=x`)).toBe('400 M_INVALID_PARAM');
    expect(await refused(alice, 'GET', `${room}/messages?dir=b&from=rubbish`)).toBe('400 M_INVALID_PARAM');
    expect(await refused(alice, 'GET', `${room}/messages?dir=b&filter=rubbish`)).toBe('400 M_NOT_JSON');
    expect(await refused(alice, 'POST', `${room}/invite`, {})).toBe('400 M_MISSING_PARAM');
    expect(await refused(alice, 'POST', `${room}/ban`, {})).toBe('400 M_MISSING_PARAM');
    expect(await refused(alice, 'POST', `${room}/invite`, { user_id: 'bob' })).toBe('400 M_INVALID_PARAM');
    expect(await refused(alice, 'POST', '/join/nonsense', {})).toBe('400 M_INVALID_PARAM');
    expect(await refused(alice, 'POST', `/join/${id('!nowhere:rookery.test')}`, {})).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'POST', `/join/${id('!nowhere:elsewhere.test')}`, {})).toBe('502 M_UNKNOWN');
    expect(await refused(alice, 'POST', `/join/${id('#nothing:rookery.test')}`, {})).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'PUT', `${room}/state/m.room.create`, {})).toBe('400 M_BAD_JSON');
    expect(await refused(alice, 'POST', '/createRoom', { preset: 'none' })).toBe('400 M_INVALID_PARAM');
    expect(await refused(alice, 'POST', `${room}/upgrade`, { new_version: '99' })).toBe(
      '400 M_UNSUPPORTED_ROOM_VERSION',
    );
    const large = { body: 'x'.repeat(70_000) };
    expect(await refused(alice, 'PUT', `${room}/send/m.room.message/2`, large)).toBe('413 M_TOO_LARGE');
    expect(await refused(alice, 'PUT', `${room}/send/m.room.message/3`, { number: 1.5 })).toBe('400 M_BAD_JSON');
    expect(await refused(alice, 'PUT', `${room}/send/${'t'.repeat(300)}/4`, {})).toBe('413 M_TOO_LARGE');
    expect(await refused(alice, 'PUT', `${room}/state/m.room.server_acl`, { allow: ['other.test'] })).toBe(
      '400 M_BAD_JSON',
    );
  });
});
