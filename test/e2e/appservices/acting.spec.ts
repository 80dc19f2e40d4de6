import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { createRoom, join, ok, outcome, say } from '../rooms/rooms-client.js';
import { acting, databases, registerGhost, RegistrationFiles } from './support.js';

describe.each(databases)('an application service acts on the server (%s)', (database) => {
  const files = new RegistrationFiles();
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bot: TestUser;
  let ghost: TestUser;

  // The specification knows the challenge of interactive auth for the only 401 of a registration.
  const register = async (body: object, token = ''): Promise<string> => {
    const headers = token === '' ? {} : { authorization: `Bearer ${token}` };
    const init = { method: 'POST', headers, body: JSON.stringify(body) };
    const response = await fetch(`${homeserver.baseUrl}/_matrix/client/v3/register`, init);
    const { errcode } = (await response.json()) as { errcode?: string };
    return errcode === undefined ? String(response.status) : `${response.status} ${errcode}`;
  };

  beforeAll(async () => {
    const slow = { per_second: 0.0001, burst_count: 8 };
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        track_appservice_user_ips: true,
        rc_room_creation: slow,
        experimental_features: { msc4502_enabled: true },
        app_service_config_files: [
          files.write('irc', {
            namespaces: {
              users: [{ regex: '@irc_.*', exclusive: true }],
              aliases: [{ regex: '#irc_.*', exclusive: true }],
              rooms: [],
            },
          }),
          files.write('slow', {
            rate_limited: true,
            'io.element.msc4502.scopes': ['urn:matrix:client:io.element.msc4502:rooms:is_joined'],
          }),
          files.write('double', { namespaces: { users: [{ regex: '@.*', exclusive: false }] } }),
          files.write('far', { ip_range_whitelist: ['192.0.2.0/24'] }),
        ],
      },
    });
    alice = await homeserver.registerUser('alice');
    bot = acting(homeserver, 'irc');
    ghost = await registerGhost(homeserver, 'irc', 'irc_bob');
  });
  afterAll(async () => {
    await homeserver?.stop();
    files.remove();
  });

  it('as itself and as its users, by its token in the header or the query', async () => {
    expect((await bot.request('GET', '/account/whoami')).body).toEqual({
      user_id: '@ircbot:rookery.test',
      is_guest: false,
    });
    expect((await ghost.request('GET', '/account/whoami')).body['user_id']).toBe('@irc_bob:rookery.test');
    const inQuery = await homeserver.request('GET', '/account/whoami?access_token=as-irc');
    expect(inQuery.body['user_id']).toBe('@ircbot:rookery.test');
    expect(outcome(await homeserver.request('GET', '/account/whoami', undefined, 'hs-irc'))).toBe(
      '401 M_UNKNOWN_TOKEN',
    );
  });

  it.each([
    ['@alice:rookery.test', '403 M_FORBIDDEN'],
    ['@irc_nobody:rookery.test', '403 M_FORBIDDEN'],
    ['@irc_bob:else.test', '403 M_FORBIDDEN'],
    ['rubbish', '403 M_FORBIDDEN'],
  ])('not as %s', async (userId, expected) => {
    expect(outcome(await acting(homeserver, 'irc', userId).request('GET', '/account/whoami'))).toBe(expected);
  });

  it('as anybody where a namespace that is not exclusive has them', async () => {
    const puppet = acting(homeserver, 'double', alice.userId);
    expect((await puppet.request('GET', '/account/whoami')).body['user_id']).toBe(alice.userId);
  });

  it('lists the members of rooms that any of its users is in', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const members = (): Promise<string> =>
      bot.request('GET', `/rooms/${roomId}/joined_members`).then((answer) => outcome(answer));
    expect(await members()).toBe('403 M_FORBIDDEN');
    await join(ghost, roomId);
    expect(await members()).toBe('200');
    expect(outcome(await acting(homeserver, 'slow').request('GET', `/rooms/${roomId}/joined_members`))).toBe(
      '403 M_FORBIDDEN',
    );
  });

  it('asks who is in any room where its file gives it leave to', async () => {
    const roomId = await createRoom(alice, { preset: 'private_chat' });
    const asker = acting(homeserver, 'slow');
    const path = `/_matrix/client/unstable/io.element.msc4502/rooms/${encodeURIComponent(roomId)}/is_joined`;
    const asked = async (query: string, as = asker): Promise<unknown> => {
      const answer = await as.request('GET', `${path}?${query}`);
      return answer.status === 200 ? answer.body['joined'] : outcome(answer);
    };
    expect(await asked(`mxid=${alice.userId}`)).toBe(true);
    expect(await asked(`mxid=${ghost.userId}`)).toBe(false);
    expect(await asked('mxid=@zoe:elsewhere.test')).toBe(false);
    expect(await asked('server_name=rookery.test')).toBe(true);
    expect(await asked('server_name=elsewhere.test')).toBe(false);
    expect(await asked('')).toBe('400 M_MISSING_PARAM');
    expect(await asked(`mxid=${alice.userId}&server_name=rookery.test`)).toBe('400 M_MISSING_PARAM');
    expect(await asked('mxid=rubbish')).toBe('400 M_INVALID_PARAM');
    expect(await asked('server_name=%2F')).toBe('400 M_INVALID_PARAM');
    for (const other of [bot, alice]) expect(await asked(`mxid=${alice.userId}`, other)).toBe('403 M_FORBIDDEN');
  });

  it('from the addresses alone that its file names', async () => {
    const far = acting(homeserver, 'far');
    expect(outcome(await far.request('GET', '/account/whoami'))).toBe('401 M_UNKNOWN_TOKEN');
    expect(await register({ type: 'm.login.application_service', username: 'far_x' }, 'as-far')).toBe(
      '401 M_UNKNOWN_TOKEN',
    );
  });

  it('registers users of its namespaces, and nobody else does', async () => {
    const type = 'm.login.application_service';
    expect(await register({ type, username: 'irc_bob' }, 'as-irc')).toBe('400 M_USER_IN_USE');
    expect(await register({ type, username: 'carol' }, 'as-irc')).toBe('400 M_EXCLUSIVE');
    expect(await register({ type, username: 'irc_carol' }, 'as-double')).toBe('400 M_EXCLUSIVE');
    expect(await register({ type, user: 'irc_carol' }, 'as-irc')).toBe('400 M_INVALID_PARAM');
    expect(await register({ type }, 'as-irc')).toBe('400 M_MISSING_PARAM');
    expect(await register({ type, username: 'irc_carol' })).toBe('401 M_MISSING_TOKEN');
    expect(await register({ type, username: 'irc_carol' }, alice.accessToken)).toBe('401 M_UNKNOWN_TOKEN');
    expect(await register({ username: 'irc_carol' }, 'as-irc')).toBe('400 M_MISSING_PARAM');
    const byPassword = { username: 'irc_carol', password: 'a good password', auth: { type: 'm.login.dummy' } };
    expect(await register(byPassword)).toBe('400 M_EXCLUSIVE');
    expect(outcome(await homeserver.request('GET', '/register/available?username=irc_carol'))).toBe('400 M_EXCLUSIVE');
    expect(await register({ ...byPassword, username: 'ircbot' })).toBe('400 M_EXCLUSIVE');
    expect(await register({ type, username: 'ircbot', inhibit_login: true }, 'as-irc')).toBe('200');
  });

  it('names its users as other networks do, capitals included', async () => {
    const type = 'm.login.application_service';
    const identifier = { type: 'm.id.user', user: 'irc_Nick^|[m]' };
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    for (const username of ['irc_Nick^|[m]', 'irc_nick^|[m]']) {
      const userId = `@${username}:rookery.test`;
      const made = await homeserver.request('POST', '/register', { type, username, inhibit_login: true }, 'as-irc');
      expect(made.body).toMatchObject({ user_id: userId });
      const named = acting(homeserver, 'irc', userId);
      expect((await named.request('GET', '/account/whoami')).body['user_id']).toBe(userId);
      await join(named, roomId);
      expect(Object.keys((await ok(alice, 'GET', `/rooms/${roomId}/joined_members`))['joined'] as object)).toContain(
        userId,
      );
    }
    expect(await register({ type, username: 'irc_Nick^|[m]' }, 'as-irc')).toBe('400 M_USER_IN_USE');
    for (const username of ['irc_a b', 'irc_a:b', 'irc_ä', '@irc_a', `irc_${'a'.repeat(250)}`])
      expect([username, await register({ type, username }, 'as-irc')]).toEqual([username, '400 M_INVALID_USERNAME']);
    const login = await homeserver.request('POST', '/login', { type, identifier }, 'as-irc');
    expect(login.body['user_id']).toBe('@irc_Nick^|[m]:rookery.test');
  });

  it('names its users by numbers, as nobody else may', async () => {
    const type = 'm.login.application_service';
    expect(await register({ type, username: '447700900123', inhibit_login: true }, 'as-double')).toBe('200');
    const named = acting(homeserver, 'double', '@447700900123:rookery.test');
    expect((await named.request('GET', '/account/whoami')).body['user_id']).toBe('@447700900123:rookery.test');
    const byPassword = { username: '447700900124', password: 'a good password', auth: { type: 'm.login.dummy' } };
    expect(await register(byPassword)).toBe('400 M_INVALID_USERNAME');
  });

  it('logs its users in, and the session works like any other', async () => {
    const type = 'm.login.application_service';
    const identifier = { type: 'm.id.user', user: 'irc_bob' };
    const login = (body: object, token?: string) => homeserver.request('POST', '/login', { type, ...body }, token);
    const { body } = await login({ identifier, device_id: 'BRIDGE' }, 'as-irc');
    expect(body).toMatchObject({
      user_id: '@irc_bob:rookery.test',
      device_id: 'BRIDGE',
      access_token: expect.any(String),
    });
    const token = String(body['access_token']);
    expect((await homeserver.request('GET', '/account/whoami', undefined, token)).body['device_id']).toBe('BRIDGE');
    expect(outcome(await login({ identifier: { type: 'm.id.user', user: 'alice' } }, 'as-irc'))).toBe(
      '403 M_FORBIDDEN',
    );
    expect(outcome(await login({ identifier }))).toBe('401 M_MISSING_TOKEN');
    expect(outcome(await login({ identifier }, alice.accessToken))).toBe('401 M_UNKNOWN_TOKEN');
    expect(await ok(acting(homeserver, 'irc', '@irc_bob:rookery.test'), 'POST', '/logout?device_id=BRIDGE')).toEqual(
      {},
    );
    expect(outcome(await homeserver.request('GET', '/account/whoami', undefined, token))).toBe('401 M_UNKNOWN_TOKEN');
    const registered = await homeserver.request('POST', '/register', { type, username: 'irc_dora' }, 'as-irc');
    expect(registered.body).toMatchObject({ access_token: expect.any(String), device_id: expect.any(String) });
    expect((await homeserver.request<{ flows: object[] }>('GET', '/login')).body.flows).toContainEqual({ type });
  });

  it('makes and removes devices of its users, and acts as one', async () => {
    const created = await ghost.request('PUT', '/devices/PHONE', { display_name: 'Bridge phone' });
    expect(created.status).toBe(201);
    expect((await ghost.request('PUT', '/devices/PHONE', { display_name: 'Another name' })).status).toBe(200);
    for (const parameter of ['device_id', 'org.matrix.msc3202.device_id']) {
      const { body } = await ghost.request('GET', `/account/whoami?${parameter}=PHONE`);
      expect(body).toMatchObject({ user_id: ghost.userId, device_id: 'PHONE' });
      expect(outcome(await ghost.request('GET', `/account/whoami?${parameter}=NONE`))).toBe('400 M_UNKNOWN_DEVICE');
    }
    const keys = {
      ...{ user_id: ghost.userId, device_id: 'PHONE', algorithms: ['m.megolm.v1.aes-sha2'] },
      ...{ keys: { 'ed25519:PHONE': 'e' }, signatures: { [ghost.userId]: { 'ed25519:PHONE': 's' } } },
    };
    await ok(ghost, 'POST', '/keys/upload?device_id=PHONE', { device_keys: keys });
    const found = await ok<{ device_keys: Record<string, object> }>(alice, 'POST', '/keys/query', {
      device_keys: { [ghost.userId]: [] },
    });
    expect(found.device_keys[ghost.userId]).toMatchObject({ PHONE: { keys: { 'ed25519:PHONE': 'e' } } });
    await ok(ghost, 'DELETE', '/devices/PHONE', {});
    expect(outcome(await ghost.request('GET', '/devices/PHONE'))).toBe('404 M_NOT_FOUND');
    await ghost.request('PUT', '/devices/ONE', {});
    await ok(ghost, 'POST', '/delete_devices', { devices: ['ONE'] });
  });

  it('uploads cross-signing keys of its users without asking them', async () => {
    const key = (usage: string, letter: string) => {
      const publicKey = letter.repeat(43);
      return { user_id: ghost.userId, usage: [usage], keys: { [`ed25519:${publicKey}`]: publicKey } };
    };
    await ok(ghost, 'POST', '/keys/device_signing/upload', { master_key: key('master', 'A') });
    await ok(ghost, 'POST', '/keys/device_signing/upload', { master_key: key('master', 'B') });
  });

  it('says when its events happened; others may not', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(ghost, roomId);
    const path = (user: TestUser, txn: string) =>
      ok<{ event_id: string }>(user, 'PUT', `/rooms/${roomId}/send/m.room.message/${txn}?ts=1234567890123`, {
        msgtype: 'm.text',
        body: 'then',
      });
    const timeOf = async (eventId: string) =>
      (await ok<{ origin_server_ts: number }>(alice, 'GET', `/rooms/${roomId}/event/${encodeURIComponent(eventId)}`))
        .origin_server_ts;
    expect(await timeOf((await path(ghost, 'a')).event_id)).toBe(1234567890123);
    expect(await timeOf((await path(alice, 'a')).event_id)).toBeGreaterThan(1234567890123);
    const state = await ok<{ event_id: string }>(
      ghost,
      'PUT',
      `/rooms/${roomId}/state/m.room.member/${ghost.userId}?ts=1234567890124`,
      {
        membership: 'join',
        displayname: 'Bob of IRC',
      },
    );
    expect(await timeOf(state.event_id)).toBe(1234567890124);
  });

  it('has the same transaction id for each of its users', async () => {
    const other = await registerGhost(homeserver, 'irc', 'irc_other');
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(ghost, roomId);
    await join(other, roomId);
    const send = async (user: TestUser) =>
      (
        await ok<{ event_id: string }>(user, 'PUT', `/rooms/${roomId}/send/m.room.message/same`, {
          msgtype: 'm.text',
          body: 'x',
        })
      ).event_id;
    const first = await send(ghost);
    expect(await send(ghost)).toBe(first);
    expect(await send(other)).not.toBe(first);
  });

  it('has its aliases to itself', async () => {
    const roomId = await createRoom(alice);
    const put = async (user: TestUser, name: string) =>
      outcome(
        await user.request('PUT', `/directory/room/${encodeURIComponent(`#${name}:rookery.test`)}`, {
          room_id: roomId,
        }),
      );
    expect(await put(alice, 'irc_one')).toBe('400 M_EXCLUSIVE');
    expect(await put(bot, 'irc_one')).toBe('200');
    expect(await put(bot, 'free')).toBe('400 M_EXCLUSIVE');
    expect(await put(alice, 'free')).toBe('200');
    const remove = async (user: TestUser, name: string) =>
      outcome(await user.request('DELETE', `/directory/room/${encodeURIComponent(`#${name}:rookery.test`)}`));
    expect(await remove(bot, 'free')).toBe('400 M_EXCLUSIVE');
    expect(await remove(alice, 'irc_one')).toBe('400 M_EXCLUSIVE');
    expect(await remove(bot, 'irc_one')).toBe('200');
    expect(outcome(await alice.request('POST', '/createRoom', { room_alias_name: 'irc_two' }))).toBe('400 M_EXCLUSIVE');
    expect(outcome(await bot.request('POST', '/createRoom', { room_alias_name: 'irc_two' }))).toBe('200');
  });

  it('is not limited, unless its file says so; its own user never is', async () => {
    const slow = acting(homeserver, 'slow');
    const slowGhost = await registerGhost(homeserver, 'slow', 'slow_bob');
    const outcomes = async (user: TestUser) => {
      const all = [];
      for (let n = 0; n < 10; n++) all.push((await user.request('POST', '/createRoom', {})).status);
      return all;
    };
    expect(new Set(await outcomes(ghost))).toEqual(new Set([200]));
    expect(new Set(await outcomes(slow))).toEqual(new Set([200]));
    expect(await outcomes(slowGhost)).toEqual([...new Array<number>(8).fill(200), 429, 429]);
  });

  it('works with a sender that nobody registered', async () => {
    const sender = acting(homeserver, 'double');
    const roomId = await createRoom(sender, { preset: 'public_chat' });
    await say(sender, roomId, 'hello');
    await ok(sender, 'PUT', `/profile/${sender.userId}/displayname`, { displayname: 'The bridge' });
    expect(await ok(alice, 'GET', `/profile/${sender.userId}`)).toMatchObject({ displayname: 'The bridge' });
    const { joined_rooms: rooms } = await ok<{ joined_rooms: string[] }>(sender, 'GET', '/joined_rooms');
    expect(rooms).toEqual([roomId]);
  });

  it('lists rooms for its networks', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'Channel' });
    await ok(bot, 'PUT', `/directory/list/appservice/freenode/${roomId}`, { visibility: 'public' });
    expect(
      outcome(await alice.request('PUT', `/directory/list/appservice/freenode/${roomId}`, { visibility: 'public' })),
    ).toBe('403 M_FORBIDDEN');
    const listed = await ok<{ chunk: { room_id: string }[] }>(alice, 'POST', '/publicRooms', {
      third_party_instance_id: 'irc|freenode',
    });
    expect(listed.chunk.map(({ room_id }) => room_id)).toEqual([roomId]);
    const noRoom = '/directory/list/appservice/freenode/!nobody:rookery.test';
    expect(outcome(await bot.request('PUT', noRoom, { visibility: 'public' }))).toBe('404 M_NOT_FOUND');
    // What is not listed is not, whether there is a room or none any more.
    await ok(bot, 'PUT', noRoom, { visibility: 'private' });
  });

  it('is seen like other users where the settings say so', async () => {
    await homeserver.restart();
    await ghost.request('PUT', '/devices/SEEN', {});
    await ok(ghost, 'GET', '/account/whoami?device_id=SEEN');
    await homeserver.restart();
    expect(await ok(ghost, 'GET', '/devices/SEEN')).toMatchObject({
      last_seen_ip: '127.0.0.1',
      last_seen_ts: expect.any(Number),
    });
  });
});
