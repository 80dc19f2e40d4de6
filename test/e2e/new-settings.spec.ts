import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:http2';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createTestHomeserver,
  eventually,
  FakeClock,
  freePort,
  itWhere,
  RecordingLogger,
  type TestHomeserver,
  type TestUser,
} from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join as enter,
  leave,
  nextTransaction,
  ok,
  outcome,
  say,
} from './rooms/rooms-client.js';

const asRoot = itWhere(process.getuid?.() === 0, 'only root can act as another user');

/** What the settings of the last releases do, seen from outside. */
describe.each(databases)('settings (%s)', (database) => {
  const clock = new FakeClock(Date.parse('2026-06-01T00:00:00Z'));
  const settings: Record<string, unknown> = {};
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  const set = (more: Readonly<Record<string, unknown>>): Promise<void> => {
    for (const name of Object.keys(settings)) delete settings[name];
    Object.assign(settings, more);
    return homeserver.restart();
  };

  /** No two by one user at the same time: what makes their ids would be the same. */
  const newRoom = async (user: TestUser, options: object = {}): Promise<string> => {
    await clock.advance(1);
    return createRoom(user, options);
  };

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, clock, settings });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver.stop());

  it('redaction_allowed_period: messages can be redacted for a while', async () => {
    await set({ redaction_allowed_period: '1h' });
    const roomId = await newRoom(alice, { preset: 'public_chat' });
    await enter(bob, roomId);
    const redact = async (user: TestUser, eventId: string): Promise<string> =>
      outcome(await user.request('PUT', `/rooms/${roomId}/redact/${eventId}/${nextTransaction()}`, {}));
    const edit = (target: string): object => ({
      'm.new_content': { msgtype: 'm.text', body: 'edited' },
      'm.relates_to': { rel_type: 'm.replace', event_id: target },
    });
    const [old, other, edited] = [
      await say(bob, roomId, '1'),
      await say(bob, roomId, '2'),
      await say(bob, roomId, '3'),
    ];
    const reaction = await bob.request('PUT', `/rooms/${roomId}/send/m.reaction/${nextTransaction()}`, {
      'm.relates_to': { rel_type: 'm.annotation', event_id: old, key: 'x' },
    });
    await clock.jump(3_599_000);
    expect(await redact(bob, other)).toBe('200');
    await clock.advance(2_000);
    expect(await redact(bob, old)).toBe('403 M_FORBIDDEN');
    // Nor those who may redact what others sent.
    expect(await redact(alice, old)).toBe('403 M_FORBIDDEN');
    const newEdit = await say(bob, roomId, '* edited', edit(edited));
    expect(await redact(bob, newEdit)).toBe('403 M_FORBIDDEN');
    expect(await redact(bob, await say(bob, roomId, 'new'))).toBe('200');
    expect(await redact(bob, String(reaction.body['event_id']))).toBe('200');
    await set({});
    expect(await redact(bob, old)).toBe('200');
  });

  it('rc_message: what is changed of memberships counts like any other event', async () => {
    await set({});
    const roomId = await newRoom(alice, { preset: 'public_chat' });
    await enter(bob, roomId);
    await set({ rc_message: { per_second: 0.01, burst_count: 2 } });
    const own = `/rooms/${roomId}/state/m.room.member/${encodeURIComponent(bob.userId)}`;
    const change = async (n: number): Promise<string> =>
      outcome(await bob.request('PUT', own, { membership: 'join', 'org.example.n': n }));
    expect([await change(1), await change(2), await change(3)]).toEqual(['200', '200', '429 M_LIMIT_EXCEEDED']);
    const depart = async (): Promise<string> => outcome(await bob.request('POST', `/rooms/${roomId}/leave`, {}));
    expect(await depart()).toBe('429 M_LIMIT_EXCEEDED');
    await clock.jump(100_000);
    expect(await depart()).toBe('200');
    await enter(bob, roomId);
    const act = async (verb: string): Promise<string> =>
      outcome(await alice.request('POST', `/rooms/${roomId}/${verb}`, { user_id: bob.userId }));
    expect([await act('kick'), await act('ban'), await act('unban')]).toEqual(['200', '200', '429 M_LIMIT_EXCEEDED']);
    await clock.jump(100_000);
    expect([await act('unban'), await act('ban')]).toEqual(['200', '429 M_LIMIT_EXCEEDED']);
  });

  it('rc_admin_redaction: a redaction that is sent like any event counts there, too', async () => {
    await set({ rc_admin_redaction: { per_second: 0.001, burst_count: 1 } });
    const roomId = await newRoom(alice, { preset: 'public_chat' });
    await enter(bob, roomId);
    const redact = async (user: TestUser, redacts: string): Promise<string> =>
      outcome(await user.request('PUT', `/rooms/${roomId}/send/m.room.redaction/${nextTransaction()}`, { redacts }));
    const said = [await say(bob, roomId, '1'), await say(bob, roomId, '2'), await say(bob, roomId, '3')] as const;
    expect([await redact(alice, said[0]), await redact(alice, said[1])]).toEqual(['200', '429 M_LIMIT_EXCEEDED']);
    expect([await redact(bob, said[1]), await redact(bob, said[2])]).toEqual(['200', '200']);
  });

  it('rc_invites.per_issuer: who is invited to a new room counts, too', async () => {
    const wide = { per_second: 1000, burst_count: 1000 };
    await set({
      rc_invites: { per_issuer: { per_second: 0.01, burst_count: 3 }, per_user: wide, per_room: wide },
    });
    const rooms = async (): Promise<number> =>
      (await ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms')).joined_rooms.length;
    const before = await rooms();
    const make = async (count: number): Promise<string> => {
      await clock.advance(1);
      const invite = Array.from({ length: count }, (_, n) => `@guest${n}:${homeserver.server.config.serverName}`);
      return outcome(await alice.request('POST', '/createRoom', { invite }));
    };
    expect(await make(4)).toBe('400 M_INVALID_PARAM');
    expect([await make(2), await make(2), await make(1)]).toEqual(['200', '429 M_LIMIT_EXCEEDED', '200']);
    expect(await make(0)).toBe('200');
    // Of those that were refused nothing is left.
    expect((await rooms()) - before).toBe(3);
  });

  it('forget_rooms_on_leave: whoever is removed forgets, and so does who leaves what they are not in any more', async () => {
    await set({});
    const make = async (): Promise<string> => {
      const roomId = await newRoom(alice, { preset: 'public_chat' });
      await enter(bob, roomId);
      return roomId;
    };
    const sync = (query: string): Promise<{ next_batch: string; rooms?: { leave?: Record<string, unknown> } }> => {
      const filter = encodeURIComponent('{"room":{"include_leave":true}}');
      return ok(bob, 'GET', `/sync?timeout=0&filter=${filter}${query}`);
    };
    const left = async (query = ''): Promise<string[]> => Object.keys((await sync(query)).rooms?.leave ?? {});
    const [early, kicked, banned, invited] = [await make(), await make(), await make(), await newRoom(alice)];
    await act(alice, 'kick', early, bob);
    await act(alice, 'invite', invited, bob);
    await set({ forget_rooms_on_leave: true });
    expect(await left()).toContain(early);
    await leave(bob, early);
    expect(await left()).not.toContain(early);
    const { next_batch: since } = await sync('');
    await act(alice, 'kick', kicked, bob);
    await act(alice, 'ban', banned, bob);
    await act(alice, 'kick', invited, bob);
    const all = [kicked, banned, invited];
    // Clients are told all the same, once.
    expect(await left(`&since=${since}`)).toEqual(expect.arrayContaining(all));
    const seen = await left();
    expect(all.filter((roomId) => seen.includes(roomId))).toEqual([]);
  });

  it('rc_profile: profiles are looked at so often and no more', async () => {
    await set({ rc_profile: { per_second: 0.001, burst_count: 2 } });
    const look = async (user?: TestUser): Promise<string> =>
      outcome(await (user ?? homeserver).request('GET', `/profile/${bob.userId}`));
    expect([await look(alice), await look(alice), await look(alice)]).toEqual(['200', '200', '429 M_LIMIT_EXCEEDED']);
    expect([await look(), await look(), await look()]).toEqual(['200', '200', '429 M_LIMIT_EXCEEDED']);
    const field = await bob.request('GET', `/profile/${bob.userId}/displayname`);
    expect(field.status).toBe(200);
  });

  it('rc_profile: aliases of other servers are looked up so often and no more', async () => {
    // A server that may not be asked: nobody waits for it.
    await set({ rc_profile: { per_second: 0.001, burst_count: 2 }, federation_domain_whitelist: [] });
    const look = async (server: string, user?: TestUser): Promise<string> =>
      outcome(await (user ?? homeserver).request('GET', `/directory/room/${encodeURIComponent(`#a:${server}`)}`));
    for (const user of [undefined, alice]) {
      const seen = [await look('away.test', user), await look('away.test', user), await look('away.test', user)];
      expect(seen).toEqual(['404 M_NOT_FOUND', '404 M_NOT_FOUND', '429 M_LIMIT_EXCEEDED']);
    }
    expect(await look(homeserver.server.config.serverName)).toBe('404 M_NOT_FOUND');
  });

  it('rc_profile: rooms of other servers are joined by alias, knocked at and looked at so often and no more', async () => {
    await set({ rc_profile: { per_second: 0.001, burst_count: 3 }, federation_domain_whitelist: [] });
    const asked = ['POST /join/%23a:away.test', 'POST /knock/%23a:away.test', 'GET room_summary/!a:away.test'];
    const ask = async (line: string): Promise<string> => {
      const [method, path] = line.replace('room_summary', '/_matrix/client/v1/room_summary').split(' ');
      return outcome(await alice.request(method!, path!, method === 'POST' ? {} : undefined));
    };
    for (const line of asked) expect([line, await ask(line)]).toEqual([line, '404 M_NOT_FOUND']);
    for (const line of asked) expect([line, await ask(line)]).toEqual([line, '429 M_LIMIT_EXCEEDED']);
    // What is known here costs nothing, whoever else may know it.
    expect(await ask(`POST /join/%23a:${homeserver.server.config.serverName}`)).toBe('404 M_NOT_FOUND');
    expect(await ask(`GET room_summary/${await newRoom(alice)}?via=away.test`)).toBe('200');
  });

  it('push_rules.limits: so many rules of such a size', async () => {
    await set({ push_rules: { limits: { rule_count: 2, rule_id_length: 10, rule_size: 120 } } });
    const put = async (ruleId: string, body: object): Promise<string> =>
      outcome(await alice.request('PUT', `/pushrules/global/override/${ruleId}`, body));
    const large = { kind: 'event_match', key: 'content.body', pattern: 'x'.repeat(100) };
    const rule = { actions: ['notify'], conditions: [] };
    expect(await put('x'.repeat(11), rule)).toBe('413 M_TOO_LARGE');
    expect(await put('x'.repeat(10), rule)).toBe('200');
    expect(await put('large', { ...rule, conditions: [large] })).toBe('413 M_TOO_LARGE');
    expect(await put('second', rule)).toBe('200');
    expect(await put('third', rule)).toBe('413 M_TOO_LARGE');
    expect(await put('second', rule)).toBe('200');
    const actions = { actions: [{ set_tweak: 'sound', value: 'x'.repeat(200) }] };
    const path = '/pushrules/global/override/second/actions';
    expect(outcome(await alice.request('PUT', path, actions))).toBe('413 M_TOO_LARGE');
  });

  it('enable_ephemeral_messages: messages destroy themselves', async () => {
    await set({ enable_ephemeral_messages: true });
    const roomId = await newRoom(alice, { preset: 'public_chat' });
    await enter(bob, roomId);
    const at = (ms: number): object => ({ 'org.matrix.self_destruct_after': clock.nowMs() + ms });
    const late = await say(alice, roomId, 'later', at(3 * 3_600_000));
    const soon = await say(alice, roomId, 'selfdestructing', at(3_600_000));
    const never = await say(alice, roomId, 'never', { 'org.matrix.self_destruct_after': 'tomorrow' });
    const content = async (eventId: string): Promise<unknown> =>
      (await bob.request('GET', `/rooms/${roomId}/event/${eventId}`)).body['content'];
    const found = async (): Promise<number> => {
      const search = { search_categories: { room_events: { search_term: 'selfdestructing' } } };
      const { body } = await bob.request('POST', '/search', search);
      return (body as { search_categories: { room_events: { count: number } } }).search_categories.room_events.count;
    };
    await eventually(async () => (await found()) === 1);
    await clock.jump(3_590_000);
    expect(await content(soon)).toMatchObject({ body: 'selfdestructing' });
    // The server may be away when the time comes.
    await set({ enable_ephemeral_messages: true });
    await clock.advance(20_000);
    // A timer may be set while time goes by.
    const isGone = (eventId: string): Promise<unknown> =>
      eventually(async () => {
        await clock.advance(1_000);
        return JSON.stringify(await content(eventId)) === '{}';
      });
    await isGone(soon);
    expect(await found()).toBe(0);
    expect([await content(late), await content(never)]).toMatchObject([{ body: 'later' }, { body: 'never' }]);
    const { body } = await bob.request('GET', '/sync');
    expect(JSON.stringify(body)).not.toContain('selfdestructing');
    await clock.jump(2 * 3_600_000);
    await isGone(late);
    // Where nobody asks for it, the field means nothing.
    await set({});
    const kept = await say(alice, roomId, 'kept', at(1_000));
    await clock.jump(120_000);
    await set({ enable_ephemeral_messages: true });
    await clock.jump(120_000);
    expect(await content(kept)).toMatchObject({ body: 'kept' });
  });

  it('caches: answers to syncs of clients that went away are kept for a while, and memory is told', async () => {
    const port = Number(new URL(homeserver.baseUrl).port);
    const names = ['client', 'federation', 'metrics'];
    const listener = { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names }] };
    const caches = { sync_response_cache_duration: '1m', track_memory_usage: true };
    await set({ caches, enable_metrics: true, listeners: [listener] });
    // More than the system takes of an answer before anybody reads it.
    for (let i = 0; i < 16; i++) {
      const roomId = await newRoom(alice);
      await Promise.all(Array.from({ length: 10 }, () => say(alice, roomId, 'x'.repeat(60_000))));
    }
    const page = async (): Promise<string> => (await fetch(`${homeserver.baseUrl}/_synapse/metrics`)).text();
    const kept = async (what: string): Promise<number> =>
      Number(new RegExp(`^synapse_util_caches_cache_${what}\\{name="sync".*\\} (\\d+)$`, 'm').exec(await page())?.[1]);
    const sync = async (): Promise<unknown> => (await alice.request('GET', '/sync')).body['next_batch'];
    await sync();
    expect(await kept('size')).toBe(0);
    const socket = connect(port, '127.0.0.1').pause();
    socket.on('error', () => undefined);
    const path = '/_matrix/client/v3/sync';
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${alice.accessToken}\r\n\r\n`);
    await eventually(async () => /in_flight_requests_count\{[^}]*servlet="Sync/.test(await page()));
    socket.resetAndDestroy();
    await eventually(async () => (await kept('size')) > 9_000_000);
    expect(await kept('size_bytes')).toBeGreaterThan(9_000_000);
    await createRoom(alice);
    const first = await sync();
    expect(await kept('size')).toBe(0);
    expect(await sync()).not.toBe(first);
  });

  it('experimental_features.msc3026_enabled: users are busy, which is refused without it', async () => {
    const path = `/presence/${alice.userId}/status`;
    const be = async (presence: string): Promise<string> => {
      await clock.advance(60_000);
      return outcome(await alice.request('PUT', path, { presence }));
    };
    await set({});
    expect([await be('busy'), await be('online')]).toEqual(['400 M_INVALID_PARAM', '200']);
    await set({ experimental_features: { msc3026_enabled: true } });
    expect(await be('busy')).toBe('200');
    expect((await alice.request('GET', path)).body).toMatchObject({ presence: 'busy' });
  });

  it('matrix_rtc.transports: a WebSocket will do', async () => {
    const transports = [{ type: 'livekit', url: 'wss://rtc.example.org' }];
    await set({ matrix_rtc: { transports }, experimental_features: { msc4143_enabled: true } });
    const path = '/_matrix/client/unstable/org.matrix.msc4143/rtc/transports';
    expect((await alice.request('GET', path)).body).toEqual({ rtc_transports: transports });
  });
});

it('matrix_authentication_service.force_http2: the service is spoken to by HTTP/2 without TLS', async () => {
  const service = createServer((request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ issuer: `https://auth.example/${request.httpVersion}` }));
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(service.address() as AddressInfo).port}/`;
  const homeserver = await createTestHomeserver({
    settings: {
      ...{ enable_registration: false, enable_registration_without_verification: false },
      matrix_authentication_service: { enabled: true, endpoint, secret: 'shared', force_http2: true },
    },
  });
  try {
    const { body } = await homeserver.request('GET', '/_matrix/client/v1/auth_metadata');
    expect(body).toEqual({ issuer: 'https://auth.example/2.0' });
  } finally {
    await homeserver.stop();
    service.close();
  }
});

it('sentry: errors are reported, without secrets', async () => {
  const envelopes: string[] = [];
  const service = createHttpServer((request, response) => {
    let text = `${request.url} ${String(request.headers['x-sentry-auth'])}\n`;
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      envelopes.push(text);
      response.end('{}');
    });
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const dsn = `http://public@127.0.0.1:${(service.address() as AddressInfo).port}/sub/42`;
  const homeserver = await createTestHomeserver({ settings: { sentry: { dsn, environment: 'trial' } } });
  try {
    const err = new TypeError('No answer from https://user:pa55@example.org/?access_token=syt_secret&x=1');
    homeserver.server.logger.child('rooms').error('It broke', { err, body: 'what somebody said', path: '/private' });
    homeserver.server.logger.warn('A warning');
    await eventually(() => envelopes.length === 1);
    const [head, about, item, event] = envelopes[0]!.split('\n');
    expect(head).toBe('/sub/api/42/envelope/ Sentry sentry_version=7, sentry_client=rookery/1, sentry_key=public');
    const { event_id: id } = JSON.parse(about!) as { event_id: string };
    expect(JSON.parse(item!)).toMatchObject({ type: 'event' });
    expect(JSON.parse(event!)).toMatchObject({
      ...{ event_id: id, logger: 'rooms', environment: 'trial', server_name: 'rookery.test', level: 'error' },
      message: { formatted: 'It broke' },
      exception: {
        values: [
          {
            type: 'TypeError',
            value: 'No answer from https://[hidden]@example.org/?access_token=[hidden]&x=1',
            stacktrace: { frames: expect.arrayContaining([expect.objectContaining({ lineno: expect.any(Number) })]) },
          },
        ],
      },
    });
    expect(envelopes[0]).not.toMatch(/pa55|syt_secret|somebody said|private/);
    for (let i = 0; i < 100; i++) homeserver.server.logger.error('Again', { err });
    await homeserver.stop();
    expect(envelopes.length).toBeLessThanOrEqual(30);
  } finally {
    service.close();
  }
});

describe('a manhole', () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-manhole-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Says one thing after the other, each when the last was answered with what is expected. */
  async function talk(to: object, steps: readonly (readonly [awaited: string, said: string])[]): Promise<string> {
    const socket = connect(to as { port: number });
    let heard = '';
    socket.on('data', (chunk: Buffer) => (heard += chunk.toString()));
    const closed = new Promise((resolve) => socket.on('close', resolve));
    socket.on('error', () => undefined);
    let from = 0;
    for (const [awaited, said] of steps) {
      await eventually(() => heard.indexOf(awaited, from) >= 0 || socket.destroyed);
      from = heard.length;
      socket.write(`${said}\n`);
    }
    await closed;
    return heard;
  }

  it('lets the operator into the running server, by name and password or through a socket of the own user', async () => {
    const port = await freePort();
    const path = join(folder, 'manhole.sock');
    const homeserver = await createTestHomeserver({
      settings: {
        manhole: port,
        manhole_settings: { username: 'op', password: 'secret' },
        listeners: [
          { port: 0, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] },
          { path, type: 'manhole' },
        ],
      },
    });
    try {
      const ask: [string, string][] = [
        ['> ', '6 * 7 + config.serverName'],
        ['> ', "(await database.query('SELECT 1 + 1 AS two'))[0].two * 21"],
        ['> ', '.exit'],
      ];
      const answer = await talk({ port, host: '127.0.0.1' }, [['Name:', 'op'], ['Password:', 'secret'], ...ask]);
      expect(answer).toContain("'42rookery.test'");
      expect(answer).toMatch(/> 42\n/);
      expect(await talk({ path }, ask)).toContain("'42rookery.test'");
      expect(statSync(path).mode & 0o777).toBe(0o600);
      const wrong = await talk({ port, host: '127.0.0.1' }, [
        ['Name:', 'op'],
        ['Password:', 'rabbithole'],
      ]);
      expect(wrong).toContain('Wrong name or password');
      expect(wrong).not.toContain('> ');
    } finally {
      await homeserver.stop();
    }
  });

  // Only root can be somebody else.
  asRoot('lets no other user of the machine in', async () => {
    const port = await freePort();
    const path = join(folder, 'others.sock');
    const listeners = [
      { port: 0, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] },
      { path, type: 'manhole' },
    ];
    const homeserver = await createTestHomeserver({ settings: { manhole: port, listeners } });
    const nobody = 65_534;
    const heardBy = (uid: number, script: string): Promise<string> =>
      new Promise((resolve, reject) => {
        const child = spawn('/bin/bash', ['-c', script], { uid, gid: uid, cwd: '/' });
        let heard = '';
        child.stdout.on('data', (chunk: Buffer) => (heard += chunk.toString()));
        child.on('error', reject).on('close', () => resolve(heard));
      });
    try {
      const knock = `exec 3<>/dev/tcp/127.0.0.1/${port} && IFS= read -r -d ' ' -u 3 word; echo "heard:$word"`;
      expect(await heardBy(0, knock)).toBe('heard:Name:\n');
      expect(await heardBy(nobody, knock)).toBe('heard:\n');
      // The folder of the socket is closed to them already; the socket would be, too.
      chmodSync(folder, 0o755);
      expect(await heardBy(nobody, `test -e ${path} && test ! -r ${path} && test ! -w ${path} && echo closed`)).toBe(
        'closed\n',
      );
    } finally {
      await homeserver.stop();
    }
  });

  it('opens on no address that others reach', async () => {
    const listeners = [{ port: await freePort(), bind_addresses: ['0.0.0.0'], type: 'manhole' }];
    await expect(createTestHomeserver({ settings: { listeners } })).rejects.toThrow('loopback addresses only');
  });
});

it('log_slow_requests and log_slow_queries: what took long, and what it waited for', async () => {
  const logger = new RecordingLogger();
  const homeserver = await createTestHomeserver({
    logger,
    settings: { log_slow_requests: 1, log_slow_queries: 0, bcrypt_rounds: 8 },
  });
  try {
    await homeserver.registerUser('alice');
    await eventually(() => logger.lines.some((line) => line.message === 'A request was slow'));
    const slow = logger.lines.find((line) => line.message === 'A request was slow');
    expect(slow?.fields).toMatchObject({
      ...{ method: 'POST', path: '/_matrix/client/v3/register', route: expect.any(String), ms: expect.any(Number) },
      ...{ queueMs: expect.any(Number), databaseMs: expect.any(Number), modulesMs: 0, serversMs: 0 },
    });
    expect(Number(slow?.fields['transactions'])).toBeGreaterThan(0);
    expect(logger.lines.some((line) => line.message === 'A statement was slow')).toBe(true);
  } finally {
    await homeserver.stop();
  }
});

it('opentracing: what a request did goes to a collector', async () => {
  interface Span {
    readonly traceId: string;
    readonly spanId: string;
    readonly parentSpanId?: string;
    readonly name: string;
  }
  const spans: Span[] = [];
  const collector = createHttpServer((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      expect(request.url).toBe('/v1/traces');
      const { resourceSpans } = JSON.parse(text) as { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] };
      spans.push(...resourceSpans.flatMap((one) => one.scopeSpans.flatMap((scope) => scope.spans)));
      response.end('{}');
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  const otlp = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  const homeserver = await createTestHomeserver({
    settings: {
      opentracing: {
        enabled: true,
        force_tracing_for_users: ['@alice:rookery.test'],
        jaeger_config: { sampler: { type: 'const', param: 0 }, otlp_endpoint: otlp },
      },
    },
  });
  try {
    const [alice, bob] = [await homeserver.registerUser('alice'), await homeserver.registerUser('bob')];
    await createRoom(bob);
    await createRoom(alice);
    await homeserver.stop();
    const roots = spans.filter((span) => span.parentSpanId === undefined);
    expect(roots.map((span) => span.name)).toEqual([expect.stringMatching(/^POST .*[cC]reate/)]);
    const [root] = roots;
    expect(root).toMatchObject({ traceId: expect.stringMatching(/^[0-9a-f]{32}$/), kind: 2 });
    const inside = spans.filter((span) => span.parentSpanId === root?.spanId);
    expect(inside.length).toBe(spans.length - 1);
    expect(inside.some((span) => span.name.startsWith('db '))).toBe(true);
    expect(new Set(spans.map((span) => span.traceId)).size).toBe(1);
  } finally {
    collector.close();
  }
});
