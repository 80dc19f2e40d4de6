import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { type AdminRequest, asUser, type Json, startAdminWorld } from './support.js';

describe.each(['sqlite', 'postgres'] as const)('the admin API of what users do (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  let root: TestUser;
  let alice: TestUser;
  let bob: TestUser;
  let rooms: { joined: string; left: string; invited: string };

  const createRoom = async (user: TestUser, body: Json = {}): Promise<string> =>
    (await user.request<{ room_id: string }>('POST', '/createRoom', body)).body.room_id;
  const send = async (user: TestUser, roomId: string, body: string): Promise<string> => {
    const path = `/rooms/${roomId}/send/m.room.message/${encodeURIComponent(body)}`;
    return (await user.request<{ event_id: string }>('PUT', path, { msgtype: 'm.text', body })).body.event_id;
  };

  beforeAll(async () => {
    ({ homeserver, admin, root } = await startAdminWorld({
      database,
      settings: { rc_message: { per_second: 0.001, burst_count: 60 } },
    }));
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    rooms = {
      joined: await createRoom(alice),
      left: await createRoom(alice),
      invited: await createRoom(bob, { invite: [alice.userId] }),
    };
    await alice.request('POST', `/rooms/${rooms.left}/leave`, {});
  });
  afterAll(() => homeserver?.stop());

  it('tells where somebody comes from, to administrators and the user alone', async () => {
    await alice.request('GET', '/account/whoami');
    const expected = {
      status: 200,
      body: {
        user_id: alice.userId,
        devices: {
          '': {
            sessions: [
              { connections: [{ ip: '127.0.0.1', last_seen: expect.any(Number), user_agent: expect.any(String) }] },
            ],
          },
        },
      },
    };
    expect(await admin('GET', `v1/whois/${alice.userId}`)).toMatchObject(expected);
    expect(await asUser(alice)('GET', `v1/whois/${alice.userId}`)).toMatchObject(expected);
    expect(await asUser(alice)('GET', `v1/whois/${bob.userId}`)).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
    expect(await admin('GET', 'v1/whois/@x:elsewhere.test')).toMatchObject({
      status: 400,
      body: { errcode: 'M_UNKNOWN' },
    });
    expect(await homeserver.request('GET', `/_synapse/admin/v1/whois/${alice.userId}`)).toMatchObject({
      status: 401,
      body: { errcode: 'M_MISSING_TOKEN' },
    });
  });

  it('tells who is in which room', async () => {
    expect(await admin('GET', `v1/users/${alice.userId}/joined_rooms`)).toMatchObject({
      status: 200,
      body: { joined_rooms: [rooms.joined], total: 1 },
    });
    expect((await admin('GET', `v1/users/${alice.userId}/memberships`)).body).toEqual({
      memberships: { [rooms.joined]: 'join', [rooms.left]: 'leave', [rooms.invited]: 'invite' },
    });
    expect((await admin('GET', 'v1/users/@x:elsewhere.test/joined_rooms')).body).toEqual({
      joined_rooms: [],
      total: 0,
    });
    expect((await admin('GET', 'v1/users/@x:elsewhere.test/memberships')).body).toEqual({ memberships: {} });
    expect((await admin('GET', 'v1/users/nobody/joined_rooms')).body['errcode']).toBe('M_INVALID_PARAM');
    expect((await admin('GET', 'v1/users/nobody/memberships')).body['errcode']).toBe('M_INVALID_PARAM');
  });

  it('counts invites and joins since a time', async () => {
    const count = async (what: string, ts: number) => (await admin('GET', `v1/users/${what}?from_ts=${ts}`)).body;
    const later = Date.now() + 3_600_000;
    expect(await count(`${bob.userId}/sent_invite_count`, 0)).toEqual({ invite_count: 1 });
    expect(await count(`${bob.userId}/sent_invite_count`, later)).toEqual({ invite_count: 0 });
    expect(await count(`${alice.userId}/cumulative_joined_room_count`, 0)).toEqual({ cumulative_joined_room_count: 2 });
    expect(await count(`${alice.userId}/cumulative_joined_room_count`, later)).toEqual({
      cumulative_joined_room_count: 0,
    });
    for (const what of ['sent_invite_count', 'cumulative_joined_room_count']) {
      expect((await admin('GET', `v1/users/${alice.userId}/${what}`)).body['errcode']).toBe('M_MISSING_PARAM');
      expect((await admin('GET', `v1/users/${alice.userId}/${what}?from_ts=x`)).body['errcode']).toBe(
        'M_INVALID_PARAM',
      );
    }
  });

  it('shows account data', async () => {
    await alice.request('PUT', `/user/${alice.userId}/account_data/org.example`, { a: 1 });
    await alice.request('PUT', `/user/${alice.userId}/rooms/${rooms.joined}/account_data/org.example.room`, { b: 2 });
    const { status, body } = await admin<{ account_data: { global: Json; rooms: Record<string, Json> } }>(
      'GET',
      `v1/users/${alice.userId}/accountdata`,
    );
    expect(status).toBe(200);
    expect(body.account_data.global['org.example']).toEqual({ a: 1 });
    expect(body.account_data.rooms[rooms.joined]).toEqual({ 'org.example.room': { b: 2 } });
    // No name of a type hides what it holds.
    await alice.request('PUT', `/user/${alice.userId}/rooms/${rooms.joined}/account_data/__proto__`, { c: 3 });
    const again = await admin<typeof body>('GET', `v1/users/${alice.userId}/accountdata`);
    expect(Object.entries(again.body.account_data.rooms[rooms.joined] ?? {})).toContainEqual(['__proto__', { c: 3 }]);
    expect((await admin('GET', 'v1/users/@nobody:rookery.test/accountdata')).status).toBe(404);
    expect((await admin('GET', 'v1/users/@x:elsewhere.test/accountdata')).status).toBe(400);
  });

  it('the pushers of a user are listed', async () => {
    await alice.request('POST', '/pushers/set', {
      kind: 'http',
      app_id: 'org.example.app',
      pushkey: 'key',
      app_display_name: 'App',
      device_display_name: 'Phone',
      profile_tag: 'tag',
      lang: 'en',
      data: { url: 'https://push.example.org/_matrix/push/v1/notify' },
    });
    expect((await admin('GET', `v1/users/${alice.userId}/pushers`)).body).toEqual({
      pushers: [
        {
          kind: 'http',
          app_id: 'org.example.app',
          pushkey: 'key',
          app_display_name: 'App',
          device_display_name: 'Phone',
          profile_tag: 'tag',
          lang: 'en',
          data: { url: 'https://push.example.org/_matrix/push/v1/notify' },
          enabled: true,
          device_id: alice.deviceId,
        },
      ],
      total: 1,
    });
    expect((await admin('GET', `v1/users/${bob.userId}/pushers`)).body).toEqual({ pushers: [], total: 0 });
    expect((await admin('GET', 'v1/users/@nobody:rookery.test/pushers')).status).toBe(404);
    expect((await admin('GET', 'v1/users/@x:elsewhere.test/pushers')).status).toBe(400);
  });

  describe('limits of single users', () => {
    const path = (user: TestUser): string => `v1/users/${user.userId}/override_ratelimit`;

    it('hold in place of those for all', async () => {
      const fast = await homeserver.registerUser('fast');
      const room = await createRoom(fast);
      let count = 0;
      const attempt = () =>
        fast.request('PUT', `/rooms/${room}/send/m.room.message/n${count++}`, { msgtype: 'm.text', body: 'x' });
      expect(await admin('GET', path(fast))).toMatchObject({ status: 200, body: {} });
      expect((await admin('GET', path(fast))).body).toEqual({});
      expect((await admin('POST', path(fast), { messages_per_second: 1, burst_count: 2 })).body).toEqual({
        messages_per_second: 1,
        burst_count: 2,
      });
      expect((await admin('GET', path(fast))).body).toEqual({ messages_per_second: 1, burst_count: 2 });
      await eventually(async () => {
        const answers = await Promise.all(Array.from({ length: 10 }, attempt));
        return answers.some(({ status }) => status === 429);
      });
      // Nothing said means no limit at all.
      expect((await admin('POST', path(fast))).body).toEqual({ messages_per_second: 0, burst_count: 0 });
      for (let n = 0; n < 80; n++) expect((await attempt()).status).toBe(200);
      expect(await admin('DELETE', path(fast))).toMatchObject({ status: 200, body: {} });
      expect((await admin('GET', path(fast))).body).toEqual({});
    });

    it.each([
      { messages_per_second: 'fast' },
      { messages_per_second: -1 },
      { burst_count: 1.5 },
      { burst_count: true },
    ])('are not %j', async (body) =>
      expect(await admin('POST', path(alice), body)).toMatchObject({
        status: 400,
        body: { errcode: 'M_INVALID_PARAM' },
      }),
    );

    it.each(['GET', 'POST', 'DELETE'])('%s: only for users who are there', async (method) => {
      expect((await admin(method, 'v1/users/@nobody:rookery.test/override_ratelimit')).status).toBe(404);
      expect((await admin(method, 'v1/users/@x:elsewhere.test/override_ratelimit')).status).toBe(400);
    });
  });

  describe('redaction of all that somebody said', () => {
    const outcome = async (id: string): Promise<Json> => {
      let body: Json = {};
      await eventually(async () => {
        body = (await admin('GET', `v1/user/redact_status/${id}`)).body;
        return body['status'] === 'complete' || body['status'] === 'failed';
      });
      return body;
    };
    const start = async (userId: string, body: Json): Promise<string> => {
      const started = await admin<{ redact_id: string }>('POST', `v1/user/${userId}/redact`, body);
      expect(started.status).toBe(200);
      return started.body.redact_id;
    };
    const bodies = async (roomId: string): Promise<unknown[]> => {
      const page = await root.request<{ chunk: { type: string; content: Json }[] }>(
        'GET',
        `/rooms/${roomId}/messages?dir=b&limit=100`,
      );
      return page.body.chunk.filter((event) => event.type === 'm.room.message').map((event) => event.content['body']);
    };
    const roomOf = async (...users: TestUser[]): Promise<string> => {
      const room = await createRoom(root, { preset: 'public_chat' });
      for (const user of users) await user.request('POST', `/join/${room}`, {});
      return room;
    };

    it('takes away messages and the name in joins, in all rooms', async () => {
      const spammer = await homeserver.registerUser('spammer');
      const [one, two] = [await roomOf(spammer), await roomOf(spammer)];
      await send(spammer, one, 'spam 1');
      await send(root, one, 'kept');
      await send(spammer, two, 'spam 2');
      const id = await start(spammer.userId, { rooms: [], reason: 'spam' });
      expect(await outcome(id)).toEqual({ status: 'complete', failed_redactions: {} });
      expect(await bodies(one)).toEqual(['kept', undefined]);
      expect(await bodies(two)).toEqual([undefined]);
      const member = await root.request<Json>('GET', `/rooms/${one}/state/m.room.member/${spammer.userId}`);
      expect(member.body).toEqual({ membership: 'join' });
      const page = await root.request<{ chunk: { type: string; sender: string; content: Json }[] }>(
        'GET',
        `/rooms/${one}/messages?dir=b&limit=100`,
      );
      const redactions = page.body.chunk.filter((event) => event.type === 'm.room.redaction');
      expect(redactions).toHaveLength(2);
      expect(redactions.every((event) => event.sender === spammer.userId && event.content['reason'] === 'spam')).toBe(
        true,
      );
    });

    it('takes the newest first, within a time, in the rooms that are named', async () => {
      const spammer = await homeserver.registerUser('spammer2');
      const [one, two] = [await roomOf(spammer), await roomOf(spammer)];
      for (const n of [1, 2, 3]) await send(spammer, one, `spam ${n}`);
      await send(spammer, two, 'elsewhere');
      expect(await outcome(await start(spammer.userId, { rooms: [one], limit: 1 }))).toMatchObject({
        status: 'complete',
      });
      expect(await bodies(one)).toEqual([undefined, 'spam 2', 'spam 1']);
      expect(await bodies(two)).toEqual(['elsewhere']);
      await outcome(await start(spammer.userId, { rooms: [one], before_ts: 1 }));
      await outcome(await start(spammer.userId, { rooms: [one], after_ts: Date.now() + 3_600_000 }));
      expect(await bodies(one)).toEqual([undefined, 'spam 2', 'spam 1']);
      await outcome(await start(spammer.userId, { rooms: [one], after_ts: 1, before_ts: Date.now() + 3_600_000 }));
      expect(await bodies(one)).toEqual([undefined, undefined, undefined]);
    });

    it('is done by the administrator where the user may not, and tells what failed', async () => {
      const spammer = await homeserver.registerUser('spammer3');
      const room = await roomOf(spammer);
      const eventId = await send(spammer, room, 'spam');
      await root.request('POST', `/rooms/${room}/ban`, { user_id: spammer.userId });
      const failed = await outcome(await start(spammer.userId, { rooms: [] }));
      expect(failed).toMatchObject({ status: 'complete', failed_redactions: { [eventId]: expect.any(String) } });
      expect(await bodies(room)).toEqual(['spam']);
      expect(await outcome(await start(spammer.userId, { rooms: [], use_admin: true }))).toEqual({
        status: 'complete',
        failed_redactions: {},
      });
      expect(await bodies(room)).toEqual([undefined]);
    });

    it.each([
      ['no list of rooms', {}, 'M_MISSING_PARAM'],
      ['rooms that are none', { rooms: ['x'] }, 'M_INVALID_PARAM'],
      ['a limit of nothing', { rooms: [], limit: 0 }, 'M_INVALID_PARAM'],
      ['a limit that is no number', { rooms: [], limit: 'all' }, 'M_BAD_JSON'],
      ['use_admin that is no boolean', { rooms: [], use_admin: 'yes' }, 'M_BAD_JSON'],
    ])('needs more than %s', async (_what, body, errcode) =>
      expect(await admin('POST', `v1/user/${alice.userId}/redact`, body)).toMatchObject({
        status: 400,
        body: { errcode },
      }),
    );

    it('has a status only where there is one', async () => {
      expect(await admin('GET', 'v1/user/redact_status/none')).toMatchObject({
        status: 404,
        body: { errcode: 'M_NOT_FOUND' },
      });
    });
  });

  describe('replacement of cross-signing keys', () => {
    const path = (userId: string): string => `v1/users/${userId}/_allow_cross_signing_replacement_without_uia`;
    it('is allowed for ten minutes to those who have some', async () => {
      expect(await admin('POST', path(alice.userId))).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
      // The data of the specification does not know that this endpoint asks for confirmation with 401.
      const upload = (key: string) =>
        fetch(`${homeserver.baseUrl}/_matrix/client/v3/keys/device_signing/upload`, {
          method: 'POST',
          headers: { authorization: `Bearer ${bob.accessToken}` },
          body: JSON.stringify({
            master_key: { user_id: bob.userId, usage: ['master'], keys: { [`ed25519:${key}`]: key } },
          }),
        });
      const [first, second] = [
        'nqOvzeuGWT/sRx3h7+MHoInYj3Uk2LD/unI9kDYcHwk',
        'EmkqvokUn8p+vQAGZitOk4PWjp7Ukp3txV2TbMPEiBQ',
      ];
      expect((await upload(first!)).status).toBe(200);
      expect((await upload(second!)).status).toBe(401);
      const allowed = await admin<{ updatable_without_uia_before_ms: number }>('POST', path(bob.userId));
      expect(allowed.status).toBe(200);
      expect(allowed.body.updatable_without_uia_before_ms).toBeGreaterThan(Date.now());
      expect((await upload(second!)).status).toBe(200);
      expect((await upload(first!)).status).toBe(401);
    });
  });
});

describe.each(['sqlite', 'postgres'] as const)('the admin API of the validity of accounts (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  const path = 'v1/account_validity/validity';
  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({
      database,
      settings: { account_validity: { enabled: true, period: '1d' } },
    }));
  });
  afterAll(() => homeserver?.stop());

  it('ends accounts and lets them live on', async () => {
    const user = await homeserver.registerUser('mortal');
    expect(await admin('POST', path, { user_id: user.userId, expiration_ts: 1 })).toMatchObject({
      status: 200,
      body: { expiration_ts: 1 },
    });
    expect(await user.request('GET', '/account/whoami')).toMatchObject({
      status: 403,
      body: { errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' },
    });
    const renewed = await admin<{ expiration_ts: number }>('POST', path, {
      user_id: user.userId,
      enable_renewal_emails: false,
    });
    expect(renewed.status).toBe(200);
    expect(renewed.body.expiration_ts).toBeGreaterThan(Date.now() + 80_000_000);
    expect((await user.request('GET', '/account/whoami')).status).toBe(200);
  });

  it.each([
    [{}, 400, 'M_MISSING_PARAM'],
    [{ user_id: 17 }, 400, 'M_INVALID_PARAM'],
    [{ user_id: '@root:rookery.test', expiration_ts: 'soon' }, 400, 'M_INVALID_PARAM'],
    [{ user_id: '@root:rookery.test', enable_renewal_emails: 'no' }, 400, 'M_INVALID_PARAM'],
    [{ user_id: '@nobody:rookery.test' }, 404, 'M_NOT_FOUND'],
  ])('refuses %j', async (body, status, errcode) =>
    expect(await admin('POST', path, body)).toMatchObject({ status, body: { errcode } }),
  );
});
