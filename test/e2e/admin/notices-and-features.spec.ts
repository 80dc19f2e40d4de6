import type { TestHomeserver, TestUser } from '@rookery/testing';
import { databases, join, ok, outcome, startHomeserver, type WireEvent } from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

const slidingSync = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

describe.each(databases)('notices and features in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let other: Operator;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, {
      server_notices: { system_mxid_localpart: 'notices', room_name: 'News', room_topic: '', room_avatar_url: '' },
      experimental_features: { msc3575_enabled: false },
    });
    root = await operatorOf(homeserver);
    other = await operatorOf(homeserver, 'second');
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  describe('notices', () => {
    const content = { msgtype: 'm.text', body: 'The server sleeps tonight' };

    it('reach their user in a room of their own', async () => {
      const { event_id: id } = await root.ok<{ event_id: string }>('POST', '/v1/send_server_notice', {
        user_id: alice.userId,
        content,
      });
      const sync = await ok<{ rooms: { invite: Record<string, unknown> } }>(alice, 'GET', '/sync');
      const [roomId = ''] = Object.keys(sync.rooms.invite);
      await join(alice, roomId);
      const event = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${id}`);
      // What the settings leave empty is not set, neither when the room is made nor with later notices.
      await root.ok('POST', '/v1/send_server_notice', { user_id: alice.userId, content });
      const types = (await ok<WireEvent[]>(alice, 'GET', `/rooms/${roomId}/state`)).map(({ type }) => type);
      expect(types).toContain('m.room.name');
      for (const type of ['m.room.topic', 'm.room.avatar']) expect(types).not.toContain(type);
      expect(event).toMatchObject({ type: 'm.room.message', sender: '@notices:rookery.test', content });
      const state = await root.ok<{ event_id: string }>('POST', '/v1/send_server_notice', {
        ...{ user_id: alice.userId, content: { topic: 'Changed' } },
        ...{ type: 'm.room.topic', state_key: '' },
      });
      expect(state.event_id).toMatch(/^\$/);
      expect(await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.topic`)).toEqual({ topic: 'Changed' });
    });

    it('are sent once per transaction of an administrator', async () => {
      const send = async (by: Operator, txnId: string): Promise<string> =>
        (
          await by.ok<{ event_id: string }>('PUT', `/v1/send_server_notice/${txnId}`, {
            user_id: bob.userId,
            content,
          })
        ).event_id;
      const first = await send(root, 'one');
      expect(await send(root, 'one')).toBe(first);
      expect(await send(root, 'two')).not.toBe(first);
      expect(await send(other, 'one')).not.toBe(first);
      expect(await send(root, 'long'.repeat(200))).not.toBe(first);
    });

    it.each([
      [{ user_id: '@alice:rookery.test' }, '400 M_MISSING_PARAM'],
      [{ content }, '400 M_MISSING_PARAM'],
      [{ user_id: 5, content }, '400 M_BAD_JSON'],
      [{ user_id: '@alice:rookery.test', content: 'text' }, '400 M_BAD_JSON'],
      [{ user_id: '@alice:elsewhere.test', content }, '400 M_UNKNOWN'],
      [{ user_id: 'alice', content }, '400 M_INVALID_PARAM'],
      [{ user_id: '@nobody:rookery.test', content }, '404 M_NOT_FOUND'],
    ])('are refused with %j', async (body, expected) => {
      expect(outcome(await root.call('POST', '/v1/send_server_notice', body))).toBe(expected);
      expect(outcome(await root.call('PUT', '/v1/send_server_notice/refused', body))).toBe(expected);
    });

    it('are refused where they are switched off', async () => {
      const plain = await startHomeserver(database);
      try {
        const operator = await operatorOf(plain);
        const notice = { user_id: operator.user.userId, content };
        expect(outcome(await operator.call('POST', '/v1/send_server_notice', notice))).toBe('400 M_UNKNOWN');
      } finally {
        await plain.stop();
      }
    });
  });

  describe('features', () => {
    const path = (user: TestUser): string => `/v1/experimental_features/${user.userId}`;
    const unstable = async (user: TestUser): Promise<Record<string, boolean>> => {
      const versions = await ok<{ unstable_features: Record<string, boolean> }>(
        user,
        'GET',
        '/_matrix/client/versions',
      );
      return versions.unstable_features;
    };

    it('are switched on for one user, and off again', async () => {
      expect(await root.ok('GET', path(alice))).toEqual({
        features: { msc3881: false, msc3575: false, msc4222: false },
      });
      expect(outcome(await alice.request('POST', slidingSync, {}))).toBe('404 M_UNRECOGNIZED');
      expect(await root.ok('PUT', path(alice), { features: { msc3575: true, msc3881: true } })).toEqual({});
      expect(await root.ok('GET', path(alice))).toEqual({ features: { msc3881: true, msc3575: true, msc4222: false } });
      expect((await alice.request('POST', slidingSync, {})).status).toBe(200);
      expect(outcome(await bob.request('POST', slidingSync, {}))).toBe('404 M_UNRECOGNIZED');
      expect(await unstable(alice)).toMatchObject({
        'org.matrix.msc3881': true,
        'org.matrix.simplified_msc3575': true,
      });
      expect(await unstable(bob)).toMatchObject({
        'org.matrix.msc3881': false,
        'org.matrix.simplified_msc3575': false,
      });
      const pusher = {
        ...{
          app_display_name: 'App',
          app_id: 'app',
          device_display_name: 'Phone',
          kind: 'http',
          lang: 'en',
          pushkey: 'k',
        },
        data: { url: 'https://push.test/_matrix/push/v1/notify' },
      };
      await ok(alice, 'POST', '/pushers/set', pusher);
      await ok(bob, 'POST', '/pushers/set', pusher);
      const pushersOf = async (user: TestUser): Promise<readonly object[]> =>
        (await ok<{ pushers: object[] }>(user, 'GET', '/pushers')).pushers;
      expect((await pushersOf(bob))[0]).not.toHaveProperty(['org.matrix.msc3881.enabled']);
      await root.ok('PUT', path(alice), { features: { msc3575: false } });
      expect(outcome(await alice.request('POST', slidingSync, {}))).toBe('404 M_UNRECOGNIZED');
      expect(await root.ok('GET', path(alice))).toEqual({
        features: { msc3881: true, msc3575: false, msc4222: false },
      });
    });

    it.each([
      [{}, '400 M_MISSING_PARAM'],
      [{ features: {} }, '400 M_UNKNOWN'],
      [{ features: { flying: true } }, '400 M_UNKNOWN'],
      [{ features: { msc3575: 'yes' } }, '400 M_BAD_JSON'],
      [{ features: [] }, '400 M_BAD_JSON'],
    ])('are refused with %j', async (body, expected) =>
      expect(outcome(await root.call('PUT', path(alice), body))).toBe(expected),
    );

    it('are those of users of this server', async () => {
      for (const method of ['GET', 'PUT']) {
        const body = method === 'PUT' ? { features: { msc3575: true } } : undefined;
        const refused = await root.call(method, '/v1/experimental_features/@x:elsewhere.test', body);
        expect(outcome(refused)).toBe('400 M_UNKNOWN');
      }
      const nobody = { features: { msc3881: true } };
      const stored = await root.call('PUT', '/v1/experimental_features/@nobody:rookery.test', nobody);
      expect(outcome(stored)).toBe('404 M_NOT_FOUND');
    });
  });

  it('are for administrators only', async () => {
    const endpoints: EndpointRow[] = [
      ['POST', '/v1/send_server_notice', {}],
      ['PUT', '/v1/send_server_notice/x', {}],
      ['GET', '/v1/experimental_features/@alice:rookery.test'],
      ['PUT', '/v1/experimental_features/@alice:rookery.test', {}],
    ];
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
  });
});
