import { Database } from '@rookery/database';
import { EventPersister, PurgeService } from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { createTestHomeserver, holdUp, type TestHomeserver, type TestResponse, type TestUser } from '@rookery/testing';

/** A request that stores something: the name of its write, and where that is kept. */
interface Writer {
  readonly what: string;
  readonly write: string;
  readonly send: (user: TestUser, roomId: string, eventId: string) => readonly [string, string, object];
  readonly left: string;
}

const key = 'nqOvzeuGWT/sRx3h7+MHoInYj3Uk2LD/unI9kDYcHwk';
const path = (...parts: string[]): string => parts.map((part) => `/${encodeURIComponent(part)}`).join('');

const fullyRead: Writer = {
  what: 'how far somebody has read',
  write: 'account_data',
  send: (_, roomId, eventId) => ['POST', `/rooms${path(roomId)}/read_markers`, { 'm.fully_read': eventId }],
  left: `SELECT content FROM room_account_data WHERE user_id = ? AND account_data_type = 'm.fully_read'`,
};
const delayed: Writer = {
  what: 'an event for later',
  write: 'delayed_events_add',
  send: (_, roomId) => [
    'PUT',
    `/rooms${path(roomId)}/send/m.room.message/late?org.matrix.msc4140.delay=60000`,
    { msgtype: 'm.text', body: 'later' },
  ],
  left: `SELECT delay_id FROM delayed_events WHERE '@' || user_localpart || ':rookery.test' = ?`,
};
const ofAccounts: readonly Writer[] = [
  fullyRead,
  delayed,
  {
    what: 'account data',
    write: 'account_data',
    send: ({ userId }) => ['PUT', `/user${path(userId)}/account_data/m.late`, { late: true }],
    left: 'SELECT content FROM account_data WHERE user_id = ?',
  },
  {
    what: 'a tag',
    write: 'account_data',
    send: ({ userId }, roomId) => ['PUT', `/user${path(userId)}/rooms${path(roomId)}/tags/u.late`, {}],
    left: `SELECT content FROM room_account_data WHERE user_id = ? AND account_data_type = 'm.tag'`,
  },
  {
    what: 'a push rule',
    write: 'push_rules',
    send: () => ['PUT', '/pushrules/global/content/late', { pattern: 'late', actions: ['notify'] }],
    left: 'SELECT rule_id FROM push_rules WHERE user_name = ?',
  },
  {
    what: 'a filter',
    write: 'filter',
    send: ({ userId }) => ['POST', `/user${path(userId)}/filter`, { room: { timeline: { limit: 7 } } }],
    left: 'SELECT filter_id FROM user_filters WHERE user_id = ?',
  },
  {
    what: 'a name',
    write: 'profile',
    send: ({ userId }) => ['PUT', `/profile${path(userId)}/displayname`, { displayname: 'Late' }],
    left: `SELECT user_id FROM profiles WHERE user_id = ? AND displayname = 'Late'`,
  },
  {
    what: 'a key backup',
    write: 'key_backup_create',
    send: () => ['POST', '/room_keys/version', { algorithm: 'm.megolm_backup.v1', auth_data: { public_key: key } }],
    left: 'SELECT version FROM e2e_room_keys_versions WHERE user_id = ?',
  },
  {
    what: 'keys that prove devices',
    // The first of its writes: on SQLite the others come behind it.
    write: 'device_reserve',
    send: ({ userId }) => [
      'POST',
      '/keys/device_signing/upload',
      { master_key: { user_id: userId, usage: ['master'], keys: { [`ed25519:${key}`]: key } } },
    ],
    left: 'SELECT user_id FROM e2e_cross_signing_keys WHERE user_id = ?',
  },
  {
    what: 'a token for other services',
    write: 'openid_token',
    send: ({ userId }) => ['POST', `/user${path(userId)}/openid/request_token`, {}],
    left: 'SELECT token_hash FROM open_id_tokens WHERE user_id = ?',
  },
];

describe.each(['sqlite', 'postgres'] as const)('what is stored late (%s)', (kind) => {
  let server: TestHomeserver;
  let database: Database;
  let count = 0;

  beforeAll(async () => {
    server = await createTestHomeserver({ database: kind, processes: 1, settings: { max_event_delay_duration: '1h' } });
    database = server.server.service(Database);
  });
  afterAll(() => server?.stop());

  /** Somebody in a room, and an event of it. */
  const settle = async (): Promise<[user: TestUser, roomId: string, eventId: string]> => {
    const user = await server.registerUser(`late${count++}`, 'password');
    const { body: room } = await user.request<{ room_id: string }>('POST', '/createRoom', {});
    const message = { msgtype: 'm.text', body: 'hi' };
    const { body: sent } = await user.request<{ event_id: string }>(
      'PUT',
      `/rooms${path(room.room_id)}/send/m.room.message/1`,
      message,
    );
    return [user, room.room_id, sent.event_id];
  };

  it.each(ofAccounts)('is not kept of an account that is being closed: $what', async ({ write, send, left }) => {
    const [user, roomId, eventId] = await settle();
    const reached = holdUp(database, 'deactivate', write);
    const password = { type: 'm.login.password', identifier: { type: 'm.id.user', user: user.userId } };
    const closing = user.request('POST', '/account/deactivate', { auth: { ...password, password: 'password' } });
    await reached;
    const late = await user.request(...send(user, roomId, eventId));
    expect((await closing).status).toBe(200);
    expect(late).toMatchObject({ status: 403, body: { errcode: 'M_USER_DEACTIVATED' } });
    expect(await database.query(left, [user.userId])).toEqual([]);
  });

  it.each([
    ['a join', 'send'],
    ['a knock', 'send'],
    ['a name in a room', 'send'],
    ['a room', 'createRoom'],
  ] as const)('is not kept of an account that was closed meanwhile: %s', async (what, method) => {
    const [user] = await settle();
    const owner = await server.registerUser(`late${count++}`, 'password');
    const joinRules = { type: 'm.room.join_rules', content: { join_rule: what === 'a knock' ? 'knock' : 'public' } };
    const made = { preset: 'public_chat', initial_state: [joinRules] };
    const { body: room } = await owner.request<{ room_id: string }>('POST', '/createRoom', made);
    const inRoom = `/rooms${path(room.room_id)}`;
    const requests: Readonly<Record<typeof what, readonly [string, string, object]>> = {
      'a join': ['POST', `${inRoom}/join`, {}],
      'a knock': ['POST', `/knock${path(room.room_id)}`, {}],
      'a name in a room': [
        'PUT',
        `${inRoom}/state/m.room.member${path(user.userId)}`,
        { membership: 'join', displayname: 'Late' },
      ],
      'a room': ['POST', '/createRoom', {}],
    };
    if (what === 'a name in a room') await user.request(...requests['a join']);
    // Everything was checked, and the rooms of the account are left, before the event is made.
    const persister = server.server.service(EventPersister);
    const before = persister[method].bind(persister) as (what: unknown) => Promise<never>;
    const held = jest.spyOn(persister, method).mockImplementationOnce(async (draft) => {
      const password = { type: 'm.login.password', identifier: { type: 'm.id.user', user: user.userId } };
      const body = { auth: { ...password, password: 'password' } };
      expect((await user.request('POST', '/account/deactivate', body)).status).toBe(200);
      return before(draft);
    });
    const late = await user.request(...requests[what]);
    held.mockRestore();
    expect(late).toMatchObject({ status: 403, body: { errcode: 'M_USER_DEACTIVATED' } });
    const left = await database.query(
      'SELECT DISTINCT membership, forgotten FROM local_current_membership WHERE user_id = ?',
      [user.userId],
    );
    expect(left).toEqual([{ membership: 'leave', forgotten: 1 }]);
  });

  const login = async (user: TestUser, more: object): Promise<Record<string, string>> => {
    const who = { identifier: { type: 'm.id.user', user: user.userId }, password: 'password' };
    const body = { type: 'm.login.password', ...who, ...more };
    return (await server.request<Record<string, string>>('POST', '/login', body)).body;
  };

  it('is not kept of a device that is being deleted: a session that is renewed', async () => {
    const user = await server.registerUser(`late${count++}`, 'password');
    const phone = await login(user, { refresh_token: true });
    expect(await server.request('GET', '/account/whoami', undefined, phone['access_token'])).toMatchObject({
      status: 200,
    });
    const reached = holdUp(database, 'session_refresh', 'session_close_devices');
    const renew = (token: string | undefined): Promise<TestResponse<Record<string, string>>> =>
      server.request('POST', '/refresh', { refresh_token: token });
    const renewing = renew(phone['refresh_token']);
    await reached;
    const closing = server.request('POST', '/logout', {}, phone['access_token']);
    const { body: renewed } = await renewing;
    expect((await closing).status).toBe(200);
    expect(await renew(renewed['refresh_token'])).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
    expect(await database.query('SELECT id FROM refresh_tokens WHERE user_id = ?', [user.userId])).toEqual([]);
  });

  it('is not kept of a device that is being deleted: a session that takes it over', async () => {
    const user = await server.registerUser(`late${count++}`, 'password');
    const reached = holdUp(database, 'session_open', 'session_close_devices');
    const opening = login(user, { device_id: user.deviceId });
    await reached;
    const closing = user.request('POST', '/logout', {});
    const { access_token: token } = await opening;
    expect((await closing).status).toBe(200);
    expect(await server.request('GET', '/account/whoami', undefined, token)).toMatchObject({ status: 401 });
    expect(await database.query('SELECT id FROM access_tokens WHERE user_id = ?', [user.userId])).toEqual([]);
  });

  it.each([fullyRead, delayed])('is not kept of a room that is being deleted: $what', async ({ write, send, left }) => {
    const [user, roomId, eventId] = await settle();
    // One writer at a time takes the first step of the deletion no sooner than this is stored.
    const reached = holdUp(database, write, kind === 'sqlite' ? 'purge_events' : 'purge_room');
    const sending = user.request(...send(user, roomId, eventId));
    await reached;
    expect(await server.server.service(PurgeService).purgeRoom(roomId)).toBe(true);
    await sending;
    expect(await database.query(left, [user.userId])).toEqual([]);
    // What was checked before, and is stored after it.
    const data = server.server.service(AccountDataService);
    await expect(data.set(user.userId, roomId, 'm.fully_read', { event_id: eventId }, {})).rejects.toThrow(
      'no such room',
    );
    expect(await database.query(fullyRead.left, [user.userId])).toEqual([]);
  });

  it('goes with the room when it was stored before: an event for later', async () => {
    const [user, roomId, eventId] = await settle();
    expect((await user.request(...delayed.send(user, roomId, eventId))).status).toBe(200);
    await server.server.service(PurgeService).purgeRoom(roomId);
    expect(await database.query(delayed.left, [user.userId])).toEqual([]);
  });

  it('does not take people’s own push rules: they see them, and hold again in a room that comes back', async () => {
    const [user, roomId] = await settle();
    const conditions = [{ kind: 'event_match', key: 'room_id', pattern: roomId }];
    const rules = [`room${path(roomId)}`, 'override/mine'];
    for (const [index, rule] of rules.entries()) {
      const body = { actions: [], ...(index === 1 && { conditions }) };
      expect((await user.request('PUT', `/pushrules/global/${rule}`, body)).status).toBe(200);
    }
    const groups = 'SELECT user_id FROM push_rule_groups WHERE room_id = ?';
    await server.server.service(PurgeService).purgeRoom(roomId);
    // What the server works out from them for the room goes.
    expect(await database.query(groups, [roomId])).toEqual([]);
    for (const rule of rules) {
      expect((await user.request('GET', `/pushrules/global/${rule}`)).status).toBe(200);
      expect((await user.request('DELETE', `/pushrules/global/${rule}`)).status).toBe(200);
    }
  });
});
