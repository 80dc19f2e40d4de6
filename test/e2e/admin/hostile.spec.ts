import type { TestHomeserver, TestUser } from '@rookery/testing';
import { type Route, routesOf } from '../hostile/routes.js';
import { brokenBodies, brokenSegments, damagedCopies, dangerousTexts } from '../hostile/values.js';
import { Wire, type WireRequest } from '../hostile/wire.js';
import { createRoom, databases, ok, outcome, say, startHomeserver } from '../rooms/rooms-client.js';
import { type Operator, operatorOf } from './operator-world.js';

/** Longest time that an answer may take. */
const patienceMs = 20_000;

/** A right body for the endpoints that take one; every key of it is damaged in turn. */
const bodies: Readonly<Record<string, object>> = {
  'DELETE /_synapse/admin/v1/rooms/:roomId': { block: false, purge: true, message: 'x', new_room_user_id: null },
  'DELETE /_synapse/admin/v2/rooms/:roomId': { block: false, purge: true, room_name: 'x', new_room_user_id: null },
  'PUT /_synapse/admin/v1/rooms/:roomId/block': { block: false },
  'POST /_synapse/admin/v1/join/:roomIdOrAlias': { user_id: '@victim:rookery.test' },
  'POST /_synapse/admin/v1/rooms/:roomIdOrAlias/make_room_admin': { user_id: '@victim:rookery.test' },
  'POST /_synapse/admin/v1/purge_history/:roomId': { purge_up_to_event_id: '$x', delete_local_events: false },
  'POST /_synapse/admin/v1/send_server_notice': {
    ...{ user_id: '@victim:rookery.test', content: { body: 'x' } },
    ...{ type: 'm.room.message', state_key: '' },
  },
  'PUT /_synapse/admin/v1/experimental_features/:userId': { features: { msc3575: true } },
  'POST /_synapse/admin/v1/background_updates/enabled': { enabled: true },
  'POST /_synapse/admin/v1/background_updates/start_job': {
    job_name: 'event_resign',
    old_key: 'ed25519:a b',
    before_ts: 1,
  },
  'POST /_synapse/admin/v1/registration_tokens/new': { token: 'abc', uses_allowed: 1, expiry_time: null, length: 4 },
  'PUT /_synapse/admin/v1/registration_tokens/:token': { uses_allowed: 1, expiry_time: null },
  'PUT /_synapse/admin/v2/users/:userId': {
    ...{ displayname: 'x', avatar_url: 'mxc://a/b', admin: false, locked: false, user_type: null },
    ...{
      threepids: [{ medium: 'email', address: 'a@b.test' }],
      external_ids: [{ auth_provider: 'p', external_id: 'e' }],
    },
  },
  'POST /_synapse/admin/v1/deactivate/:userId': { erase: false },
  'PUT /_synapse/admin/v1/suspend/:userId': { suspend: false },
  'POST /_synapse/admin/v1/reset_password/:userId': { new_password: 'x', logout_devices: false },
  'PUT /_synapse/admin/v1/users/:userId/admin': { admin: false },
  'POST /_synapse/admin/v1/users/:userId/login': { valid_until_ms: 1 },
  'POST /_synapse/admin/v1/users/:userId/override_ratelimit': { messages_per_second: 0, burst_count: 0 },
  'POST /_synapse/admin/v1/user/:userId/redact': { rooms: [], reason: 'x', limit: 1, use_admin: false },
  'POST /_synapse/admin/v2/users/:userId/devices': { device_id: 'x' },
  'PUT /_synapse/admin/v2/users/:userId/devices/:deviceId': { display_name: 'x' },
  'POST /_synapse/admin/v2/users/:userId/delete_devices': { devices: ['x'] },
  'POST /_synapse/admin/v1/account_validity/validity': { user_id: '@victim:rookery.test', expiration_ts: 1 },
};

const queries = [
  ...['from', 'limit', 'dir', 'order_by', 'search_term', 'before_ts', 'size_gt', 'keep_profiles', 'ts', 'max_depth'],
  ...['user_id', 'name', 'room_id', 'term', 'username', 'destination', 'filter', 'to', 'status', 'max_timestamp'],
  ...['type', 'until_ts', 'from_ts', 'guests', 'deactivated', 'valid', 'server_name', 'resource_id'],
];

describe.each(databases)('the admin API, asked in every wrong way (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let victim: TestUser;
  let roomId: string;
  let routes: Route[];
  let wire: Wire;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { server_notices: { system_mxid_localpart: 'notices' } });
    root = await operatorOf(homeserver);
    victim = await homeserver.registerUser('victim');
    roomId = await createRoom(victim, { preset: 'public_chat' });
    wire = new Wire(homeserver.baseUrl);
    routes = routesOf(homeserver, ['/_synapse/admin/']);
  });
  afterAll(async () => {
    wire?.close();
    await homeserver?.stop();
  });

  /** What must not be: no answer, an answer that blames the server, or one that is no JSON. */
  const offense = async (request: WireRequest): Promise<string | undefined> => {
    const { status, text } = await wire.send(request, patienceMs);
    const isBlame = status === undefined || status >= 500;
    // A page for people, served to their browsers.
    let isRightKind = request.target.startsWith('/_synapse/admin/pages') && text.startsWith('<!doctype html>');
    try {
      JSON.parse(text);
      isRightKind = true;
    } catch {
      // Only the page is no JSON.
    }
    if (!isBlame && isRightKind) return undefined;
    const body = typeof request.body === 'string' ? request.body.slice(0, 200) : '';
    return `${request.method} ${request.target.slice(0, 200)} ${body}: ${status ?? 'nothing'} ${text.slice(0, 200)}`;
  };
  const sendAll = async (requests: readonly WireRequest[]): Promise<string[]> => {
    const found: string[] = [];
    for (const request of requests) {
      const problem = await offense(request);
      if (problem !== undefined) found.push(problem);
    }
    return found;
  };
  const rightSegments = (): Readonly<Record<string, string>> => ({
    ...{ roomId, roomIdOrAlias: roomId, userId: victim.userId, user: victim.userId, eventId: '$x', deviceId: 'x' },
    ...{ serverName: 'rookery.test', mediaId: 'x', destination: 'a.test', token: 'x', reportId: '1' },
  });
  const pathOf = (path: string, replaced: Readonly<Record<string, string>> = {}): string =>
    path.replace(/:(\w+)/g, (_, name: string) => replaced[name] ?? encodeURIComponent(rightSegments()[name] ?? 'x'));
  const headers = (): Record<string, string> => ({
    authorization: `Bearer ${root.user.accessToken}`,
    'content-type': 'application/json',
  });
  const bodyFor = (route: Route, path: string): string | undefined =>
    route.method === 'GET' ? undefined : JSON.stringify(bodies[`${route.method} ${path}`] ?? {});

  it('knows many endpoints', () => {
    expect(routes.length).toBeGreaterThan(60);
  });

  it('blames nobody but the caller for strange paths', async () => {
    const requests = routes.flatMap((route) =>
      route.paths.flatMap((path) =>
        [...path.matchAll(/:(\w+)/g)].flatMap(([, name = '']) =>
          [...brokenSegments, ...dangerousTexts.map((text) => encodeURIComponent(text))].map((segment) => ({
            method: route.method,
            target: pathOf(path, { [name]: segment }),
            headers: headers(),
            body: bodyFor(route, path),
          })),
        ),
      ),
    );
    expect(await sendAll(requests)).toEqual([]);
  }, 240_000);

  it('blames nobody but the caller for strange queries', async () => {
    const reads = routes.filter(({ method, name }) => method === 'GET' || /media|purge|join/.test(name));
    const requests = reads.flatMap((route) =>
      queries.flatMap((name) =>
        dangerousTexts.map((text) => ({
          method: route.method,
          target: `${pathOf(route.paths[0] ?? '')}?${name}=${encodeURIComponent(text)}`,
          headers: headers(),
          body: bodyFor(route, route.paths[0] ?? ''),
        })),
      ),
    );
    const some = requests.filter((_, index) => index % 7 === 0);
    expect(await sendAll(some)).toEqual([]);
  }, 240_000);

  it('blames nobody but the caller for strange bodies', async () => {
    const writes = routes.filter(({ method }) => method !== 'GET');
    const requests = writes.flatMap((route): WireRequest[] => {
      const path = route.paths[0] ?? '';
      const right = bodies[`${route.method} ${path}`];
      const damaged = right === undefined ? [] : [...damagedCopies(right)];
      return [...brokenBodies, ...damaged].map((body) => ({
        method: route.method,
        target: pathOf(path),
        headers: headers(),
        body,
      }));
    });
    expect(await sendAll(requests)).toEqual([]);
  }, 240_000);

  it('serves everybody as before', async () => {
    const alice = await homeserver.registerUser('alice');
    const room = await createRoom(alice);
    await say(alice, room, 'Still there');
    expect((await ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms')).joined_rooms).toEqual([room]);
    expect(outcome(await root.call('GET', '/v1/rooms'))).toBe('200');
  });
});
