import { Database } from '@rookery/database';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountStatusService, AccountValidity, DeactivationService, UserPorts } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import { asJson, type Json } from './support.js';

const statusPath = '/_matrix/client/unstable/org.matrix.msc3720/account_status';

describe.each(['sqlite', 'postgres'] as const)('what users may learn of others (%s)', (kind) => {
  let homeserver: TestHomeserver | undefined;
  const start = async (settings: Json): Promise<TestHomeserver> =>
    (homeserver = await createTestHomeserver({ database: kind, fetch: validatedFetch, settings }));
  const ask = async (user: TestUser, body: unknown): Promise<Json> =>
    asJson(await user.request('POST', statusPath, body));
  afterEach(async () => {
    await homeserver?.stop();
    homeserver = undefined;
  });

  it('tells whether accounts exist and are open, where that is on', async () => {
    const server = await start({ experimental_features: { msc3720_enabled: true } });
    const [ann, bob] = [await server.registerUser('ann'), await server.registerUser('bob')];
    await server.server.service(DeactivationService).deactivate(bob.userId, false, true, {});
    const userIds = [ann.userId, bob.userId, '@ghost:rookery.test', '@far:elsewhere.test', '@near:other.test'];
    const known = {
      [ann.userId]: { exists: true, deactivated: false },
      [bob.userId]: { exists: true, deactivated: true },
      '@ghost:rookery.test': { exists: false },
    };
    expect(await ask(ann, { user_ids: userIds })).toEqual({
      status: 200,
      account_statuses: known,
      failures: ['@far:elsewhere.test', '@near:other.test'],
    });
    const service = server.server.service(AccountStatusService);
    server.server.service(UserPorts).remoteAccountStatuses.replace((name) =>
      name === 'elsewhere.test'
        ? Promise.resolve({
            account_statuses: {
              '@far:elsewhere.test': { exists: true, deactivated: false, secret: 1 },
              [ann.userId]: { exists: false },
            },
          })
        : Promise.reject(new Error('away')),
    );
    expect(await ask(ann, { user_ids: userIds })).toEqual({
      status: 200,
      account_statuses: { ...known, '@far:elsewhere.test': { exists: true, deactivated: false } },
      failures: ['@near:other.test'],
    });
    await expect(service.ofLocal(userIds)).rejects.toMatchObject({ status: 400 });
    expect((await service.ofLocal([ann.userId])).statuses).toEqual({ [ann.userId]: known[ann.userId] });
    for (const [body, errcode] of [
      [{}, 'M_MISSING_PARAM'],
      [{ user_ids: 'x' }, 'M_BAD_JSON'],
      [{ user_ids: [1] }, 'M_BAD_JSON'],
      [{ user_ids: ['ann'] }, 'M_INVALID_PARAM'],
      [{ user_ids: Array.from({ length: 201 }, (_, i) => `@u${i}:rookery.test`) }, 'M_INVALID_PARAM'],
    ] as const)
      expect([body, await ask(ann, body)]).toMatchObject([body, { status: 400, errcode }]);
    expect(asJson(await server.request('POST', statusPath, { user_ids: [] }))).toMatchObject({ status: 401 });
    const { body } = await ann.request<{ capabilities: Json }>('GET', '/capabilities');
    expect(body.capabilities['org.matrix.msc3720.account_status']).toEqual({ enabled: true });
  });

  it('asks other servers about accounts so often and no more', async () => {
    const rc_profile = { per_second: 0.0001, burst_count: 3 };
    const server = await start({ experimental_features: { msc3720_enabled: true }, rc_profile });
    const ann = await server.registerUser('ann');
    const asked: string[] = [];
    server.server.service(UserPorts).remoteAccountStatuses.replace((name) => {
      asked.push(name);
      return Promise.resolve({ account_statuses: {} });
    });
    const of = (...servers: string[]) => ask(ann, { user_ids: servers.map((name) => `@u:${name}`) });
    expect(await of('one.test', 'two.test', 'rookery.test')).toMatchObject({ status: 200 });
    expect(await of('one.test', 'two.test')).toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    expect(await of('one.test', 'two.test', 'three.test', 'four.test')).toMatchObject({ status: 400 });
    expect(await of('three.test')).toMatchObject({ status: 200 });
    expect(await of('rookery.test')).toMatchObject({ status: 200, failures: [] });
    expect(asked.sort()).toEqual(['one.test', 'three.test', 'two.test']);
  });

  it('tells whether accounts have expired only where that is set', async () => {
    const settings = {
      experimental_features: { msc3720_enabled: true },
      account_validity: { enabled: true, period: '30d' },
      use_account_validity_in_account_status: true,
    };
    const server = await start(settings);
    const [ann, bob] = [await server.registerUser('ann'), await server.registerUser('bob')];
    await server.server.service(AccountValidity).extend(bob.userId, 1);
    expect((await ask(ann, { user_ids: [ann.userId, bob.userId] }))['account_statuses']).toEqual({
      [ann.userId]: { exists: true, deactivated: false, 'org.matrix.expired': false },
      [bob.userId]: { exists: true, deactivated: false, 'org.matrix.expired': true },
    });
    await server.restart();
    // However many are asked about, the database is asked once.
    const database = server.server.service(Database);
    const others = await Promise.all(['cy', 'dee', 'eve', 'fay'].map((name) => server.registerUser(name)));
    let reads = 0;
    const counted =
      <Args extends unknown[], T>(read: (sql: string, ...args: Args) => T) =>
      (sql: string, ...args: Args): T => {
        if (/FROM account_validity\b/.test(sql)) reads++;
        return read.call(database, sql, ...args);
      };
    const { query, get } = database;
    Object.assign(database, { query: counted(query), get: counted(get) });
    const asked = [bob, ...others].map(({ userId }) => userId);
    expect(Object.keys((await ask(ann, { user_ids: asked }))['account_statuses'] as Json).sort()).toEqual(asked.sort());
    Object.assign(database, { query, get });
    // One for those asked about, and who asks is looked at herself.
    expect(reads).toBeLessThan(asked.length);
    settings.use_account_validity_in_account_status = false;
    await server.restart();
    expect((await ask(ann, { user_ids: [bob.userId] }))['account_statuses']).toEqual({
      [bob.userId]: { exists: true, deactivated: false },
    });
  });

  it('does not know that endpoint by default', async () => {
    const server = await start({});
    const ann = await server.registerUser('ann');
    expect(await ask(ann, { user_ids: [] })).toMatchObject({ status: 404, errcode: 'M_UNRECOGNIZED' });
    const { body } = await ann.request<{ capabilities: Json }>('GET', '/capabilities');
    expect(body.capabilities).not.toHaveProperty(['org.matrix.msc3720.account_status']);
  });

  it('shows profiles to users in a common room only, where that is set', async () => {
    const server = await start({
      require_auth_for_profile_requests: true,
      limit_profile_requests_to_users_who_share_rooms: true,
    });
    const [ann, bob] = [await server.registerUser('ann'), await server.registerUser('bob')];
    const look = async (user: TestUser | undefined, field = ''): Promise<unknown> => {
      const path = `/profile/${bob.userId}${field}`;
      const answer = asJson(await (user ? user.request('GET', path) : server.request('GET', path)));
      return answer['status'] === 200 ? 200 : `${String(answer['status'])} ${String(answer['errcode'])}`;
    };
    for (const field of ['', '/displayname', '/avatar_url', '/m.tz'])
      expect([field, await look(ann, field), await look(undefined, field)]).toEqual([
        field,
        '403 M_FORBIDDEN',
        '401 M_MISSING_TOKEN',
      ]);
    expect(await look(bob)).toBe(200);
    const { body } = await bob.request('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = String(body['room_id']);
    expect((await ann.request('POST', `/join/${roomId}`, {})).status).toBe(200);
    expect([await look(ann), await look(ann, '/displayname')]).toEqual([200, 200]);
    await ann.request('POST', `/rooms/${roomId}/leave`, {});
    expect(await look(ann)).toBe('403 M_FORBIDDEN');
    // The other side of inviting somebody: who is invited is not shown either.
    const { body: other } = await ann.request('POST', '/createRoom', { invite: [bob.userId] });
    expect([typeof other['room_id'], await look(ann)]).toEqual(['string', '403 M_FORBIDDEN']);
  });

  it('lets a user keep a new name out of the rooms, where that is on', async () => {
    const settings = { experimental_features: { msc4069_profile_inhibit_propagation: true } };
    const server = await start(settings);
    const ann = await server.registerUser('ann');
    const { body } = await ann.request('POST', '/createRoom', {});
    const inRoom = async (): Promise<unknown> =>
      (await ann.request('GET', `/rooms/${String(body['room_id'])}/state/m.room.member/${ann.userId}`)).body[
        'displayname'
      ];
    const rename = async (displayname: string, query: string): Promise<void> => {
      const path = `/profile/${ann.userId}/displayname${query}`;
      expect((await ann.request('PUT', path, { displayname })).status).toBe(200);
    };
    const quietly = '?org.matrix.msc4069.propagate=false';
    await rename('Quiet Ann', quietly);
    // A second change, which is told: had the first been told, it would have come before.
    await rename('Ann the Second', '');
    await eventually(async () => ((await inRoom()) === 'Ann the Second' ? true : undefined));
    const { body: history } = await ann.request<{ chunk: { content: Json }[] }>(
      'GET',
      `/rooms/${String(body['room_id'])}/messages?dir=b&limit=20`,
    );
    expect(history.chunk.map(({ content }) => content['displayname'])).not.toContain('Quiet Ann');
    settings.experimental_features.msc4069_profile_inhibit_propagation = false;
    await server.restart();
    await rename('Loud Ann', quietly);
    await eventually(async () => ((await inRoom()) === 'Loud Ann' ? true : undefined));
  });
});
