import { eventually, type TestHomeserver } from '@rookery/testing';
import { type AdminRequest, asUser, type Json, startAdminWorld } from './support.js';

const names = (body: Json): unknown[] => (body['users'] as Json[]).map((user) => user['name']);

describe.each(['sqlite', 'postgres'] as const)('accounts that wait for an administrator (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;

  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({
      database,
      settings: { experimental_features: { msc3866: { enabled: true, require_approval_for_new_accounts: true } } },
    }));
  });
  afterAll(() => homeserver?.stop());

  it('are listed, and let in', async () => {
    const account = { username: 'newcomer', password: 'the password' };
    const userId = '@newcomer:rookery.test';
    const login = () =>
      homeserver.request<Json>('POST', '/login', {
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: 'newcomer' },
        password: 'the password',
      });
    await homeserver.request('POST', '/register', { ...account, auth: { type: 'm.login.dummy' } });
    expect(await login()).toMatchObject({
      status: 403,
      body: { errcode: 'ORG.MATRIX.MSC3866_USER_AWAITING_APPROVAL' },
    });
    expect(names((await admin('GET', 'v2/users?approved=false')).body)).toEqual([userId]);
    expect(names((await admin('GET', 'v2/users')).body)).toEqual([userId, '@root:rookery.test']);
    expect((await admin('GET', `v2/users/${userId}`)).body['approved']).toBe(false);
    expect((await admin('PUT', `v2/users/${userId}`, { approved: true })).body['approved']).toBe(true);
    expect((await login()).status).toBe(200);
    expect(names((await admin('GET', 'v2/users?approved=false')).body)).toEqual([]);
    // Who is made by an administrator need not wait, unless that is said.
    expect((await admin('PUT', 'v2/users/@made:rookery.test', {})).body['approved']).toBe(true);
    expect((await admin('PUT', 'v2/users/@later:rookery.test', { approved: false })).body['approved']).toBe(false);
    expect((await admin('PUT', 'v2/users/@later:rookery.test', { approved: 'yes' })).body['errcode']).toBe(
      'M_BAD_JSON',
    );
  });
});

describe('mails about missed messages', () => {
  it('are set up for a new account with an address', async () => {
    const { homeserver, admin } = await startAdminWorld({
      settings: {
        public_baseurl: 'https://rookery.test/',
        email: {
          smtp_host: '127.0.0.1',
          smtp_port: 9,
          notif_from: 'R <r@rookery.test>',
          enable_notifs: true,
          notif_for_new_users: true,
        },
      },
    });
    try {
      const path = 'v2/users/@mailed:rookery.test';
      await admin('PUT', path, { threepids: [{ medium: 'email', address: 'mailed@example.org' }] });
      const { body } = await admin<{ pushers: Json[] }>('GET', 'v1/users/@mailed:rookery.test/pushers');
      expect(body.pushers).toMatchObject([{ kind: 'email', app_id: 'm.email', pushkey: 'mailed@example.org' }]);
      await admin('PUT', path, { threepids: [] });
      expect((await admin('GET', 'v1/users/@mailed:rookery.test/pushers')).body['total']).toBe(0);
    } finally {
      await homeserver.stop();
    }
  });
});

describe('addresses that users may not have', () => {
  it('are given to them by administrators', async () => {
    const { homeserver, admin } = await startAdminWorld({
      settings: { allowed_local_3pids: [{ medium: 'email', pattern: '[^@]*@example\\.org$' }] },
    });
    try {
      const path = 'v2/users/@mailed:rookery.test';
      const email = (address: string): Json => ({ medium: 'email', address });
      const put = (...addresses: string[]) => admin<Json>('PUT', path, { threepids: addresses.map(email) });
      const given = (...addresses: string[]): Json[] =>
        addresses.map((address) => expect.objectContaining(email(address)));
      expect((await put('first@elsewhere.org')).body['threepids']).toEqual(given('first@elsewhere.org'));
      const changed = await put('second@elsewhere.org', 'third@example.org');
      expect([changed.status, changed.body['threepids']]).toEqual([
        200,
        given('second@elsewhere.org', 'third@example.org'),
      ]);
    } finally {
      await homeserver.stop();
    }
  });
});

describe('where no passwords are kept', () => {
  it('administrators set none', async () => {
    const { homeserver, admin, root } = await startAdminWorld({
      settings: { password_config: { localdb_enabled: false } },
    });
    try {
      const refused = { status: 403, body: { errcode: 'M_FORBIDDEN' } };
      expect(await admin('POST', `v1/reset_password/${root.userId}`, { new_password: 'x' })).toMatchObject(refused);
      expect(await admin('PUT', `v2/users/${root.userId}`, { password: 'x' })).toMatchObject(refused);
      expect(await admin('PUT', 'v2/users/@other:rookery.test', { password: 'x' })).toMatchObject(refused);
      expect((await admin('GET', 'v2/users/@other:rookery.test')).status).toBe(404);
      expect((await admin('PUT', 'v2/users/@other:rookery.test', {})).status).toBe(201);
    } finally {
      await homeserver.stop();
    }
  });
});

describe('where no files are kept', () => {
  it('there are none of users', async () => {
    const { homeserver, admin, root } = await startAdminWorld({ settings: { enable_media_repo: false } });
    try {
      for (const method of ['GET', 'DELETE'])
        expect(await admin(method, `v1/users/${root.userId}/media`)).toMatchObject({
          status: 404,
          body: { errcode: 'M_UNRECOGNIZED' },
        });
    } finally {
      await homeserver.stop();
    }
  });
});

describe.each(['sqlite', 'postgres'] as const)('a restart amid a redaction (%s)', (database) => {
  it("the redaction of a user's events goes on to its end", async () => {
    const { homeserver, admin, root } = await startAdminWorld({ database });
    try {
      const spammer = await homeserver.registerUser('spammer');
      const room = (await root.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' })).body
        .room_id;
      await spammer.request('POST', `/join/${room}`, {});
      const count = 60;
      await Promise.all(
        Array.from({ length: count }, (_, n) =>
          spammer.request('PUT', `/rooms/${room}/send/m.room.message/${n}`, { msgtype: 'm.text', body: `spam ${n}` }),
        ),
      );
      const started = await admin<{ redact_id: string }>('POST', `v1/user/${spammer.userId}/redact`, { rooms: [] });
      await homeserver.restart();
      const status = async () => (await asUser(root)('GET', `v1/user/redact_status/${started.body.redact_id}`)).body;
      await eventually(async () => ['complete', 'failed'].includes(String((await status())['status'])));
      expect(await status()).toEqual({ status: 'complete', failed_redactions: {} });
      const left: unknown[] = [];
      let redactions = 0;
      for (let from = ''; ;) {
        const page = await root.request<{ chunk: { type: string; content: Json }[]; end?: string }>(
          'GET',
          `/rooms/${room}/messages?dir=b&limit=500${from}`,
        );
        for (const event of page.body.chunk) {
          if (event.type === 'm.room.message' && event.content['body'] !== undefined) left.push(event.content['body']);
          if (event.type === 'm.room.redaction') redactions += 1;
        }
        if (page.body.end === undefined) break;
        from = `&from=${page.body.end}`;
      }
      expect(left).toEqual([]);
      // Each message and the join, none of them twice.
      expect(redactions).toBe(count + 1);
    } finally {
      await homeserver.stop();
    }
  });
});
