import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const filterType = 'org.matrix.msc4155.invite_permission_config';

describe.each(['sqlite', 'postgres'] as const)('invites that somebody does not want (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  const set = async (type: string, content: object): Promise<void> => {
    const path = `/user/${bob.userId}/account_data/${type}`;
    expect((await bob.request('PUT', path, content)).status).toBe(200);
  };
  const makeRoom = async (more: object = {}): Promise<string> => {
    const { status, body } = await alice.request('POST', '/createRoom', more);
    expect(status).toBe(200);
    return String(body['room_id']);
  };
  const invite = (roomId: string) => alice.request('POST', `/rooms/${roomId}/invite`, { user_id: bob.userId });
  const membership = async (roomId: string): Promise<unknown> =>
    (await alice.request('GET', `/rooms/${roomId}/state/m.room.member/${bob.userId}`)).body['membership'];
  /** Rooms to which bob sees himself invited: in both kinds of sync, as what came before them, and among his notifications. */
  const seen = async (): Promise<string[][]> => {
    const classic = await bob.request<{ rooms?: { invite?: object } }>('GET', '/sync?timeout=0');
    const lists = { all: { ranges: [[0, 99]], timeline_limit: 0, filters: { is_invite: true } } };
    const sliding = await bob.request<{ rooms: object }>('POST', `${slidingPath}?timeout=0`, { lists });
    const first = await bob.request<{ rooms: { room_id: string; membership: string }[] }>('GET', '/initialSync');
    const invited = first.body.rooms.filter((each) => each.membership === 'invite').map((each) => each.room_id);
    expect(invited.sort()).toEqual(Object.keys(classic.body.rooms?.invite ?? {}).sort());
    const notified = await bob.request<{ notifications: { room_id: string }[] }>('GET', '/notifications');
    return [
      Object.keys(classic.body.rooms?.invite ?? {}).sort(),
      Object.keys(sliding.body.rooms).sort(),
      notified.body.notifications.map((each) => each.room_id).sort(),
    ];
  };

  beforeAll(async () => {
    const settings = { experimental_features: { msc4155_enabled: true } };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('are refused where their sender is blocked, by whatever way they come', async () => {
    await set(filterType, { blocked_users: ['@ali?e:*'] });
    const blocked = { status: 403, body: { errcode: 'M_INVITE_BLOCKED' } };
    const roomId = await makeRoom();
    expect(await invite(roomId)).toMatchObject(blocked);
    const state = `/rooms/${roomId}/state/m.room.member/${bob.userId}`;
    expect(await alice.request('PUT', state, { membership: 'invite' })).toMatchObject(blocked);
    expect(await alice.request('POST', '/createRoom', { invite: [bob.userId] })).toMatchObject(blocked);
    expect(await membership(roomId)).toBeUndefined();
    await set(filterType, { blocked_users: ['@ali?e:*'], allowed_users: [alice.userId] });
    expect((await invite(roomId)).status).toBe(200);
    expect(await seen()).toEqual([[roomId], [roomId], [roomId]]);
    await bob.request('POST', `/rooms/${roomId}/leave`, {});
  });

  it('look sent and are never shown where their sender is to be ignored', async () => {
    const [, , notifiedBefore] = await seen();
    await set(filterType, { ignored_servers: ['rookery.test'] });
    const roomId = await makeRoom();
    const since = (await bob.request('GET', '/sync?timeout=0')).body['next_batch'];
    expect((await invite(roomId)).status).toBe(200);
    expect(await membership(roomId)).toBe('invite');
    expect(await seen()).toEqual([[], [], notifiedBefore]);
    const news = await bob.request('GET', `/sync?timeout=0&since=${String(since)}`);
    expect(news.body['rooms']).toBeUndefined();
    // Those who change their mind find them with their next first sync.
    await set(filterType, { enabled: false, ignored_servers: ['rookery.test'] });
    expect((await seen()).slice(0, 2)).toEqual([[roomId], [roomId]]);
    await set('m.ignored_user_list', { ignored_users: { [alice.userId]: {} } });
    expect((await seen()).slice(0, 2)).toEqual([[], []]);
    expect((await invite(await makeRoom())).status).toBe(200);
    expect((await seen())[2]).toEqual(notifiedBefore);
    await set('m.ignored_user_list', {});
    await set(filterType, {});
  });

  it('do not keep what was left before them where it was: as a room that the user is in, or as an invite', async () => {
    const carol = await homeserver.registerUser('carol');
    const joined = await makeRoom({ preset: 'public_chat' });
    expect((await bob.request('POST', `/join/${joined}`, {})).status).toBe(200);
    const created = await carol.request('POST', '/createRoom', {
      ...{ invite: [bob.userId], preset: 'public_chat', power_level_content_override: { invite: 0 } },
    });
    const invited = String(created.body['room_id']);
    expect((await alice.request('POST', `/join/${invited}`, {})).status).toBe(200);
    await set('m.ignored_user_list', { ignored_users: { [alice.userId]: {} } });
    type Rooms = Record<'join' | 'invite' | 'leave', Record<string, { timeline: { events: object[] } }>>;
    const classic = async (since?: string): Promise<{ next_batch: string; rooms?: Partial<Rooms> }> =>
      (await bob.request<{ next_batch: string }>('GET', `/sync?timeout=0${since ? `&since=${since}` : ''}`)).body;
    const sliding = async (pos?: string): Promise<{ pos: string; rooms: Record<string, object> }> => {
      const lists = { all: { ranges: [[0, 99]], timeline_limit: 10, required_state: [['m.room.member', '$ME']] } };
      const path = `${slidingPath}?timeout=0${pos ? `&pos=${pos}` : ''}`;
      return (await bob.request<{ pos: string; rooms: Record<string, object> }>('POST', path, { lists })).body;
    };
    const [before, { pos, rooms }] = [await classic(), await sliding()];
    expect(Object.keys(before.rooms!.join!)).toContain(joined);
    expect(Object.keys(before.rooms!.invite!)).toContain(invited);
    expect(Object.keys(rooms)).toEqual(expect.arrayContaining([joined, invited]));

    expect((await bob.request('POST', `/rooms/${joined}/leave`, {})).status).toBe(200);
    const kick = { user_id: bob.userId };
    expect((await carol.request('POST', `/rooms/${invited}/kick`, kick)).status).toBe(200);
    for (const roomId of [joined, invited]) expect((await invite(roomId)).status).toBe(200);
    const news = await classic(before.next_batch);
    expect(news.rooms?.invite).toBeUndefined();
    expect(Object.keys(news.rooms?.leave ?? {}).sort()).toEqual([joined, invited].sort());
    const own = { type: 'm.room.member', state_key: bob.userId, content: { membership: 'leave' } };
    expect(news.rooms!.leave![joined]!.timeline.events).toEqual([expect.objectContaining(own)]);
    expect(JSON.stringify(news.rooms)).not.toContain(`"sender":"${alice.userId}"`);
    const told = await sliding(pos);
    const left = expect.objectContaining({ timeline: [expect.objectContaining(own)] }) as object;
    expect(told.rooms).toEqual({ [joined]: left, [invited]: left });
    // Told once.
    expect((await classic(news.next_batch)).rooms).toBeUndefined();
    expect((await sliding(told.pos)).rooms).toEqual({});
    await set('m.ignored_user_list', {});
  });

  it('do not end a knock that they answer, as far as is told', async () => {
    const roomId = await makeRoom();
    expect(
      (await alice.request('PUT', `/rooms/${roomId}/state/m.room.join_rules`, { join_rule: 'knock' })).status,
    ).toBe(200);
    expect((await bob.request('POST', `/knock/${roomId}`, {})).status).toBe(200);
    await set('m.ignored_user_list', { ignored_users: { [alice.userId]: {} } });
    const lists = { all: { ranges: [[0, 99]], timeline_limit: 10, required_state: [['m.room.member', '$ME']] } };
    const path = `${slidingPath}?timeout=0`;
    const { pos, rooms } = (await bob.request<{ pos: string; rooms: Record<string, object> }>('POST', path, { lists }))
      .body;
    expect(Object.keys(rooms)).toContain(roomId);
    const since = String((await bob.request('GET', '/sync?timeout=0')).body['next_batch']);
    expect((await invite(roomId)).status).toBe(200);
    expect((await bob.request('GET', `/sync?timeout=0&since=${since}`)).body['rooms']).toBeUndefined();
    expect((await bob.request('POST', `${path}&pos=${pos}`, { lists })).body['rooms']).toEqual({});
    await set('m.ignored_user_list', {});
  });

  it('are refused, and not shown any more, where all are blocked', async () => {
    const roomId = await makeRoom({ invite: [bob.userId] });
    expect((await seen())[0]).toContain(roomId);
    await set('m.invite_permission_config', { default_action: 'block' });
    expect((await seen()).slice(0, 2)).toEqual([[], []]);
    expect(await invite(await makeRoom())).toMatchObject({ status: 403, body: { errcode: 'M_INVITE_BLOCKED' } });
    await set('m.invite_permission_config', {});
    expect((await seen())[0]).toContain(roomId);
  });
});

it('filters of invites do nothing unless the server is set so', async () => {
  const homeserver = await createTestHomeserver({ fetch: validatedFetch });
  try {
    const alice = await homeserver.registerUser('alice');
    const bob = await homeserver.registerUser('bob');
    await bob.request('PUT', `/user/${bob.userId}/account_data/${filterType}`, { blocked_users: ['*'] });
    expect((await alice.request('POST', '/createRoom', { invite: [bob.userId] })).status).toBe(200);
  } finally {
    await homeserver.stop();
  }
});
