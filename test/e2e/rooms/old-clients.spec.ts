import type { TestHomeserver, TestUser } from '@rookery/testing';
import { registerWithSecret } from '../../support/shared-secret.js';
import { createRoom, databases, nextTransaction, ok, outcome, say, startHomeserver } from './rooms-client.js';

interface Page {
  readonly start: string;
  readonly end?: string;
  readonly chunk: readonly { readonly event_id: string; readonly content: Readonly<Record<string, unknown>> }[];
}

const id = encodeURIComponent;

describe.each(databases)('what clients and scripts in use expect of rooms (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { rc_room_creation: { per_second: 1000, burst_count: 1000 } });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  const page = (user: TestUser, roomId: string, query: string): Promise<Page> =>
    ok<Page>(user, 'GET', `/rooms/${roomId}/messages?${query}`);
  const memberOf = (roomId: string, user: TestUser): Promise<Record<string, unknown>> =>
    ok(alice, 'GET', `/rooms/${roomId}/state/m.room.member/${user.userId}`);
  const visibility = async (roomId: string): Promise<unknown> =>
    (await ok(alice, 'GET', `/directory/list/room/${roomId}`))['visibility'];

  it('makes a public room that may not be in the directory, and says so to who asks the directory', async () => {
    const roomId = await createRoom(alice, { preset: undefined, visibility: 'public', room_alias_name: 'plaza' });
    expect(await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.join_rules`)).toEqual({ join_rule: 'public' });
    expect(await visibility(roomId)).toBe('private');
    const publish = await alice.request('PUT', `/directory/list/room/${roomId}`, { visibility: 'public' });
    expect(outcome(publish)).toBe('403 M_FORBIDDEN');
    const admin = await registerWithSecret(homeserver, 'ada', true);
    expect(await visibility(await createRoom(admin, { preset: undefined, visibility: 'public' }))).toBe('public');
  });

  it('sends and redacts without a transaction, each time anew', async () => {
    const roomId = await createRoom(alice);
    const send = (): Promise<{ event_id: string }> =>
      ok(alice, 'POST', `/rooms/${roomId}/send/m.room.message`, { msgtype: 'm.text', body: 'hello' });
    const [one, two] = [await send(), await send()];
    expect(one.event_id).not.toBe(two.event_id);
    await ok(alice, 'POST', `/rooms/${roomId}/redact/${id(one.event_id)}`, { reason: 'twice' });
    await ok(alice, 'POST', `/rooms/${roomId}/redact/${id(two.event_id)}`);
    const { chunk } = await page(alice, roomId, 'dir=b&limit=4');
    expect(chunk.map((event) => event.content['body'])).toEqual([undefined, undefined, undefined, undefined]);
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/send/m.room.message`, {}))).toBe('403 M_FORBIDDEN');
  });

  it('makes a room once for each transaction, also when it is asked for twice at once', async () => {
    const make = (user: TestUser, txnId: string): Promise<unknown> =>
      ok(user, 'PUT', `/createRoom/${txnId}`, { preset: 'private_chat' });
    const [first, second] = await Promise.all([make(alice, 'a'), make(alice, 'a')]);
    expect(second).toEqual(first);
    expect(await make(alice, 'a')).toEqual(first);
    expect(await make(alice, 'b')).not.toEqual(first);
    expect(await make(bob, 'a')).not.toEqual(first);
    // What failed may be tried again with the same transaction.
    const wrong = await alice.request('PUT', '/createRoom/c', { room_version: '0' });
    expect(outcome(wrong)).toBe('400 M_UNSUPPORTED_ROOM_VERSION');
    await make(alice, 'c');
    const long = await alice.request('PUT', `/createRoom/${'x'.repeat(3000)}`, {});
    expect(outcome(long)).toBe('400 M_INVALID_PARAM');
  });

  it('joins and invites by transactions', async () => {
    const roomId = await createRoom(alice, { room_alias_name: `txn-${database}` });
    const invite = { user_id: bob.userId };
    const path = `/rooms/${roomId}/invite/1`;
    await ok(alice, 'PUT', path, invite);
    await ok(bob, 'PUT', `/rooms/${roomId}/join/1`, {});
    // The invite was done: another one, to somebody who is in the room, would be refused.
    await ok(alice, 'PUT', path, invite);
    expect(outcome(await alice.request('PUT', `/rooms/${roomId}/invite/2`, invite))).toBe('403 M_FORBIDDEN');
    await ok(bob, 'POST', `/rooms/${roomId}/leave`, {});
    await ok(bob, 'PUT', `/rooms/${roomId}/join/1`, {});
    expect(await memberOf(roomId, bob)).toMatchObject({ membership: 'leave' });
    await ok(alice, 'PUT', `/rooms/${roomId}/invite/3`, invite);
    expect(await ok(bob, 'PUT', `/join/${id(`#txn-${database}:rookery.test`)}/1`, {})).toEqual({ room_id: roomId });
    expect(await memberOf(roomId, bob)).toMatchObject({ membership: 'join' });
  });

  it('keeps what a client puts into the member event by joining', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const extra = { 'org.example.mood': { is: 'good' }, reason: 'because', membership: 'ban' };
    await ok(bob, 'POST', `/join/${roomId}`, { ...extra, join_authorised_via_users_server: alice.userId });
    const { displayname: _, ...content } = await memberOf(roomId, bob);
    expect(content).toEqual({ ...extra, membership: 'join' });
  });

  it('names names and pictures of members, also where there are none', async () => {
    const nameless = await homeserver.registerUser('nameless');
    await ok(nameless, 'PUT', `/profile/${nameless.userId}/displayname`, { displayname: '' });
    const roomId = await createRoom(nameless);
    expect(await ok(nameless, 'GET', `/rooms/${roomId}/joined_members`)).toEqual({
      joined: { [nameless.userId]: { display_name: null, avatar_url: null } },
    });
  });

  it('shows the aliases of every room to administrators', async () => {
    const admin = await registerWithSecret(homeserver, 'root', true);
    const roomId = await createRoom(alice, { room_alias_name: `hidden-${database}` });
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/aliases`))).toBe('403 M_FORBIDDEN');
    expect(await ok(admin, 'GET', `/rooms/${roomId}/aliases`)).toEqual({
      aliases: [`#hidden-${database}:rookery.test`],
    });
  });

  it('gives no alias to a room that is not there', async () => {
    const admin = await registerWithSecret(homeserver, 'alias-admin', true);
    const alias = `/directory/room/${id('#nowhere:rookery.test')}`;
    const given = await admin.request('PUT', alias, { room_id: '!deleted:rookery.test' });
    expect(outcome(given)).toBe('400 M_INVALID_PARAM');
    expect(outcome(await admin.request('GET', alias))).toBe('404 M_NOT_FOUND');
  });

  it('walks through all rooms of a large space', async () => {
    const space = await createRoom(alice, { creation_content: { type: 'm.space' } });
    const children: string[] = [];
    for (let i = 0; i < 55; i++) {
      const child = await createRoom(alice);
      children.push(child);
      await ok(alice, 'PUT', `/rooms/${space}/state/m.space.child/${child}`, {
        via: ['rookery.test'],
        order: String(i).padStart(2, '0'),
      });
    }
    const walked: string[] = [];
    for (let from: string | undefined = ''; from !== undefined;) {
      const query = from === '' ? '' : `?from=${from}`;
      const path = `/_matrix/client/v1/rooms/${space}/hierarchy${query}`;
      const answer: { rooms: { room_id: string }[]; next_batch?: string } = await ok(alice, 'GET', path);
      walked.push(...answer.rooms.map((room) => room.room_id));
      from = answer.next_batch;
    }
    expect(walked).toEqual([space, ...children]);
  });

  it('lets who follows a room go on from its end', async () => {
    const roomId = await createRoom(alice);
    const { end } = await page(alice, roomId, 'dir=f&limit=100');
    expect(end).toBeDefined();
    // Nothing more yet: who asks until there is no end is to stop here.
    expect(await page(alice, roomId, `dir=f&from=${end}`)).toEqual({ start: end, chunk: [] });
    const eventId = await say(alice, roomId, 'news');
    const news = await page(alice, roomId, `dir=f&from=${end}`);
    expect(news.chunk.map((event) => event.event_id)).toEqual([eventId]);
    expect(await page(alice, roomId, `dir=f&from=${news.end}`)).not.toHaveProperty('end');
  });

  it('takes a limit of nothing, and none below it', async () => {
    const roomId = await createRoom(alice);
    const none = await page(alice, roomId, 'dir=b&limit=0');
    expect(none.chunk).toEqual([]);
    expect((await page(alice, roomId, `dir=b&from=${none.end}&limit=1`)).chunk).toHaveLength(1);
    const v1 = `/_matrix/client/v1/rooms/${roomId}`;
    for (const path of [
      `/rooms/${roomId}/messages?dir=b&limit=-1`,
      `${v1}/threads?limit=-1`,
      `${v1}/hierarchy?limit=-1`,
      '/publicRooms?limit=-1',
    ])
      expect(outcome(await alice.request('GET', path))).toBe('400 M_INVALID_PARAM');
  });

  it('takes an empty token for none', async () => {
    const roomId = await createRoom(alice);
    const v1 = `/_matrix/client/v1/rooms/${roomId}`;
    for (const path of [
      `/rooms/${roomId}/messages?dir=b&from=&to=`,
      `/rooms/${roomId}/members?at=&membership=&not_membership=`,
      `${v1}/threads?from=`,
      `${v1}/hierarchy?from=`,
      '/publicRooms?since=&server=',
    ])
      expect([path, (await alice.request('GET', path)).status]).toEqual([path, 200]);
    const nothing = { since: null, filter: null, include_all_networks: null, third_party_instance_id: null };
    for (const body of [nothing, { filter: { generic_search_term: null, room_types: null } }])
      expect((await alice.request('POST', '/publicRooms', body)).status).toBe(200);
  });

  it('says that a request is wrong where nobody could send it', async () => {
    const roomId = await createRoom(alice, { room_version: '12' });
    const other = await createRoom(alice);
    const elsewhere = await say(alice, other, 'in another room');
    const set = async (type: string, content: object): Promise<string> =>
      outcome(await alice.request('PUT', `/rooms/${roomId}/state/${type}`, content));
    expect(await set('m.room.create', { room_version: '12', more: 1 })).toBe('400 M_BAD_JSON');
    expect(await set('m.room.power_levels', { users: { [alice.userId]: 100 } })).toBe('400 M_BAD_JSON');
    expect(await set('m.room.power_levels', { users: { nobody: 100 } })).toBe('400 M_BAD_JSON');
    expect(await set('m.room.tombstone', { body: 'x', replacement_room: roomId })).toBe('400 M_BAD_JSON');
    const redact = `/rooms/${roomId}/redact/${id(elsewhere)}/${nextTransaction()}`;
    expect(outcome(await alice.request('PUT', redact, {}))).toBe('400 M_INVALID_PARAM');
    for (const creators of [[1], [bob.userId, {}], 'all', { a: 1 }]) {
      const creation = { room_version: '12', creation_content: { additional_creators: creators } };
      expect(outcome(await alice.request('POST', '/createRoom', creation))).toBe('400 M_INVALID_PARAM');
    }
  });

  it('invites nobody of other servers into a room that is not for them, without asking there', async () => {
    const creation_content = { 'm.federate': false };
    const roomId = await createRoom(alice, { creation_content });
    const stranger = '@stranger:unreachable.test';
    const invite = await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: stranger });
    expect(outcome(invite)).toBe('403 M_FORBIDDEN');
    const before = await ok(alice, 'GET', '/joined_rooms');
    const made = await alice.request('POST', '/createRoom', { creation_content, invite: [stranger] });
    expect(outcome(made)).toBe('403 M_FORBIDDEN');
    expect(await ok(alice, 'GET', '/joined_rooms')).toEqual(before);
  });

  it('answers a change of a member with its own event, whoever changes it at the same time', async () => {
    const roomId = await createRoom(alice);
    const path = `/rooms/${roomId}/state/m.room.member/${alice.userId}`;
    const changes = Array.from({ length: 8 }, (_, i) => ({ membership: 'join', displayname: `alice ${i}` }));
    const sent = await Promise.all(changes.map((change) => ok<{ event_id: string }>(alice, 'PUT', path, change)));
    for (const [i, { event_id: eventId }] of sent.entries()) {
      const { content } = await ok<{ content: object }>(alice, 'GET', `/rooms/${roomId}/event/${id(eventId)}`);
      expect(content).toEqual(changes[i]);
    }
  });

  it('takes ids of rooms and users only where filters name them', async () => {
    const define = async (filter: object): Promise<string> =>
      outcome(await alice.request('POST', `/user/${alice.userId}/filter`, filter));
    for (const list of [['not_an_id'], ['@no-server'], ['!room:rookery.test']]) {
      expect(await define({ room: { timeline: { senders: list } } })).toBe('400 M_BAD_JSON');
      expect(await define({ presence: { not_senders: list } })).toBe('400 M_BAD_JSON');
    }
    for (const list of [['not_an_id'], ['@user:rookery.test'], ['#alias:rookery.test']]) {
      expect(await define({ room: { rooms: list } })).toBe('400 M_BAD_JSON');
      expect(await define({ room: { state: { not_rooms: list } } })).toBe('400 M_BAD_JSON');
    }
    const hash = '!y_DQdaKe9apXHt9wMSV3yM_hYlMOTJtb9Jj-n4PeTF0';
    expect(await define({ room: { rooms: ['!a:b', hash], timeline: { senders: ['@Odd Name:b'] } } })).toBe('200');
  });
});
