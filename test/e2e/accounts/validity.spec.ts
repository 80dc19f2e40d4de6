import { Database } from '@rookery/database';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountService, RenewalMails, ThreepidService } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import { gatekeeper } from './fixtures/gatekeeper.js';
import {
  asJson,
  expectSafe,
  type Json,
  linkOf,
  logIn,
  type MailServer,
  openPage,
  startMailServer,
  withPassword,
  ForwardClock,
} from './support.js';

const dayMs = 86_400_000;
const expired = { status: 403, errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' };

/** What an expired account may try. */
const closed: readonly (readonly [method: string, path: string, body?: Json])[] = [
  ['GET', '/account/whoami'],
  ['GET', '/account/3pid'],
  ['GET', '/capabilities'],
  ['GET', '/devices'],
  ['GET', '/joined_rooms'],
  ['GET', '/pushrules/'],
  ['GET', '/sync?timeout=0'],
  ['POST', '/createRoom', {}],
  ['POST', '/keys/query', { device_keys: {} }],
  ['PUT', '/rooms/!a:rookery.test/send/m.room.message/1', {}],
];

describe.each(['sqlite', 'postgres'] as const)('account validity (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  let ann: TestUser;
  const clock = new ForwardClock();

  beforeAll(async () => {
    mail = await startMailServer();
    homeserver = await createTestHomeserver({
      database: kind,
      clock,
      fetch: validatedFetch,
      settings: {
        public_baseurl: 'https://chat.example/',
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test', app_name: 'Nest' },
        account_validity: { enabled: true, period: '30d', renew_at: '7d', renew_email_subject: 'Stay with %(app)s?' },
        templates: { custom_template_directory: new URL('./fixtures/pages', import.meta.url).pathname },
      },
    });
    ann = await homeserver.registerUser('ann');
    const threepids = homeserver.server.service(ThreepidService);
    await threepids.add(ann.userId, 'email', 'ann@example.org', clock.nowMs(), {});
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
  });

  const expectExpired = async (user: TestUser): Promise<void> => {
    for (const [method, path, body] of closed)
      expect([path, asJson(await user.request(method, path, body))]).toMatchObject([path, expired]);
  };

  it('asks to renew a week before the end, by a mail whose link works once', async () => {
    clock.advance(23 * dayMs + 1);
    const renewal = homeserver.server.service(RenewalMails);
    // However many look at the same time, one mail goes out.
    await Promise.all([renewal.tellExpiring(), renewal.tellExpiring()]);
    const letter = await mail.next('ann@example.org');
    expect(letter.subject).toBe('Stay with Nest?');
    const link = linkOf(letter);
    expect(link.origin + link.pathname).toBe('https://chat.example/_matrix/client/unstable/account_validity/renew');
    await renewal.tellExpiring();
    expect(mail.mails).toHaveLength(1);

    clock.advance(7 * dayMs);
    await expectExpired(ann);
    const nowMs = clock.nowMs();
    const renewed = await openPage(homeserver, link);
    expect(renewed.status).toBe(200);
    const until = Number(/renewed until (\d+)</.exec(renewed.html)?.[1]);
    expect(until - nowMs - 30 * dayMs).toBeGreaterThanOrEqual(0);
    expect(until - nowMs - 30 * dayMs).toBeLessThan(60_000);
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
    // The same link again: it says until when, and renews nothing.
    clock.advance(dayMs);
    const again = await openPage(homeserver, link);
    expect(again.status).toBe(200);
    expectSafe(again);
    const { html } = again;
    expect(html).toContain(new Date(until).toISOString().slice(0, 4));
    expect(html).not.toContain('renewed until');
    clock.advance(29 * dayMs);
    await expectExpired(ann);
  });

  it('lets an expired account out, renew, change its password and close itself', async () => {
    const second = await logIn(homeserver, 'ann');
    await expectExpired(second);
    expect((await second.request('POST', '/logout', {})).status).toBe(200);
    expect(
      await withPassword(ann, 'POST', '/account/password', { new_password: 'second 2' }, 'password of ann'),
    ).toMatchObject({ status: 200 });
    // One mail came for the end that draws near; another one replaces it.
    await homeserver.server.service(RenewalMails).tellExpiring();
    const replaced = linkOf(await mail.next('ann@example.org'));
    const sent = await ann.request('POST', '/_matrix/client/unstable/account_validity/send_mail', {});
    expect(asJson(sent)).toEqual({ status: 200 });
    const link = linkOf(await mail.next('ann@example.org'));
    expect((await openPage(homeserver, replaced)).status).toBe(404);
    expect((await openPage(homeserver, link)).status).toBe(200);
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
    const ben = await homeserver.registerUser('ben');
    clock.advance(30 * dayMs + 1);
    await expectExpired(ben);
    expect((await withPassword(ben, 'POST', '/account/deactivate', {}, 'password of ben')).status).toBe(200);
  });

  it('knows a link that is none', async () => {
    for (const token of ['guess', '<script>alert(1)</script>', 'x'.repeat(3000), '\0']) {
      const query = new URLSearchParams({ token }).toString();
      const page = await openPage(homeserver, `/_matrix/client/unstable/account_validity/renew?${query}`);
      expect(page.status).toBeGreaterThanOrEqual(400);
      expect(page.html).not.toContain('<script>alert');
    }
    expect((await openPage(homeserver, '/_matrix/client/unstable/account_validity/renew')).status).toBe(400);
  });

  it('tells who has no address that there is none to write to', async () => {
    const cat = await homeserver.registerUser('cat');
    const sent = await cat.request('POST', '/_matrix/client/unstable/account_validity/send_mail', {});
    expect(asJson(sent)).toMatchObject({ status: 400, errcode: 'M_UNKNOWN' });
  });
});

describe.each(['sqlite', 'postgres'] as const)('accounts from before accounts expired (%s)', (kind) => {
  it('get their end when the server starts, and keep it', async () => {
    const clock = new ForwardClock();
    const settings: Json = {};
    const homeserver = await createTestHomeserver({ database: kind, clock, fetch: validatedFetch, settings });
    try {
      const ann = await homeserver.registerUser('ann');
      settings['account_validity'] = { enabled: true, period: '30d' };
      await homeserver.restart();
      const endOfAnn = async (): Promise<number | undefined> => {
        const sql = 'SELECT expiration_ts_ms AS ts FROM account_validity WHERE user_id = ?';
        return (await homeserver.server.service(Database).get<{ ts: number }>(sql, [ann.userId]))?.ts;
      };
      const end = await eventually(endOfAnn);
      expect(end).toBeLessThanOrEqual(clock.nowMs() + 30 * dayMs);
      expect(end).toBeGreaterThan(clock.nowMs() + 26 * dayMs);
      expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
      clock.advance(dayMs);
      await homeserver.restart();
      await homeserver.registerUser('ben');
      expect(await endOfAnn()).toBe(end);
      clock.advance(29 * dayMs);
      expect(asJson(await ann.request('GET', '/account/whoami'))).toMatchObject(expired);
    } finally {
      await homeserver.stop();
    }
  });
});

describe.each(['sqlite', 'postgres'] as const)('account validity by a module (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let ann: TestUser;
  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        modules: [
          { module: new URL('./fixtures/gatekeeper.ts', import.meta.url).pathname, config: { validity: true } },
        ],
      },
    });
    ann = await homeserver.registerUser('ann');
  });
  afterAll(() => homeserver?.stop());

  it('shuts out whom the module says, and hands it the mails and links', async () => {
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
    gatekeeper.expired.add(ann.userId);
    for (const [method, path, body] of closed)
      expect([path, asJson(await ann.request(method, path, body))]).toMatchObject([path, expired]);
    gatekeeper.mailed.length = 0;
    const sent = await ann.request('POST', '/_matrix/client/unstable/account_validity/send_mail', {});
    expect([sent.status, gatekeeper.mailed]).toEqual([200, [ann.userId]]);
    const expirationTs = Date.UTC(2031, 0, 2);
    gatekeeper.renewals.set('good', { valid: true, stale: false, expirationTs });
    gatekeeper.renewals.set('used', { valid: false, stale: true, expirationTs });
    const follow = (token: string) =>
      openPage(homeserver, `/_matrix/client/unstable/account_validity/renew?token=${token}`);
    const [good, used, bad] = [await follow('good'), await follow('used'), await follow('bad')];
    expect([good.status, used.status, bad.status]).toEqual([200, 200, 404]);
    for (const page of [good, used]) expect(page.html).toContain('2031');
    expect(good.html).not.toBe(used.html);
    for (const page of [good, used, bad]) expectSafe(page);
    gatekeeper.expired.clear();
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
  });
});

describe.each(['sqlite', 'postgres'] as const)('rooms of new and closed accounts (%s)', (kind) => {
  const stopped: TestHomeserver[] = [];
  const start = async (settings: Json): Promise<TestHomeserver> => {
    const homeserver = await createTestHomeserver({ database: kind, fetch: validatedFetch, settings });
    stopped.push(homeserver);
    return homeserver;
  };
  afterAll(async () => {
    for (const homeserver of stopped) await homeserver.stop();
  });
  const roomsOf = async (user: TestUser): Promise<string[]> =>
    (await user.request<{ joined_rooms: string[] }>('GET', '/joined_rooms')).body.joined_rooms;
  const roomOf = async (homeserver: TestHomeserver, alias: string): Promise<Json> =>
    asJson(await homeserver.request('GET', `/directory/room/${encodeURIComponent(alias)}`));

  it('makes the rooms that everybody joins with the first user, and brings the others there', async () => {
    const homeserver = await start({
      auto_join_rooms: ['#hall:rookery.test', '#yard:rookery.test', '#far:elsewhere.invalid'],
      autocreate_auto_join_rooms_federated: false,
      allow_guest_access: true,
      auto_join_rooms_for_guests: false,
    });
    const first = await homeserver.registerUser('first');
    const rooms = await roomsOf(first);
    expect(rooms).toHaveLength(2);
    expect(rooms).toContain((await roomOf(homeserver, '#hall:rookery.test'))['room_id']);
    const create = await first.request('GET', `/rooms/${rooms[0]}/state/m.room.create`);
    expect(create.body).toMatchObject({ 'm.federate': false });
    const second = await homeserver.registerUser('second');
    expect((await roomsOf(second)).sort()).toEqual(rooms.sort());
    const { body } = await homeserver.request('POST', '/register?kind=guest', {});
    const guest = await homeserver.request('GET', '/joined_rooms', undefined, String(body['access_token']));
    if (guest.status === 200) expect(guest.body).toEqual({ joined_rooms: [] });
  });

  it('has somebody invite them where a room is private', async () => {
    const homeserver = await start({
      auto_join_rooms: ['#inner:rookery.test'],
      autocreate_auto_join_room_preset: 'private_chat',
      auto_join_mxid_localpart: 'host',
    });
    const host = await homeserver.registerUser('host');
    const rooms = await roomsOf(host);
    expect(rooms).toHaveLength(1);
    const rules = await host.request('GET', `/rooms/${rooms[0]}/state/m.room.join_rules`);
    expect(rules.body).toEqual({ join_rule: 'invite' });
    const user = await homeserver.registerUser('user');
    expect(await roomsOf(user)).toEqual(rooms);
  });

  it('makes none where that is off, and an account all the same', async () => {
    const homeserver = await start({ auto_join_rooms: ['#hall:rookery.test'], autocreate_auto_join_rooms: false });
    expect(await roomsOf(await homeserver.registerUser('ann'))).toEqual([]);
    expect(await roomOf(homeserver, '#hall:rookery.test')).toMatchObject({ status: 404 });
  });

  it('leaves every room of a closed account, and its invites', async () => {
    const homeserver = await start({});
    const [ann, ben] = [await homeserver.registerUser('ann'), await homeserver.registerUser('ben')];
    const create = async (body: Json): Promise<string> =>
      String((await ben.request('POST', '/createRoom', body)).body['room_id']);
    const joined: string[] = [];
    for (let count = 0; count < 12; count++) {
      const roomId = await create({ preset: 'public_chat' });
      await ann.request('POST', `/join/${roomId}`, {});
      joined.push(roomId);
    }
    const invited = await create({ invite: [ann.userId] });
    expect((await withPassword(ann, 'POST', '/account/deactivate', {}, 'password of ann')).status).toBe(200);
    for (const roomId of [...joined, invited]) {
      const { body } = await ben.request('GET', `/rooms/${roomId}/state/m.room.member/${ann.userId}`);
      expect(body).toEqual({ membership: 'leave' });
    }
    expect(await homeserver.server.service(AccountService).find(ann.userId)).toMatchObject({ deactivated: true });
    const database = homeserver.server.service(Database);
    expect(
      await database.query('SELECT room_id FROM local_current_membership WHERE user_id = ? AND forgotten = 0', [
        ann.userId,
      ]),
    ).toEqual([]);
  });
});

describe.each(['sqlite', 'postgres'] as const)('a closed server (%s)', (database) => {
  it('refuses everybody but administrators', async () => {
    const settings: Json = { allow_guest_access: true, admin_contact: 'mailto:admin@rookery.test' };
    const homeserver = await createTestHomeserver({ database, fetch: validatedFetch, settings });
    try {
      const [ann, root] = [await homeserver.registerUser('ann'), await homeserver.registerUser('root')];
      await homeserver.server.service(AccountService).setFlags(root.userId, { isAdmin: true });
      settings['hs_disabled'] = true;
      settings['hs_disabled_message'] = 'Back on Monday';
      await homeserver.restart();
      const refused = {
        status: 403,
        errcode: 'M_RESOURCE_LIMIT_EXCEEDED',
        error: 'Back on Monday',
        limit_type: 'hs_disabled',
        admin_contact: 'mailto:admin@rookery.test',
      };
      for (const [method, path, body] of closed)
        expect([path, asJson(await ann.request(method, path, body))]).toEqual([path, refused]);
      const login = (user: string): Json => ({
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user },
        password: `password of ${user}`,
      });
      expect(asJson(await homeserver.request('POST', '/login', login('ann')))).toEqual(refused);
      expect(asJson(await homeserver.request('POST', '/register', { username: 'x', password: 'x' }))).toEqual(refused);
      expect(asJson(await homeserver.request('POST', '/register?kind=guest', {}))).toEqual(refused);
      expect((await root.request('GET', '/account/whoami')).status).toBe(200);
      expect((await homeserver.request('POST', '/login', login('root'))).status).toBe(200);
    } finally {
      await homeserver.stop();
    }
  });
});
