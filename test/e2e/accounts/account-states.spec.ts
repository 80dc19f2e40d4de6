import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountService, AccountValidity, DeactivationService } from '@rookery/users';
import { type Route, routesOf } from '../hostile/routes.js';
import { unlimited } from '../../support/server-process.js';
import { ForwardClock, type Json, logIn } from './support.js';

/*
 * Who may use which endpoint. One that stands nowhere needs a token, takes none of a guest, and is closed to accounts that
 * are locked, closed or expired: a new endpoint that is different is put in here.
 */

/** Endpoints that look at no token. */
const open: ReadonlySet<string> = new Set([
  'DELETE /rendezvous/:id',
  'GET /rendezvous/:id',
  'POST /rendezvous (MSC4108)',
  'PUT /rendezvous/:id',
  'GET /account_validity/renew',
  'GET /add_threepid/email/submit_token',
  'GET /auth/:stage/fallback/web',
  'GET /auth/m.login.sso/fallback/web',
  'GET /auth_metadata',
  'GET /directory/list/room/:roomId',
  'GET /login',
  'GET /login/cas/redirect',
  'GET /login/cas/ticket',
  'GET /login/sso/redirect',
  'GET /login/sso/redirect/:idpId',
  'GET /password_policy',
  'GET /register',
  'GET /register/available',
  'GET /register/m.login.registration_token/validity',
  'GET /registration/email/submit_token',
  'POST /account/3pid/email/requestToken',
  'POST /account/3pid/msisdn/requestToken',
  'POST /account/password/email/requestToken',
  'POST /account/password/msisdn/requestToken',
  'POST /account_validity/renew',
  'POST /add_threepid/msisdn/submit_token',
  'POST /auth/:stage/fallback/web',
  'POST /login',
  'POST /refresh',
  'POST /register',
  'POST /register/email/requestToken',
  'POST /register/msisdn/requestToken',
]);
/** The unauthenticated media endpoints of the past. */
const openMedia = /^GET \/_matrix\/media\/(?:r0|v1|v3)\/(?:download|thumbnail)\//;
/** Endpoints that do without a token, but look at one that comes. */
const optional: ReadonlySet<string> = new Set([
  'GET /_matrix/client/versions',
  'GET /directory/room/:roomAlias',
  'GET /profile/:userId',
  'GET /profile/:userId/:field',
  'GET /publicRooms',
  'GET /rendezvous',
  'POST /rendezvous',
  'GET /room_summary/:roomIdOrAlias',
  'POST /account/password',
  'POST /delayed_events/:delayId',
  'POST /delayed_events/:delayId/cancel',
  'POST /delayed_events/:delayId/restart',
  'POST /delayed_events/:delayId/send',
]);
/** The door, which a locked account may use. */
const forLocked: ReadonlySet<string> = new Set(['GET /_matrix/client/versions', 'POST /logout', 'POST /logout/all']);
/** What an expired account may do: leave, renew, or see to its password. */
const forExpired: ReadonlySet<string> = new Set([
  ...forLocked,
  'POST /account/deactivate',
  'POST /account/password',
  'POST /account_validity/send_mail',
]);
/** What a suspended account may not do: speak, bring others in, move about, change its face, take up space. */
const closedToSuspended: ReadonlySet<string> = new Set([
  'DELETE /directory/room/:roomAlias',
  'DELETE /profile/:userId/:field',
  'POST /_matrix/media/r0/upload',
  'POST /_matrix/media/v1/create',
  'POST /createRoom',
  'POST /join/:roomIdOrAlias',
  'POST /knock/:roomIdOrAlias',
  'POST /rooms/:roomId/ban',
  'POST /rooms/:roomId/invite',
  'POST /rooms/:roomId/join',
  'POST /rooms/:roomId/kick',
  'POST /rooms/:roomId/send/:eventType',
  'POST /rooms/:roomId/unban',
  'POST /rooms/:roomId/upgrade',
  'PUT /_matrix/media/r0/upload/:serverName/:mediaId',
  'PUT /createRoom/:txnId',
  'PUT /directory/list/room/:roomId',
  'PUT /directory/room/:roomAlias',
  'PUT /join/:roomIdOrAlias/:txnId',
  'PUT /profile/:userId/:field',
  'PUT /rooms/:roomId/invite/:txnId',
  'PUT /rooms/:roomId/join/:txnId',
  'PUT /rooms/:roomId/send/:eventType/:txnId',
]);
/** Suspended accounts may do some of it: the endpoint decides with the room at hand. */
const decidedLater: ReadonlySet<string> = new Set([
  'PUT /rooms/:roomId/state/:eventType/:stateKey',
  'POST /rooms/:roomId/redact/:eventId',
  'PUT /rooms/:roomId/redact/:eventId/:txnId',
]);
/** What guests may do: look into rooms that let them, talk there, and what encryption needs. */
const forGuests: ReadonlySet<string> = new Set([
  ...[...optional].filter((name) => name !== 'POST /account/password'),
  'GET /account/whoami',
  'GET /capabilities',
  'GET /delayed_events',
  'GET /delayed_events/:delayId',
  'GET /devices',
  'GET /devices/:deviceId',
  'GET /events',
  'GET /joined_rooms',
  'GET /keys/changes',
  'GET /media/download/:serverName/:mediaId',
  'GET /media/thumbnail/:serverName/:mediaId',
  'GET /presence/:userId/status',
  'GET /rooms/:roomId/context/:eventId',
  'GET /rooms/:roomId/event/:eventId',
  'GET /rooms/:roomId/hierarchy',
  'GET /rooms/:roomId/initialSync',
  'GET /rooms/:roomId/members',
  'GET /rooms/:roomId/messages',
  'GET /rooms/:roomId/relations/:eventId',
  'GET /rooms/:roomId/relations/:eventId/:relType',
  'GET /rooms/:roomId/relations/:eventId/:relType/:eventType',
  'GET /rooms/:roomId/state',
  'GET /rooms/:roomId/state/:eventType/:stateKey',
  'GET /rooms/:roomId/threads',
  'GET /sync',
  'GET /user/:userId/account_data/:type',
  'GET /user/:userId/filter/:filterId',
  'GET /user/:userId/rooms/:roomId/account_data/:type',
  'GET /voip/turnServer',
  'POST /keys/claim',
  'POST /keys/query',
  'POST /keys/upload',
  'POST /keys/upload/:deviceId',
  'POST /logout',
  'POST /logout/all',
  'POST /publicRooms',
  'POST /rooms/:roomId/forget',
  'POST /rooms/:roomId/leave',
  'POST /rooms/:roomId/read_markers',
  'POST /rooms/:roomId/receipt/:receiptType/:eventId',
  'POST /rooms/:roomId/redact/:eventId',
  'POST /rooms/:roomId/send/:eventType',
  'POST /sync',
  'POST /user/:userId/filter',
  'PUT /devices/:deviceId',
  'PUT /presence/:userId/status',
  'PUT /rooms/:roomId/redact/:eventId/:txnId',
  'PUT /rooms/:roomId/send/:eventType/:txnId',
  'PUT /rooms/:roomId/state/:eventType/:stateKey',
  'PUT /rooms/:roomId/typing/:userId',
  'PUT /sendToDevice/:eventType/:txnId',
  'PUT /user/:userId/account_data/:type',
  'PUT /user/:userId/rooms/:roomId/account_data/:type',
]);
/** Guests may do some of it: rooms say who joins, and of their profile they have a name only. */
const guestsInPart: ReadonlySet<string> = new Set([
  'DELETE /profile/:userId/:field',
  'POST /join/:roomIdOrAlias',
  'POST /rooms/:roomId/join',
  'PUT /profile/:userId/:field',
]);
const forAdmins = /^(?:GET|PUT) \/admin\/(?:lock|suspend)\//;

/** An answer in short: `403 M_FORBIDDEN`, with ` soft` where the client may come back with the same device. */
type Outcome = string;

/** Whatever a request is about: nothing of it exists. */
const parameters: Readonly<Record<string, string>> = {
  userId: '@nobody:rookery.test',
  roomId: '!nowhere:rookery.test',
  roomIdOrAlias: '!nowhere:rookery.test',
  roomAlias: '#nowhere:rookery.test',
  eventId: '$nothing',
  threadId: '$nothing',
  serverName: 'rookery.test',
  stage: 'm.login.dummy',
};

/** Server with the shadow-banned pretending in no time. */
class HastyClock extends ForwardClock {
  override sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return super.sleep(signal === undefined && delayMs >= 1000 && delayMs <= 10_000 ? 5 : delayMs, signal);
  }
}

describe.each(['sqlite', 'postgres'] as const)('every endpoint and the state of an account (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let routes: Route[];
  const accounts = (): AccountService => homeserver.server.service(AccountService);

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      clock: new HastyClock(),
      settings: {
        ...unlimited,
        rc_delayed_event_mgmt: unlimited.rc_message,
        rc_3pid_validation: unlimited.rc_message,
        allow_guest_access: true,
        allow_public_rooms_without_auth: true,
        account_validity: { enabled: true, period: '1000d' },
        experimental_features: { msc3720_enabled: true },
      },
    });
    // Sessions end last, so that each endpoint is asked with a token that was good.
    const last = (name: string): number => (/logout/.test(name) ? 1 : 0);
    routes = routesOf(homeserver, ['/_matrix/client/', '/_matrix/media/'])
      .map((route) =>
        /msc4108\/rendezvous$/.test(route.paths[0]!) ? { ...route, name: `${route.name} (MSC4108)` } : route,
      )
      .sort((a, b) => last(a.name) - last(b.name));
    expect(routes.length).toBeGreaterThan(180);
  });
  afterAll(() => homeserver?.stop());

  const isOpen = (name: string): boolean => open.has(name) || openMedia.test(name);

  async function outcomeOf(route: Route, token: string | undefined): Promise<Outcome> {
    const path = route.paths[0]!.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(parameters[name] ?? 'x'));
    const response = await fetch(`${homeserver.baseUrl}${path}${/\/(?:sync|events)$/.test(path) ? '?timeout=0' : ''}`, {
      method: route.method,
      redirect: 'manual',
      headers: {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(route.method === 'GET' ? {} : { 'content-type': 'application/json' }),
      },
      ...(route.method === 'POST' || route.method === 'PUT' ? { body: '{}' } : {}),
    });
    const text = await response.text();
    const isJson = (response.headers.get('content-type') ?? '').startsWith('application/json');
    const { errcode, soft_logout: soft } = (isJson && text !== '' ? JSON.parse(text) : {}) as Json;
    return [response.status, errcode, soft === true ? 'soft' : undefined]
      .filter((part) => part !== undefined)
      .join(' ');
  }

  /** What every endpoint says to a token. */
  async function ask(token: string | undefined): Promise<Map<string, Outcome>> {
    const outcomes = new Map<string, Outcome>();
    for (const route of routes) outcomes.set(`${route.method} ${route.paths[0]}`, await outcomeOf(route, token));
    return outcomes;
  }

  /** Holds what every endpoint says against whether it is refused; all differences at once. */
  async function expectRefused(
    token: string | undefined,
    refusal: Outcome,
    isRefused: (name: string) => boolean,
    skipped: (name: string) => boolean = () => false,
  ): Promise<void> {
    const outcomes = await ask(token);
    const wrong = routes.flatMap(({ name, method, paths }) => {
      const outcome = outcomes.get(`${method} ${paths[0]}`)!;
      if (skipped(name) || (outcome === refusal) === isRefused(name)) return [];
      return [`${name}: ${outcome}, ${isRefused(name) ? '' : 'not '}${refusal} expected`];
    });
    expect(wrong).toEqual([]);
  }

  const join = (name: string): Promise<TestUser> => homeserver.registerUser(name);

  it('needs a token where it is not said otherwise', () =>
    expectRefused(
      undefined,
      '401 M_MISSING_TOKEN',
      (name) => !isOpen(name) && !optional.has(name),
      // Without a token it is about a proved address, of which this server can prove none.
      (name) => name === 'POST /account/password',
    ));

  it('knows no made-up token', () =>
    expectRefused('syt_bWFkZSB1cA_aaaaaaaaaaaaaaaaaaaa_000000', '401 M_UNKNOWN_TOKEN', (name) => !isOpen(name)));

  it('shuts a locked account out of everything but the door, softly', async () => {
    const { accessToken, userId } = await join('locked');
    await accounts().setFlags(userId, { locked: true });
    await expectRefused(accessToken, '401 M_USER_LOCKED soft', (name) => !isOpen(name) && !forLocked.has(name));
  });

  it('knows the token of a closed account no more, erased or not', async () => {
    for (const erase of [false, true]) {
      const { accessToken, userId } = await join(`closed${erase}`);
      await homeserver.server.service(DeactivationService).deactivate(userId, erase, true, {});
      await expectRefused(accessToken, '401 M_UNKNOWN_TOKEN', (name) => !isOpen(name));
    }
  });

  it('lets an expired account do no more than leave, renew and see to its password', async () => {
    const { accessToken, userId } = await join('expired');
    await homeserver.server.service(AccountValidity).extend(userId, 1);
    await expectRefused(
      accessToken,
      '403 ORG_MATRIX_EXPIRED_ACCOUNT',
      (name) => !isOpen(name) && !forExpired.has(name) && !forAdmins.test(name),
    );
  });

  it('lets a suspended account look, but not speak or move', async () => {
    const { accessToken, userId } = await join('suspended');
    await accounts().setFlags(userId, { suspended: true });
    await expectRefused(
      accessToken,
      '403 M_USER_SUSPENDED',
      (name) => closedToSuspended.has(name),
      (name) => decidedLater.has(name),
    );
  });

  it('lets guests do what is said, and nothing else', async () => {
    const { body } = await homeserver.request<Json>('POST', '/register?kind=guest', {});
    await expectRefused(
      String(body['access_token']),
      '403 M_GUEST_ACCESS_FORBIDDEN',
      (name) => !isOpen(name) && !forGuests.has(name),
      (name) => guestsInPart.has(name),
    );
  });

  it('keeps what is for administrators from everybody else', async () => {
    const { accessToken } = await join('plain');
    const outcomes = await ask(accessToken);
    const closed = routes.filter(({ name }) => forAdmins.test(name));
    expect(closed.length).toBe(4);
    for (const { name, method, paths } of closed)
      expect([name, outcomes.get(`${method} ${paths[0]}`)]).toEqual([name, '403 M_FORBIDDEN']);
  });

  it('says to a shadow-banned account what it says to any other', async () => {
    const [plain, shadow] = [await join('unsuspicious'), await join('shadow')];
    await accounts().setFlags(shadow.userId, { shadowBanned: true });
    const [expected, seen] = [await ask(plain.accessToken), await ask(shadow.accessToken)];
    expect([...seen]).toEqual([...expected]);
  });

  it('lets a shadow-banned account believe that it takes part, while nobody sees anything of it', async () => {
    const [ann, bob] = [await join('ann'), await join('bob')];
    await accounts().setFlags(bob.userId, { shadowBanned: true });
    const token = (await logIn(homeserver, 'bob')).accessToken;
    const create = async (by: TestUser, body: Json): Promise<string> =>
      String((await by.request('POST', '/createRoom', body)).body['room_id']);
    const shared = await create(ann, { preset: 'public_chat' });
    expect((await bob.request('POST', `/join/${shared}`, {})).status).toBe(200);
    const said = await ann.request('PUT', `/rooms/${shared}/send/m.room.message/1`, { msgtype: 'm.text', body: 'a' });
    const message = String(said.body['event_id']);
    const carl = await join('carl');
    expect((await carl.request('POST', `/join/${shared}`, {})).status).toBe(200);
    const dan = await join('dan');
    const banned = { user_id: dan.userId };
    expect((await ann.request('POST', `/rooms/${shared}/ban`, banned)).status).toBe(200);
    const { body: before } = await ann.request<{ next_batch: string }>('GET', '/sync?timeout=0');
    const own = await create(bob, { invite: [ann.userId], name: 'Come in' });
    for (const [method, path, body] of [
      ['PUT', `/rooms/${shared}/send/m.room.message/2`, { msgtype: 'm.text', body: 'b' }],
      ['PUT', `/rooms/${shared}/state/m.room.topic/`, { topic: 'b' }],
      ['PUT', `/rooms/${shared}/redact/${message}/3`, {}],
      ['POST', `/rooms/${shared}/kick`, { user_id: carl.userId }],
      ['POST', `/rooms/${shared}/ban`, { user_id: carl.userId }],
      ['POST', `/rooms/${shared}/unban`, banned],
      ['PUT', `/rooms/${shared}/state/m.room.member/${bob.userId}`, { membership: 'join', displayname: 'Bobby' }],
      ['POST', `/join/${shared}`, { 'org.example.mood': 'bold' }],
      ['POST', `/rooms/${own}/invite`, { user_id: carl.userId }],
      ['PUT', `/rooms/${shared}/typing/${bob.userId}`, { typing: true, timeout: 30_000 }],
      ['PUT', `/profile/${bob.userId}/displayname`, { displayname: 'Bob the Great' }],
    ] as const)
      expect([path, (await homeserver.request(method, path, body, token)).status]).toEqual([path, 200]);
    const after = await ann.request<{ rooms?: Json }>('GET', `/sync?timeout=0&since=${before.next_batch}`);
    expect(JSON.stringify(after.body.rooms ?? {})).not.toContain(bob.userId);
    expect(
      (await carl.request<{ rooms?: { invite?: Json } }>('GET', '/sync?timeout=0')).body.rooms?.invite ?? {},
    ).toEqual({});
    const members = await ann.request('GET', `/rooms/${shared}/state/m.room.member/${encodeURIComponent(carl.userId)}`);
    expect(members.body).toMatchObject({ membership: 'join' });
    const stillOut = await ann.request('GET', `/rooms/${shared}/state/m.room.member/${encodeURIComponent(dan.userId)}`);
    expect(stillOut.body).toMatchObject({ membership: 'ban' });
    expect((await ann.request('GET', `/rooms/${shared}/event/${message}`)).body).toMatchObject({
      content: { body: 'a' },
    });
  });
});
