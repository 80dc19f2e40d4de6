import { type CallbackName, Codes } from '@rookery/module-api';
import { freePort, type TestResponse } from '@rookery/testing';
import { operatorOf } from '../admin/operator-world.js';
import { type Fired, probe, type ProbeServer, startProbe } from './probe-server.js';

const client = { ip: '203.0.113.7', userAgent: 'spec/1' };
const password = 'a long enough password';

describe.each(['sqlite', 'postgres'] as const)('what modules learn of where a call comes from (%s)', (kind) => {
  let server: ProbeServer;
  let count = 0;

  beforeAll(async () => {
    const listener = {
      port: await freePort(),
      bind_addresses: ['127.0.0.1'],
      type: 'http',
      x_forwarded: true,
      request_id_header: 'X-Request-ID',
      resources: [{ names: ['client'] }],
    };
    server = await startProbe(kind, {
      listeners: [listener],
      room_list_publication_rules: [{ action: 'allow' }],
    });
  });
  afterAll(() => server?.stop());
  beforeEach(() => probe.reset());

  interface Answer extends Omit<TestResponse<Record<string, unknown>>, 'headers'> {
    readonly requestId: string;
  }
  /** A request as a proxy hands it on, with an id of its own. */
  async function send(method: string, path: string, body?: unknown, token?: string): Promise<Answer> {
    const requestId = `req-${++count}`;
    const response = await fetch(`${server.baseUrl}/_matrix/client/v3${path}`, {
      method,
      headers: {
        'x-request-id': requestId,
        'x-forwarded-for': client.ip,
        'x-forwarded-proto': 'https',
        'user-agent': client.userAgent,
        'content-type': 'application/json',
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown>, requestId };
  }
  const register = async (username: string): Promise<{ userId: string; deviceId: string; token: string }> => {
    const { body } = await send('POST', '/register', { username, password, auth: { type: 'm.login.dummy' } });
    return {
      userId: String(body['user_id']),
      deviceId: String(body['device_id']),
      token: String(body['access_token']),
    };
  };
  const calls = (name: CallbackName): Fired[] => probe.fired.filter((one) => one.name === name);
  const contextOf = (name: CallbackName): unknown => calls(name).at(-1)?.context;

  it('every check of a request names the request, the client and the user', async () => {
    const ann = await register('ann');
    const made = await send('POST', '/createRoom', { preset: 'public_chat', visibility: 'public' }, ann.token);
    const room = `/rooms/${encodeURIComponent(String(made.body['room_id']))}`;
    const me = { source: 'client', userId: ann.userId, deviceId: ann.deviceId, isAdmin: false, ...client };
    for (const name of [
      'onCreateRoom',
      'userMayCreateRoom',
      'userMayPublishRoom',
      'checkEventAllowed',
      'checkEventForSpam',
    ] as const) {
      expect(contextOf(name)).toMatchObject({ ...me, requestId: made.requestId, duringRoomCreation: true });
    }
    expect(contextOf('isUserExpired')).toMatchObject({ ...me, requestId: made.requestId, duringRoomCreation: false });
    const state = await send('PUT', `${room}/state/m.room.topic`, { topic: 'x' }, ann.token);
    for (const name of ['userMaySendStateEvent', 'checkEventAllowed', 'checkEventForSpam'] as const) {
      expect(contextOf(name)).toMatchObject({ ...me, requestId: state.requestId, duringRoomCreation: false });
    }
    const read = await send('GET', `${room}/messages?dir=b&limit=1`, undefined, ann.token);
    const reading = { source: 'client', userId: ann.userId, requestId: read.requestId };
    expect(contextOf('addFieldToUnsigned')).toMatchObject(reading);
  });

  it('an upgrade is the making of a room: asked for, refused, and named as such', async () => {
    const ann = await register('upgrader');
    const { body } = await send('POST', '/createRoom', {}, ann.token);
    const upgrade = `/rooms/${encodeURIComponent(String(body['room_id']))}/upgrade`;
    for (const [name, answer] of [
      ['userMayCreateRoom', () => Codes.FORBIDDEN],
      ['onCreateRoom', () => ({ no: Symbol('room') })],
    ] as const) {
      probe.answers = { [name]: answer };
      const refused = await send('POST', upgrade, { new_version: '11' }, ann.token);
      expect([name, refused.status]).toEqual([name, name === 'userMayCreateRoom' ? 403 : 500]);
    }
    probe.reset();
    const upgraded = await send('POST', upgrade, { new_version: '11' }, ann.token);
    expect(upgraded.status).toBe(200);
    for (const name of ['onCreateRoom', 'userMayCreateRoom', 'checkEventForSpam'] as const) {
      const context = { duringRoomCreation: true, requestId: upgraded.requestId, userId: ann.userId };
      expect(calls(name)[0]?.context).toMatchObject(context);
    }
    expect(calls('userMayCreateRoom')[0]?.args).toEqual([
      ann.userId,
      expect.objectContaining({ room_version: '11', creation_content: expect.any(Object) as unknown }),
    ]);
    expect(calls('userMayCreateRoom').length + calls('onCreateRoom').length).toBe(2);
  });

  it('a request that a module makes a mess of makes no room', async () => {
    const ann = await register('messy');
    for (const mess of [{ invite: 'x' }, { initial_state: [null] }, { name: {} }, { creation_content: 7 }]) {
      probe.answers = { onCreateRoom: () => mess };
      const refused = await send('POST', '/createRoom', {}, ann.token);
      expect([mess, refused.status, refused.body['errcode']]).toEqual([mess, 500, 'M_UNKNOWN']);
    }
    expect((await send('GET', '/joined_rooms', undefined, ann.token)).body).toEqual({ joined_rooms: [] });
  });

  it('what a module does is shown to none of them; who deletes a room is', async () => {
    const ann = await register('owner');
    probe.reset();
    const made = await server.call('createRoom', ann.userId, { name: 'M', preset: 'public_chat' });
    expect(made.status).toBe(200);
    const { roomId } = made.result as { roomId: string };
    expect(
      probe.fired.map(({ name }) => name).filter((name) => name.startsWith('check') || name.startsWith('userMay')),
    ).toEqual([]);
    probe.answers = { checkCanShutdownRoom: () => false };
    expect(await server.call('deleteRoom', roomId)).toMatchObject({ status: 403, error: 'M_FORBIDDEN' });
    expect(calls('checkCanShutdownRoom').at(-1)).toMatchObject({
      args: [undefined, roomId],
      context: { source: 'module' },
    });
    const { user, call } = await operatorOf(server, `operator${kind}`);
    expect((await call('DELETE', `/v2/rooms/${encodeURIComponent(roomId)}`, {})).status).toBe(403);
    expect(calls('checkCanShutdownRoom').at(-1)).toMatchObject({
      args: [user.userId, roomId],
      context: { source: 'admin', isAdmin: true, userId: user.userId, ip: expect.any(String) as unknown },
    });
  });

  it('a module that fails with an event keeps nobody from reading it', async () => {
    const ann = await register('reader');
    const { body } = await send('POST', '/createRoom', {}, ann.token);
    const roomId = String(body['room_id']);
    probe.answers = {
      addFieldToUnsigned: (event: { type: string }) => {
        if (event.type === 'm.room.power_levels') throw new Error('not this one');
        return { 'org.example.mark': event.type };
      },
    };
    const sync = await send('GET', '/sync', undefined, ann.token);
    expect(sync.status).toBe(200);
    const rooms = sync.body['rooms'] as {
      join: Record<string, { timeline: { events: { type: string; unsigned: object }[] } }>;
    };
    const marks = rooms.join[roomId]!.timeline.events.map(({ type, unsigned }) => [
      type,
      'org.example.mark' in unsigned,
    ]);
    expect(marks.filter(([, marked]) => !marked)).toEqual([['m.room.power_levels', false]]);
    expect(marks.length).toBeGreaterThan(3);
  });

  it('every session that ends is told, whatever ends it, while its pushers exist', async () => {
    const { userId, token, deviceId } = await register('leaving');
    const login = async (device: string): Promise<string> => {
      const identifier = { type: 'm.id.user', user: 'leaving' };
      const { body } = await send('POST', '/login', {
        type: 'm.login.password',
        identifier,
        password,
        device_id: device,
      });
      return String(body['access_token']);
    };
    const told = (): unknown[] => {
      const args = calls('onLoggedOut').map((call) => call.args);
      probe.reset();
      return args.sort();
    };
    const auth = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'leaving' }, password };
    const [one] = [await login('ONE'), await login('TWO'), await login('THREE')];
    const pusher = {
      ...{ pushkey: 'k', kind: 'http', app_id: 'a', app_display_name: 'A', device_display_name: 'D', lang: 'en' },
      data: { url: 'https://push.example/_matrix/push/v1/notify' },
    };
    expect((await send('POST', '/pushers/set', pusher, one)).status).toBe(200);
    let pushers: unknown;
    probe.answers = {
      onLoggedOut: async () => {
        pushers = (await send('GET', '/pushers', undefined, token)).body['pushers'];
      },
    };
    const out = await send('POST', '/logout', {}, one);
    expect(pushers).toHaveLength(1);
    expect(contextOf('onLoggedOut')).toMatchObject({ source: 'client', userId, requestId: out.requestId, ...client });
    expect(told()).toEqual([[userId, 'ONE', one]]);
    const gone = await send('DELETE', '/devices/TWO', { auth }, token);
    expect(contextOf('onLoggedOut')).toMatchObject({ source: 'client', userId, requestId: gone.requestId });
    expect(told()).toEqual([[userId, 'TWO', '']]);
    expect(
      (await send('POST', '/account/password', { auth, new_password: password, logout_devices: true }, token)).status,
    ).toBe(200);
    expect(told()).toEqual([[userId, 'THREE', '']]);
    await login('FOUR');
    await send('POST', '/logout/all', {}, token);
    expect(told()).toEqual(
      [
        [userId, deviceId, token],
        [userId, 'FOUR', ''],
      ].sort(),
    );
    const five = await login('FIVE');
    expect((await server.call('invalidateAccessToken', five)).status).toBe(200);
    expect(contextOf('onLoggedOut')).toMatchObject({ source: 'module' });
    expect(told()).toEqual([[userId, 'FIVE', five]]);
    expect((await send('POST', '/account/deactivate', { auth }, await login('SIX'))).status).toBe(200);
    expect(told()).toEqual([[userId, 'SIX', '']]);
  });

  it('ids that are ours', async () => {
    for (const [id, ours] of [
      ['@a:rookery.test', true],
      ['#a:rookery.test', true],
      ['rookery.test', false],
      ['@a:rookery.test:8448', false],
      ['', false],
    ]) {
      expect([id, (await server.call('isMine', id)).result]).toEqual([id, ours]);
    }
  });
});
