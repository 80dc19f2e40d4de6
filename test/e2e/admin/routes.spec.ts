import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { type AdminRequest, adminPath, asUser, startAdminWorld } from './support.js';

/** Every endpoint of the admin API: its methods, its path with something in the place of each variable. */
const endpoints: readonly (readonly [methods: string, path: string])[] = [
  ['GET', 'v1/username_available'],
  ['GET', 'v1/auth_providers/p/users/x'],
  ['GET', 'v1/threepid/email/users/x@example.org'],
  ['GET', 'v1/search_users/@a:rookery.test'],
  ['GET', 'v2/users'],
  ['GET', 'v3/users'],
  ['GET PUT', 'v2/users/@a:rookery.test'],
  ['POST', 'v1/deactivate/@a:rookery.test'],
  ['PUT', 'v1/suspend/@a:rookery.test'],
  ['POST', 'v1/reset_password/@a:rookery.test'],
  ['GET PUT', 'v1/users/@a:rookery.test/admin'],
  ['POST', 'v1/users/@a:rookery.test/login'],
  ['GET', 'v1/users/@a:rookery.test/joined_rooms'],
  ['GET', 'v1/users/@a:rookery.test/memberships'],
  ['GET', 'v1/users/@a:rookery.test/sent_invite_count'],
  ['GET', 'v1/users/@a:rookery.test/cumulative_joined_room_count'],
  ['GET', 'v1/users/@a:rookery.test/accountdata'],
  ['GET', 'v1/users/@a:rookery.test/pushers'],
  ['POST DELETE', 'v1/users/@a:rookery.test/shadow_ban'],
  ['GET POST DELETE', 'v1/users/@a:rookery.test/override_ratelimit'],
  ['POST', 'v1/users/@a:rookery.test/_allow_cross_signing_replacement_without_uia'],
  ['POST', 'v1/user/@a:rookery.test/redact'],
  ['GET', 'v1/user/redact_status/x'],
  ['GET PUT', 'v1/experimental_features/@a:rookery.test'],
  ['POST', 'v1/account_validity/validity'],
  ['GET POST', 'v2/users/@a:rookery.test/devices'],
  ['GET PUT DELETE', 'v2/users/@a:rookery.test/devices/D'],
  ['POST', 'v2/users/@a:rookery.test/delete_devices'],
  ['GET DELETE', 'v1/users/@a:rookery.test/media'],
  ['GET', 'v1/modules'],
  ['GET', 'v1/modules/m/settings'],
  ['POST', 'v1/modules/m/settings/check'],
  ['GET', 'v1/rooms'],
  ['GET DELETE', 'v1/rooms/!r:rookery.test'],
  ['GET', 'v1/rooms/!r:rookery.test/members'],
  ['GET', 'v1/rooms/!r:rookery.test/state'],
  ['GET', 'v1/rooms/!r:rookery.test/messages'],
  ['GET', 'v1/rooms/!r:rookery.test/context/$e'],
  ['GET', 'v1/rooms/!r:rookery.test/timestamp_to_event'],
  ['GET', 'v1/rooms/!r:rookery.test/hierarchy'],
  ['GET PUT', 'v1/rooms/!r:rookery.test/block'],
  ['DELETE', 'v2/rooms/!r:rookery.test'],
  ['GET', 'v2/rooms/!r:rookery.test/delete_status'],
  ['GET', 'v2/rooms/delete_status/x'],
  ['POST', 'v1/rooms/!r:rookery.test/make_room_admin'],
  ['GET DELETE', 'v1/rooms/!r:rookery.test/forward_extremities'],
  ['POST', 'v1/join/!r:rookery.test'],
  ['POST', 'v1/purge_history/!r:rookery.test'],
  ['POST', 'v1/purge_history/!r:rookery.test/$e'],
  ['GET', 'v1/purge_history_status/x'],
  ['GET', 'v1/fetch_event/$e'],
  ['GET', 'v1/room/!r:rookery.test/media'],
  ['GET DELETE', 'v1/media/rookery.test/m'],
  ['POST', 'v1/media/delete'],
  ['POST', 'v1/media/rookery.test/delete'],
  ['POST', 'v1/purge_media_cache'],
  ['POST', 'v1/media/quarantine/rookery.test/m'],
  ['POST', 'v1/media/unquarantine/rookery.test/m'],
  ['POST', 'v1/room/!r:rookery.test/media/quarantine'],
  ['POST', 'v1/quarantine_media/!r:rookery.test'],
  ['POST', 'v1/user/@a:rookery.test/media/quarantine'],
  ['POST', 'v1/media/protect/m'],
  ['POST', 'v1/media/unprotect/m'],
  ['GET', 'v1/media/quarantine_changes'],
  ['GET', 'v1/event_reports'],
  ['GET DELETE', 'v1/event_reports/1'],
  ['GET', 'v1/user_reports'],
  ['GET DELETE', 'v1/user_reports/1'],
  ['GET', 'v1/registration_tokens'],
  ['POST', 'v1/registration_tokens/new'],
  ['GET PUT DELETE', 'v1/registration_tokens/t'],
  ['GET', 'v1/background_tasks'],
  ['GET', 'v1/scheduled_tasks'],
  ['GET', 'v1/statistics/users/media'],
  ['GET', 'v1/statistics/database/rooms'],
  ['GET', 'v1/federation/destinations'],
  ['GET', 'v1/federation/destinations/d'],
  ['GET', 'v1/federation/destinations/d/rooms'],
  ['POST', 'v1/federation/destinations/d/reset_connection'],
  ['GET', 'v1/background_updates/status'],
  ['GET POST', 'v1/background_updates/enabled'],
  ['POST', 'v1/background_updates/start_job'],
  ['POST', 'v1/send_server_notice'],
  ['PUT', 'v1/send_server_notice/txn'],
];

/** What users may ask about themselves, and what needs no token. */
const others: typeof endpoints = [
  ['GET', 'v1/whois/@a:rookery.test'],
  ['GET', 'v1/server_version'],
  ['GET POST', 'v1/register'],
];

/** What there was in former releases. */
const removed: typeof endpoints = [
  ['GET', 'v1/users'],
  ['GET', 'v1/users/@a:rookery.test'],
  ['POST', 'v1/purge_room'],
  ['POST', 'v1/shutdown_room/!r:rookery.test'],
  ['POST', 'v1/rooms/!r:rookery.test/delete'],
  ['POST', 'v1/!r:rookery.test/delete'],
  ['GET', '/_matrix/client/api/v1/admin/users/@a:rookery.test'],
  ['GET', '/_matrix/client/unstable/admin/v1/users/@a:rookery.test'],
  ['GET', '/_matrix/client/r0/admin/users/@a:rookery.test'],
];

const single = (list: typeof endpoints): [method: string, path: string][] =>
  list.flatMap(([methods, path]) => methods.split(' ').map((method): [string, string] => [method, path]));
/** Parts that are no plain names are percent-encoded, as clients do. */
const encoded = (path: string): string => adminPath(path).replace(/[!@$]/g, encodeURIComponent);
const bodyFor = (method: string): object | undefined => (method === 'GET' || method === 'DELETE' ? undefined : {});

describe('the routes of the admin API', () => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  let alice: TestUser;

  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({}));
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  it('are as many as there should be', () => {
    expect(single([...endpoints, ...others])).toHaveLength(107);
  });

  it.each(single(endpoints))('%s %s is for administrators', async (method, path) => {
    const body = bodyFor(method);
    expect(await homeserver.request(method, encoded(path), body)).toMatchObject({
      status: 401,
      body: { errcode: 'M_MISSING_TOKEN' },
    });
    expect(await homeserver.request(method, encoded(path), body, 'wrong')).toMatchObject({
      status: 401,
      body: { errcode: 'M_UNKNOWN_TOKEN' },
    });
    expect(await asUser(alice)(method, encoded(path), body)).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
  });

  it.each(single([...endpoints, ...others]))('%s %s is there', async (method, path) => {
    const { status, body } = await admin(method, encoded(path), bodyFor(method));
    expect(body['errcode']).not.toBe('M_UNRECOGNIZED');
    // One statistic is PostgreSQL's alone.
    if (!path.includes('statistics/database')) expect(status).toBeLessThan(500);
  });

  it.each([...endpoints, ...others])('%s %s answers 405 to other methods', async (methods, path) => {
    const known = methods.split(' ');
    const other = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'].filter((method) => !known.includes(method));
    // Two paths may fit into one another: what one of them knows is no wrong method.
    const wrong = other.filter((method) => !overlapping.has(`${method} ${path}`));
    for (const method of wrong)
      expect(await admin(method, encoded(path), bodyFor(method))).toMatchObject({
        status: 405,
        body: { errcode: 'M_UNRECOGNIZED' },
      });
  });

  it.each(single(removed))('%s %s is not there any more', async (method, path) => {
    expect(await admin(method, encoded(path), bodyFor(method))).toMatchObject({ body: { errcode: 'M_UNRECOGNIZED' } });
  });

  it('are unknown otherwise', async () => {
    expect(await admin('GET', 'v1/nothing')).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    expect(await admin('GET', 'v9/users')).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
  });

  it('take a token from the query as well', async () => {
    const { body } = await homeserver.request<{ access_token: string }>('POST', '/login', {
      type: 'm.login.password',
      identifier: { type: 'm.id.user', user: 'root' },
      password: 'password of root',
    });
    const { status } = await homeserver.request('GET', `/_synapse/admin/v2/users?access_token=${body.access_token}`);
    expect(status).toBe(200);
  });
});

/** Paths with a literal part that another one has as a variable. */
const overlapping = new Set<string>([
  'GET v1/registration_tokens/new',
  'PUT v1/registration_tokens/new',
  'DELETE v1/registration_tokens/new',
  'GET v1/media/rookery.test/delete',
  'DELETE v1/media/rookery.test/delete',
  'GET v1/media/protect/m',
  'DELETE v1/media/protect/m',
  'GET v1/media/unprotect/m',
  'DELETE v1/media/unprotect/m',
]);

describe('the admin API under another prefix', () => {
  it('is where the setting says', async () => {
    const homeserver = await createTestHomeserver({ settings: { service_prefix: '_rookery' } });
    try {
      expect((await homeserver.request('GET', '/_rookery/admin/v1/server_version')).status).toBe(200);
      expect((await homeserver.request('GET', '/_synapse/admin/v1/server_version')).status).toBe(404);
    } finally {
      await homeserver.stop();
    }
  });
});
