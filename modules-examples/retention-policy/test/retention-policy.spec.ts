import { fileURLToPath } from 'node:url';
import { createTestHomeserver, eventually, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { ModuleApi } from '@rookery/module-api';
import { Holds } from '../src/holds.js';
import { parseConfig } from '../src/config.js';
import { kindsOf } from '../src/kinds.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const hourMs = 3_600_000;

it.each<[unknown, string]>([
  [[], 'expected an object'],
  [{ rooms: [{ kind: 'all', max_lifetime_days: 1 }] }, 'expected direct, encrypted, public, private, any'],
  [{ rooms: [{ kind: 'any', max_lifetime_days: 0 }] }, 'expected a number of days'],
  [{ rooms: [{ kind: 'any', days: 1 }] }, 'is unknown; there are kind, max_lifetime_days'],
  [{ changes: 'maybe' }, 'expected allow or deny'],
  [{ holds: ['alice'] }, 'expected the id of a room or a user'],
  [{ hold: [] }, 'is unknown; there are rooms, changes, holds'],
])('%j is refused', (config, problem) => expect(() => parseConfig(config)).toThrow(problem));

it.each<[object, string[]]>([
  [{}, ['any', 'private']],
  [{ visibility: 'public' }, ['any', 'public']],
  [{ preset: 'trusted_private_chat', is_direct: true }, ['any', 'direct', 'private']],
  [{ initial_state: [{ type: 'm.room.encryption', content: {} }, 7] }, ['any', 'encrypted', 'private']],
  [
    { preset: 'public_chat', initial_state: [{ type: 'm.room.join_rules', content: { join_rule: 'invite' } }] },
    ['any', 'private'],
  ],
])('%j makes a room of the kinds %j', (body, kinds) => {
  expect([...kindsOf(body as Record<string, unknown>)].sort()).toEqual(kinds);
});

it('looks for as many held users as there are, a thousand at a time', async () => {
  const asked: number[] = [];
  const api = {
    registerCachedFunction: (_: string, load: (key: string) => Promise<unknown>) => load,
    store: { list: async () => [] },
    getStateEventsInRoom: async (_: string, filter: readonly (readonly [string, string])[]) => {
      asked.push(filter.length);
      return filter.filter(([, id]) => id === '@u2000:x').map(([type, stateKey]) => ({ type, stateKey }));
    },
  } as unknown as ModuleApi;
  const users = Array.from({ length: 2_500 }, (_, i) => `@u${i}:x`);
  expect(await new Holds(api, users).ofRoom('!r:x')).toMatchObject({ id: '@u2000:x' });
  expect(await new Holds(api, users.slice(0, 2_000)).ofRoom('!r:x')).toBeUndefined();
  expect(asked).toEqual([1_000, 1_000, 500, 1_000, 1_000]);
});

describe.each(['sqlite', 'postgres'] as const)('a server with policies (%s)', (database) => {
  const clock = new FakeClock();
  let server: TestHomeserver;
  let alice: TestUser;
  let root: TestUser;
  const config = {
    rooms: [
      { kind: 'public', max_lifetime_days: 0.25 },
      { kind: 'direct', max_lifetime_days: null },
    ],
    holds: ['@kept:rookery.test'],
  };
  beforeAll(async () => {
    server = await createTestHomeserver({
      database,
      clock,
      settings: {
        modules: [{ module, config }],
        retention: { enabled: true, purge_jobs: [{ interval: '1h' }] },
        redaction_retention_period: '1h',
        experimental_features: { msc2815_enabled: true },
      },
    });
    alice = await server.registerUser('alice');
    root = await server.registerAdministrator('root');
  });
  afterAll(() => server?.stop());

  const create = async (body: object): Promise<string> =>
    (await alice.request<{ room_id: string }>('POST', '/createRoom', body)).body.room_id;
  const at = (roomId: string, rest: string): string => `/rooms/${encodeURIComponent(roomId)}/${rest}`;
  const retentionOf = async (roomId: string) => (await alice.request('GET', at(roomId, 'state/m.room.retention'))).body;
  let txn = 0;
  const say = async (roomId: string, body: string): Promise<string> =>
    (
      await alice.request<{ event_id: string }>('PUT', at(roomId, `send/m.room.message/${txn++}`), {
        msgtype: 'm.text',
        body,
      })
    ).body.event_id;
  /** What the database has of an event: its content, also of a redacted one; `undefined` when it is not there. */
  const stored = async (roomId: string, eventId: string): Promise<string | undefined> => {
    const fetched = await root.request('GET', `/_synapse/admin/v1/fetch_event/${encodeURIComponent(eventId)}`);
    if (fetched.status === 404) return undefined;
    const path = at(roomId, `event/${encodeURIComponent(eventId)}?fi.mau.unredact_content=true`);
    return JSON.stringify([fetched.body, (await alice.request('GET', path)).body]);
  };
  const hold = (id: string, method = 'PUT', body: object | undefined = { reason: 'case 17' }, by = root) =>
    by.request(method, `/_synapse/client/retention-policy/holds/${encodeURIComponent(id)}`, body);

  it('gives rooms their policy, which nobody but administrators of the server changes', async () => {
    const room = await create({ preset: 'public_chat' });
    expect(await retentionOf(room)).toEqual({ max_lifetime: 6 * hourMs });
    expect(await retentionOf(await create({ preset: 'private_chat', is_direct: true }))).toEqual({});
    expect(await retentionOf(await create({ preset: 'private_chat' }))).toMatchObject({ errcode: 'M_NOT_FOUND' });
    const wish = [{ type: 'm.room.retention', state_key: '', content: { max_lifetime: 1 } }];
    const other = await create({ preset: 'public_chat', initial_state: wish });
    expect(await retentionOf(other)).toEqual({ max_lifetime: 6 * hourMs });
    const change = { max_lifetime: 12 * hourMs };
    expect(await alice.request('PUT', at(room, 'state/m.room.retention'), change)).toMatchObject({
      status: 403,
      body: { error: 'How long messages live is up to this server' },
    });
  });

  it('has nothing removed that is held, and everything that is due once it is not', async () => {
    const rooms = { free: await create({ preset: 'public_chat' }), held: await create({ preset: 'public_chat' }) };
    expect((await hold(rooms.held, 'PUT', undefined, alice)).status).toBe(403);
    expect((await hold('nothing')).status).toBe(400);
    expect((await hold(rooms.held, 'PUT', {})).status).toBe(400);
    expect((await hold(rooms.held)).status).toBe(200);
    const { body: list } = await root.request<{ holds: object[] }>('GET', '/_synapse/client/retention-policy/holds');
    expect(list.holds).toEqual([
      { id: '@kept:rookery.test', reason: 'the settings', by: null, ts: null },
      { id: rooms.held, reason: 'case 17', by: root.userId, ts: expect.any(Number) },
    ]);

    const said = { free: await say(rooms.free, 'free'), held: await say(rooms.held, 'held') };
    const secret = { free: await say(rooms.free, 'a secret'), held: await say(rooms.held, 'a secret') };
    for (const kind of ['free', 'held'] as const)
      await alice.request('PUT', at(rooms[kind], `redact/${encodeURIComponent(secret[kind])}/${txn++}`), {});
    const purge = (roomId: string) =>
      root.request('POST', `/_synapse/admin/v1/purge_history/${encodeURIComponent(roomId)}`, {
        ...{ purge_up_to_ts: clock.nowMs(), delete_local_events: true },
      });
    expect(await purge(rooms.held)).toMatchObject({ status: 403, body: { error: `${rooms.held} is held: case 17` } });
    const room = (method: string, roomId: string) =>
      root.request(method, `/_synapse/admin/v1/rooms/${encodeURIComponent(roomId)}`, {});
    expect((await room('DELETE', rooms.held)).status).toBe(403);

    await clock.advance(2 * hourMs);
    await eventually(async () => !(await stored(rooms.free, secret.free))?.includes('a secret'));
    expect(await stored(rooms.held, secret.held)).toContain('a secret');
    await clock.advance(5 * hourMs);
    await say(rooms.free, 'new');
    await say(rooms.held, 'new');
    await clock.advance(2 * hourMs);
    await eventually(async () => (await stored(rooms.free, said.free)) === undefined);
    expect(await stored(rooms.held, said.held)).toContain('held');
    // What nobody was shown any more comes back to nobody.
    const { body: page } = await alice.request<{ chunk: { event_id: string }[] }>(
      'GET',
      at(rooms.held, 'messages?dir=b'),
    );
    expect(page.chunk.map((event) => event.event_id)).not.toContain(said.held);

    expect((await hold(rooms.held, 'DELETE')).status).toBe(200);
    expect((await hold(rooms.held, 'DELETE')).status).toBe(404);
    await clock.advance(2 * hourMs);
    await eventually(async () => (await stored(rooms.held, said.held)) === undefined);
    await eventually(async () => !(await stored(rooms.held, secret.held))?.includes('a secret'));
  });

  it('holds what somebody has said wherever they were, and their account', async () => {
    const room = await create({ preset: 'public_chat' });
    const kept = await server.registerUser('kept');
    const password = 'password of kept';
    await kept.request('POST', `/join/${encodeURIComponent(room)}`, {});
    await kept.request('POST', at(room, 'leave'), {});
    const path = `/_synapse/admin/v1/rooms/${encodeURIComponent(room)}`;
    expect(await root.request('DELETE', path, {})).toMatchObject({
      status: 403,
      body: { error: '@kept:rookery.test is held: the settings' },
    });
    const auth = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'kept' }, password };
    expect((await kept.request('POST', '/account/deactivate', { auth })).status).toBe(403);
  });
});
