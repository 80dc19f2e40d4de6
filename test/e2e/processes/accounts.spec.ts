import { ServerNotices } from '@rookery/admin';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountValidity, ClientActivity, MonthlyActiveUsers } from '@rookery/users';
import { ForwardClock } from '../accounts/support.js';
import { askProcess, requestProcess } from './ask-process.js';

const dayMs = 86_400_000;
/** Requests that find each of four processes. */
const enough = 32;

describe('What is said of an account, at a server of several processes', () => {
  let homeserver: TestHomeserver;
  let admin: TestUser;
  const clock = new ForwardClock();

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 4, clock },
      settings: {
        account_validity: { enabled: true, period: '30d' },
        rc_message: { per_second: 0.0001, burst_count: 3 },
      },
    });
    admin = await homeserver.registerAdministrator('admin');
  });
  afterAll(() => homeserver?.stop());

  /** The statuses of requests at each of the processes. */
  const statuses = async (user: TestUser, path: string): Promise<readonly number[]> => {
    const found = new Set<number>();
    for (let n = 0; n < enough; n++) found.add((await user.request('GET', path)).status);
    return [...found];
  };
  const byAdmin = async (method: string, path: string, body?: object): Promise<Record<string, unknown>> => {
    const answer = await admin.request(method, `/_synapse/admin/${path}`, body);
    expect(answer.status).toBe(200);
    return answer.body;
  };

  it('holds in each of them once it is answered: how often it may speak', async () => {
    const alice = await homeserver.registerUser('alice');
    const { body } = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
    const room = `/rooms/${encodeURIComponent(body.room_id)}`;
    let sent = 0;
    const say = async (): Promise<readonly number[]> => {
      const found = new Set<number>();
      for (let n = 0; n < enough; n++) {
        const path = `${room}/send/m.room.message/m${++sent}`;
        found.add((await alice.request('PUT', path, { msgtype: 'm.text', body: 'hello' })).status);
      }
      return [...found];
    };
    expect(await say()).toContain(429);
    const path = `v1/users/${alice.userId}/override_ratelimit`;
    await byAdmin('POST', path, { messages_per_second: 0, burst_count: 0 });
    expect(await say()).toEqual([200]);
    await byAdmin('DELETE', path);
    expect(await say()).toContain(429);
  });

  it('is shown by each of them: when it was last there', async () => {
    for (const name of ['bea', 'cleo', 'dora', 'edda', 'flo', 'gina']) {
      const user = await homeserver.registerUser(name);
      await user.request('GET', '/account/whoami');
      expect(await byAdmin('GET', `v2/users/${user.userId}`)).toMatchObject({ last_seen_ts: expect.any(Number) });
    }
  });

  it('begins anew in each of them when it is opened again: whom it ignores, its direct chats, and its filters', async () => {
    const ivy = await homeserver.registerUser('ivy');
    const { body: room } = await admin.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    await admin.request('PUT', `/rooms/${room.room_id}/send/m.room.message/hello`, {
      msgtype: 'm.text',
      body: 'hello',
    });
    const bodies = async (token: string, path: string): Promise<string[]> => {
      const found = new Set<string>();
      for (let n = 0; n < enough; n++) {
        const { status, body } = await homeserver.request('GET', path, undefined, token);
        found.add(`${status} ${JSON.stringify(body)}`);
      }
      return [...found];
    };
    /** How many direct chats each of them lists. */
    const directChats = async (token: string): Promise<number[]> => {
      const found = new Set<number>();
      const list = { ranges: [[0, 9]], timeline_limit: 0, required_state: [], filters: { is_dm: true } };
      const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
      for (let n = 0; n < enough; n++) {
        const { body } = await homeserver.request<{ lists: { direct: { count: number } } }>(
          'POST',
          path,
          { lists: { direct: list } },
          token,
        );
        found.add(body.lists.direct.count);
      }
      return [...found];
    };
    const filters = `/user/${ivy.userId}/filter`;
    const messages = `/rooms/${room.room_id}/messages?dir=b&limit=50`;
    await ivy.request('POST', `/join/${room.room_id}`, {});
    await ivy.request('PUT', `/user/${ivy.userId}/account_data/m.ignored_user_list`, {
      ignored_users: { [admin.userId]: {} },
    });
    expect((await ivy.request('POST', filters, { event_fields: ['type'] })).body).toEqual({ filter_id: '0' });
    expect(await bodies(ivy.accessToken, `${filters}/0`)).toEqual(['200 {"event_fields":["type"]}']);
    for (const body of await bodies(ivy.accessToken, messages)) expect(body).not.toContain('"hello"');
    await ivy.request('PUT', `/user/${ivy.userId}/account_data/m.direct`, { [admin.userId]: [room.room_id] });
    expect(await directChats(ivy.accessToken)).toEqual([1]);

    await byAdmin('POST', `v1/deactivate/${ivy.userId}`, {});
    await byAdmin('PUT', `v2/users/${ivy.userId}`, { deactivated: false, password: 'another long one' });
    const login = { type: 'm.login.password', user: 'ivy', password: 'another long one' };
    const { body: session } = await homeserver.request<{ access_token: string }>('POST', '/login', login);
    const again = session.access_token;
    await homeserver.request('POST', `/join/${room.room_id}`, {}, again);
    for (const body of await bodies(again, messages)) expect(body).toContain('"hello"');
    expect(await directChats(again)).toEqual([0]);
    for (const body of await bodies(again, `${filters}/0`)) expect(body).toMatch(/^404 /);
    const made = await homeserver.request('POST', filters, { event_fields: ['content'] }, again);
    expect(made.body).toEqual({ filter_id: '0' });
    expect(await bodies(again, `${filters}/0`)).toEqual(['200 {"event_fields":["content"]}']);
  });

  it('holds in each of them once it is answered: until when it may be used', async () => {
    const hedy = await homeserver.registerUser('hedy');
    clock.advance(30 * dayMs + 1);
    expect(await statuses(hedy, '/account/whoami')).toEqual([403]);
    const renewal = { user_id: hedy.userId, expiration_ts: clock.nowMs() + dayMs };
    await homeserver.server.service(AccountValidity).extend(admin.userId, renewal.expiration_ts);
    await byAdmin('POST', 'v1/account_validity/validity', renewal);
    expect(await statuses(hedy, '/account/whoami')).toEqual([200]);
    await byAdmin('POST', `v1/deactivate/${hedy.userId}`, {});
    await byAdmin('PUT', `v2/users/${hedy.userId}`, { deactivated: false, password: 'another long one' });
    const login = { type: 'm.login.password', user: 'hedy', password: 'another long one' };
    const { body } = await homeserver.request<{ access_token: string }>('POST', '/login', login);
    clock.advance(2 * dayMs);
    for (let n = 0; n < enough; n++)
      expect((await homeserver.request('GET', '/account/whoami', undefined, body.access_token)).status).toBe(200);
  });
});

describe('Who is active at a process that does not write', () => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  let bob: TestUser;
  const clock = new ForwardClock();

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 2, clock },
      settings: {
        ...{ limit_usage_by_mau: true, max_mau_value: 2, admin_contact: 'mailto:admin@rookery.test' },
        server_notices: { system_mxid_localpart: 'notices', auto_join: true },
      },
    });
    ann = await homeserver.registerUser('ann');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  const sync = (process: number, user: TestUser): Promise<unknown> =>
    askProcess(homeserver, process, user, 'GET', '/sync?timeout=0');
  const noticed = (): Promise<void> => homeserver.server.service(ClientActivity).flush();

  it('gets the notices of the server', async () => {
    // What they did until now is behind them.
    await noticed();
    for (const user of [ann, bob]) await sync(1, user);
    await noticed();
    const notices = homeserver.server.service(ServerNotices);
    expect(await eventually(() => notices.roomOf(ann.userId))).toMatch(/^!/);
    expect(await eventually(() => notices.roomOf(bob.userId))).toMatch(/^!/);
  });

  it('loses a place among those who count there as well', async () => {
    await noticed();
    clock.advance(31 * dayMs);
    await homeserver.server.service(MonthlyActiveUsers).tidy();
    for (const name of ['carl', 'dora']) await sync(0, await homeserver.registerUser(name));
    for (const process of [0, 1]) {
      const refused = await requestProcess(homeserver, process, ann, 'GET', '/_matrix/client/v3/sync?timeout=0');
      expect([process, refused.status]).toEqual([process, 403]);
      expect(await refused.json()).toMatchObject({ errcode: 'M_RESOURCE_LIMIT_EXCEEDED' });
    }
  });
});
