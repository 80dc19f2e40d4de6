import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import {
  asJson,
  challengeOf,
  expectSafe,
  type Json,
  linkOf,
  logIn,
  type MailServer,
  openPage,
  startMailServer,
  startNumberServer,
  submitForm,
  withPassword,
  ForwardClock,
} from './support.js';

const wide = { per_second: 1000, burst_count: 1000 };

describe.each(['sqlite', 'postgres'] as const)('one’s own account (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  let numbers: Awaited<ReturnType<typeof startNumberServer>>;
  const clock = new ForwardClock();

  beforeAll(async () => {
    mail = await startMailServer();
    numbers = await startNumberServer();
    homeserver = await createTestHomeserver({
      database: kind,
      clock,
      fetch: validatedFetch,
      settings: {
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
        // At an address that others' requests may not reach: it is the operator's choice.
        account_threepid_delegates: { msisdn: numbers.url },
        password_config: { policy: { enabled: true, minimum_length: 8, require_digit: true } },
        rc_3pid_validation: wide,
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
    await numbers?.stop();
  });

  const join = (name: string): Promise<TestUser> => homeserver.registerUser(name, `password 1 of ${name}`);
  const addresses = async (user: TestUser): Promise<string[]> => {
    const { body } = await user.request<{ threepids: Json[] }>('GET', '/account/3pid');
    return body.threepids.map(({ medium, address }) => `${String(medium)} ${String(address)}`).sort();
  };
  const post = async (path: string, body: Json): Promise<Json> => asJson(await homeserver.request('POST', path, body));

  /** Proves an email address and adds it. */
  const addEmail = async (user: TestUser, email: string, password: string): Promise<Json> => {
    const { sid } = await post('/account/3pid/email/requestToken', { client_secret: 's', email, send_attempt: 1 });
    await openPage(homeserver, linkOf(await mail.next(email)));
    return asJson(await withPassword(user, 'POST', '/account/3pid/add', { client_secret: 's', sid }, password));
  };

  describe('passwords', () => {
    it('have to follow the policy, which clients can read', async () => {
      expect(asJson(await homeserver.request('GET', '/password_policy'))).toMatchObject({
        status: 200,
        'm.minimum_length': 8,
        'm.require_digit': true,
      });
      const ann = await join('ann');
      for (const [password, errcode] of [
        ['short1', 'M_PASSWORD_TOO_SHORT'],
        ['no digits here', 'M_PASSWORD_NO_DIGIT'],
        ['x1'.repeat(257), 'M_INVALID_PARAM'],
      ] as const) {
        const body = { username: 'weak', password, auth: { type: 'm.login.dummy' } };
        const [registered, changed] = [
          await post('/register', body),
          asJson(await ann.request('POST', '/account/password', { new_password: password })),
        ];
        expect(registered).toMatchObject({ status: 400 });
        expect(changed).toMatchObject({ status: 400, errcode: registered['errcode'] });
        if (errcode !== 'M_INVALID_PARAM') expect(registered['errcode']).toBe(errcode);
      }
    });

    it('change with the old one, and end the other sessions unless told otherwise', async () => {
      const ben = await join('ben');
      const old = 'password 1 of ben';
      const [other, another] = [await logIn(homeserver, 'ben', old), await logIn(homeserver, 'ben', old)];
      const path = '/account/password';
      const challenge = await challengeOf(ben.request('POST', path, { new_password: 'second 2 of ben' }));
      expect(challenge.flows).toEqual([{ stages: ['m.login.password'] }]);
      const wrong = await ben.request('POST', path, {
        new_password: 'second 2 of ben',
        auth: { type: 'm.login.password', session: challenge.session, password: 'second 2 of ben' },
      });
      expect(asJson(wrong)).toMatchObject({ status: 401, errcode: 'M_FORBIDDEN', session: challenge.session });
      const kept = await withPassword(
        ben,
        'POST',
        path,
        { new_password: 'second 2 of ben', logout_devices: false },
        old,
      );
      expect(kept).toMatchObject({ status: 200, body: {} });
      expect((await other.request('GET', '/account/whoami')).status).toBe(200);
      expect(
        (await withPassword(ben, 'POST', path, { new_password: 'third 3 of ben' }, 'second 2 of ben')).status,
      ).toBe(200);
      expect((await ben.request('GET', '/account/whoami')).status).toBe(200);
      for (const one of [other, another])
        expect(asJson(await one.request('GET', '/account/whoami'))).toMatchObject({ status: 401, soft_logout: false });
      const { body } = await ben.request<{ devices: Json[] }>('GET', '/devices');
      expect(body.devices.map((device) => device['device_id'])).toEqual([ben.deviceId]);
      expect(await logIn(homeserver, 'ben', 'third 3 of ben')).toMatchObject({ userId: ben.userId });
      expect(
        await post('/login', {
          type: 'm.login.password',
          identifier: { type: 'm.id.user', user: 'ben' },
          password: old,
        }),
      ).toMatchObject({ status: 403 });
    });

    it('are reset by mail: a link, a page, a form, then the new password', async () => {
      const cleo = await join('cleo');
      expect(await addEmail(cleo, 'cleo@example.org', 'password 1 of cleo')).toEqual({ status: 200 });
      const wish = { client_secret: 'forgotten', email: 'CLEO@example.org', send_attempt: 1 };
      const { sid } = await post('/account/password/email/requestToken', {
        ...wish,
        next_link: 'https://client.example/reset',
      });
      const letter = await mail.next('cleo@example.org');
      expect(letter.subject).toBe('[rookery.test] Password reset');
      const link = linkOf(letter);
      expect(link.pathname).toBe('/_synapse/client/password_reset/email/submit_token');
      expect([...link.searchParams.keys()].sort()).toEqual(['client_secret', 'sid', 'token']);
      const change = { new_password: 'second 2 of cleo' };
      const { session, flows } = await challengeOf(homeserver.request('POST', '/account/password', change));
      expect(flows).toEqual([{ stages: ['m.login.email.identity'] }, { stages: ['m.login.msisdn'] }]);
      const attempt = async (more: Json = {}): Promise<Json> =>
        post('/account/password', {
          ...change,
          auth: {
            type: 'm.login.email.identity',
            session,
            threepid_creds: { sid, client_secret: 'forgotten' },
          },
          ...more,
        });
      expect(await attempt()).toMatchObject({ status: 401, errcode: 'M_THREEPID_AUTH_FAILED' });

      // Mail scanners follow links: that alone proves nothing.
      const page = await openPage(homeserver, link);
      expectSafe(page);
      expect(page.status).toBe(200);
      expect(await attempt()).toMatchObject({ status: 401, errcode: 'M_THREEPID_AUTH_FAILED' });
      const wrong = await submitForm(homeserver, page, { token: 'guess' });
      expect(wrong.status).toBe(400);
      expectSafe(wrong);
      expect(await attempt()).toMatchObject({ status: 401 });
      // Browsers follow a redirect behind a form only where the policy of its page says nothing against it.
      expect(page.headers.get('content-security-policy')).not.toContain('form-action');
      const done = await submitForm(homeserver, page);
      expect([done.status, done.headers.get('location')]).toEqual([302, 'https://client.example/reset']);
      // What the session is for was settled with its first request.
      expect(await attempt({ new_password: 'of a thief 3' })).toMatchObject({ status: 403 });
      expect(await attempt()).toEqual({ status: 200 });
      expect((await cleo.request('GET', '/account/whoami')).status).toBe(401);
      expect(await logIn(homeserver, 'cleo', 'second 2 of cleo')).toMatchObject({ userId: cleo.userId });

      // The proof is used up.
      const second = await challengeOf(
        homeserver.request('POST', '/account/password', { new_password: 'third 3 of c' }),
      );
      expect(
        await post('/account/password', {
          new_password: 'third 3 of c',
          auth: {
            type: 'm.login.email.identity',
            session: second.session,
            threepid_creds: { sid, client_secret: 'forgotten' },
          },
        }),
      ).toMatchObject({ status: 401, errcode: 'M_THREEPID_AUTH_FAILED' });
    });

    it('are reset by the same form with its fields in the query, as clients write it themselves', async () => {
      const dan = await join('dan');
      await addEmail(dan, 'dan@example.org', 'password 1 of dan');
      await post('/account/password/email/requestToken', {
        client_secret: 'f',
        email: 'dan@example.org',
        send_attempt: 1,
      });
      const link = linkOf(await mail.next('dan@example.org'));
      const posted = await openPage(homeserver, link, {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: '',
      });
      expect(posted.status).toBe(200);
      expectSafe(posted);
      const json = await openPage(homeserver, link.pathname, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(Object.fromEntries(link.searchParams)),
      });
      expect(json.status).toBeGreaterThanOrEqual(400);
    });

    it('are not reset by the proof of an address that was begun to register, whichever way the address is spelt', async () => {
      const { sid } = await post('/register/email/requestToken', {
        ...{ client_secret: 'early', email: 'eli@example.org', send_attempt: 1 },
      });
      await openPage(homeserver, linkOf(await mail.next('eli@example.org')));
      const eli = await join('eli');
      await addEmail(eli, 'eli@example.org', 'password 1 of eli');
      for (const path of ['/account/password', '/account/password/', '/account/passwor%64']) {
        const change = { new_password: 'of a thief 3' };
        const { session } = await challengeOf(homeserver.request('POST', path, change));
        const threepid_creds = { sid, client_secret: 'early' };
        const auth = { type: 'm.login.email.identity', session, threepid_creds };
        expect([path, await post(path, { ...change, auth })]).toEqual([
          path,
          expect.objectContaining({ status: 401, errcode: 'M_THREEPID_AUTH_FAILED' }),
        ]);
      }
    });

    it('are not reset for addresses that nobody has', async () => {
      expect(
        await post('/account/password/email/requestToken', {
          client_secret: 'f',
          email: 'nobody@example.org',
          send_attempt: 1,
        }),
      ).toMatchObject({ status: 400, errcode: 'M_THREEPID_NOT_FOUND' });
    });
  });

  describe('addresses', () => {
    it('are added once they are proved, listed, used to log in, and removed', async () => {
      const eve = await join('eve');
      const { sid } = await post('/account/3pid/email/requestToken', {
        client_secret: 'mine',
        email: 'Eve@Example.org',
        send_attempt: 1,
      });
      const creds = { client_secret: 'mine', sid };
      const early = await withPassword(eve, 'POST', '/account/3pid/add', creds, 'password 1 of eve');
      expect(asJson(early)).toMatchObject({ status: 400, errcode: 'M_THREEPID_AUTH_FAILED' });
      const link = linkOf(await mail.next('eve@example.org'));
      expect(link.pathname).toBe('/_matrix/client/unstable/add_threepid/email/submit_token');
      const page = await openPage(homeserver, link);
      expect(page.status).toBe(200);
      expectSafe(page);
      const { session } = await challengeOf(eve.request('POST', '/account/3pid/add', creds));
      const auth = { type: 'm.login.password', session, password: 'guess' };
      expect(asJson(await eve.request('POST', '/account/3pid/add', { ...creds, auth }))).toMatchObject({ status: 401 });
      expect(await addresses(eve)).toEqual([]);
      const added = await withPassword(eve, 'POST', '/account/3pid/add', creds, 'password 1 of eve');
      expect(added).toMatchObject({ status: 200, body: {} });
      expect(await addresses(eve)).toEqual(['email eve@example.org']);
      // The proof is used up: neither the same account nor another one gets anything with it.
      const finn = await join('finn');
      expect(asJson(await withPassword(finn, 'POST', '/account/3pid/add', creds, 'password 1 of finn'))).toMatchObject({
        status: 400,
        errcode: 'M_THREEPID_AUTH_FAILED',
      });
      expect(
        await post('/account/3pid/email/requestToken', {
          client_secret: 'x',
          email: 'eve@example.org',
          send_attempt: 1,
        }),
      ).toMatchObject({ status: 400, errcode: 'M_THREEPID_IN_USE' });
      const gone = await eve.request('POST', '/account/3pid/delete', { medium: 'email', address: 'EVE@example.org' });
      expect(asJson(gone)).toEqual({ status: 200, id_server_unbind_result: 'no-support' });
      expect(await addresses(eve)).toEqual([]);
      expect(
        await post('/login', {
          type: 'm.login.password',
          identifier: { type: 'm.id.thirdparty', medium: 'email', address: 'eve@example.org' },
          password: 'password 1 of eve',
        }),
      ).toMatchObject({ status: 403 });
    });

    it('need a proof that was made for that: neither one for a registration nor one for a reset will do', async () => {
      const gil = await join('gil');
      const { sid } = await post('/register/email/requestToken', {
        client_secret: 's',
        email: 'gil@example.org',
        send_attempt: 1,
      });
      await openPage(homeserver, linkOf(await mail.next('gil@example.org')));
      expect(
        asJson(await withPassword(gil, 'POST', '/account/3pid/add', { client_secret: 's', sid }, 'password 1 of gil')),
      ).toMatchObject({ status: 400, errcode: 'M_THREEPID_AUTH_FAILED' });
    });

    it('may be phone numbers', async () => {
      const hal = await join('hal');
      const wish = { client_secret: 'phone', country: 'GB', phone_number: '07700900123', send_attempt: 1 };
      const text = await post('/account/3pid/msisdn/requestToken', wish);
      const sid = String(text['sid']);
      const add = async (): Promise<Json> =>
        asJson(
          await withPassword(hal, 'POST', '/account/3pid/add', { client_secret: 'phone', sid }, 'password 1 of hal'),
        );
      expect(await add()).toMatchObject({ status: 400 });
      const { pathname } = new URL(String(text['submit_url']));
      expect(await post(pathname, { sid, client_secret: 'phone', token: numbers.codeOf(sid) })).toEqual({
        status: 200,
        success: true,
      });
      expect(await add()).toEqual({ status: 200 });
      expect(await add()).toMatchObject({ status: 400 });
      expect(await addresses(hal)).toEqual(['msisdn 447700900123']);
    });

    it('are published at identity servers with the user’s own token only, and not within our network', async () => {
      const ida = await join('ida');
      const body = { client_secret: 's', id_access_token: 'token', id_server: 'not a server name', sid: '1' };
      expect(asJson(await ida.request('POST', '/account/3pid/bind', body))).toMatchObject({
        status: 400,
        errcode: 'M_INVALID_PARAM',
      });
      expect(
        asJson(await ida.request('POST', '/account/3pid/bind', { ...body, id_access_token: undefined })),
      ).toMatchObject({ status: 400, errcode: 'M_MISSING_PARAM' });
      const { port } = new URL(numbers.url);
      const asked = numbers.requests.length;
      expect(
        asJson(await ida.request('POST', '/account/3pid/bind', { ...body, id_server: `127.0.0.1:${port}` })),
      ).toMatchObject({ status: 502 });
      expect(numbers.requests).toHaveLength(asked);
      expect(
        asJson(await ida.request('POST', '/account/3pid/unbind', { medium: 'email', address: 'a@example.org' })),
      ).toEqual({ status: 200, id_server_unbind_result: 'no-support' });
    });
  });

  describe('deactivation', () => {
    it('takes a confirmation, and with it everything', async () => {
      const jan = await join('jan');
      const kim = await join('kim');
      await addEmail(jan, 'jan@example.org', 'password 1 of jan');
      await jan.request('PUT', `/profile/${jan.userId}/displayname`, { displayname: 'Jan the Great' });
      await jan.request('PUT', `/user/${jan.userId}/account_data/org.example.x`, { secret: 1 });
      const { body } = await jan.request('POST', '/createRoom', { invite: [kim.userId] });
      const roomId = String(body['room_id']);
      await kim.request('POST', `/join/${roomId}`, {});
      const { session } = await challengeOf(jan.request('POST', '/account/deactivate', { erase: true }));
      // Nobody else can confirm, nor can another operation.
      const auth = { type: 'm.login.password', session, password: 'password 1 of kim' };
      expect(asJson(await kim.request('POST', '/account/deactivate', { erase: true, auth }))).toMatchObject({
        status: 403,
      });
      expect((await jan.request('POST', '/account/deactivate', { erase: false, auth })).status).toBe(403);
      const done = await jan.request('POST', '/account/deactivate', {
        erase: true,
        auth: { ...auth, password: 'password 1 of jan' },
      });
      expect(asJson(done)).toEqual({ status: 200, id_server_unbind_result: 'success' });
      expect((await jan.request('GET', '/account/whoami')).status).toBe(401);
      const members = await kim.request<{ joined: Json }>('GET', `/rooms/${roomId}/joined_members`);
      expect(Object.keys(members.body.joined)).toEqual([kim.userId]);
      const profile = await kim.request('GET', `/profile/${jan.userId}`);
      expect(JSON.stringify(profile.body)).not.toContain('Great');
      // The address is free for somebody else.
      expect(await addEmail(kim, 'jan@example.org', 'password 1 of kim')).toEqual({ status: 200 });
    });
  });

  it('has the server of numbers asked no more than the limits allow', async () => {
    const rare = (burst: number) => ({ per_second: 0.0001, burst_count: burst });
    const limited = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        account_threepid_delegates: { msisdn: numbers.url },
        rc_registration: rare(3),
        rc_3pid_validation: rare(3),
        rc_ui_auth: rare(12),
      },
    });
    const begin = async (secret: string, number: string): Promise<string> => {
      const body = { client_secret: secret, country: 'GB', phone_number: number, send_attempt: 1 };
      return String(asJson(await limited.request('POST', '/register/msisdn/requestToken', body))['sid']);
    };
    const submit = async (secret: string, sid: string, token: string): Promise<Json> => {
      const body = { client_secret: secret, sid, token };
      return asJson(await limited.request('POST', '/_matrix/client/unstable/add_threepid/msisdn/submit_token', body));
    };
    const tooMany = { status: 429, errcode: 'M_LIMIT_EXCEEDED' };
    try {
      const [first, second] = [await begin('one', '07700900200'), await begin('two', '07700900201')];
      // Somebody else, who guesses the id of a session alone, leaves its owner all tries.
      for (const _ of [1, 2, 3])
        expect(await submit('other', first, '000000')).toEqual({ status: 200, success: false });
      for (const _ of [1, 2, 3]) expect(await submit('one', first, '000000')).toEqual({ status: 200, success: false });
      // Identity servers that count their sessions may read an id in several spellings.
      for (const sid of [first, `0${first}`])
        expect(await submit('one', sid, numbers.codeOf(first))).toMatchObject(tooMany);
      expect(await submit('two', second, numbers.codeOf(second))).toEqual({ status: 200, success: true });

      // Three are left to the address: one begins a reset of a password, and two prove nothing for it.
      const wish = { new_password: 'password 2 of nobody' };
      const { session } = await challengeOf(limited.request('POST', '/account/password', wish));
      const asked = numbers.requests.length;
      const auth = { type: 'm.login.msisdn', session, threepid_creds: { sid: 'guess', client_secret: 's' } };
      const prove = async (): Promise<Json> =>
        asJson(await limited.request('POST', '/account/password', { ...wish, auth }));
      for (const _ of [1, 2]) expect(await prove()).toMatchObject({ status: 401, errcode: 'M_NO_VALID_SESSION' });
      expect(await prove()).toMatchObject(tooMany);
      expect(await submit('three', second, '000000')).toMatchObject(tooMany);
      expect(numbers.requests).toHaveLength(asked + 2);
    } finally {
      await limited.stop();
    }
  });

  it('mails each address no more than the limits allow', async () => {
    const limited = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      clock: new ForwardClock(),
      settings: {
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
        rc_3pid_validation: { per_second: 0.003, burst_count: 3 },
      },
    });
    try {
      const ask = async (attempt: number): Promise<Json> =>
        asJson(
          await limited.request('POST', '/register/email/requestToken', {
            client_secret: `s${attempt}`,
            email: 'much@example.org',
            send_attempt: attempt,
          }),
        );
      for (const attempt of [1, 2, 3]) expect(await ask(attempt)).toMatchObject({ status: 200 });
      expect(await ask(4)).toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
      for (const _ of [1, 2, 3]) await mail.next('much@example.org');
    } finally {
      await limited.stop();
    }
  });
});

describe.each(['sqlite', 'postgres'] as const)('capabilities (%s)', (kind) => {
  const show = async (settings: Json): Promise<Json> => {
    const homeserver = await createTestHomeserver({ database: kind, fetch: validatedFetch, settings });
    try {
      const user = await homeserver.registerUser('ann');
      expect((await homeserver.request('GET', '/capabilities')).status).toBe(401);
      expect((await user.request('GET', '/capabilities')).body).toEqual(
        (await user.request('GET', '/_matrix/client/r0/capabilities')).body,
      );
      return (await user.request<{ capabilities: Json }>('GET', '/capabilities')).body.capabilities;
    } finally {
      await homeserver.stop();
    }
  };

  it('are the stable ones, without those that are gone', async () => {
    const capabilities = await show({});
    expect(capabilities).toMatchObject({
      'm.change_password': { enabled: true },
      'm.set_displayname': { enabled: true },
      'm.set_avatar_url': { enabled: true },
      'm.3pid_changes': { enabled: true },
      'm.room_versions': { default: expect.any(String), available: { '11': 'stable', '12': 'stable' } },
    });
    expect(Object.keys(capabilities).filter((name) => name.startsWith('org.matrix.msc3283'))).toEqual([]);
  });

  it('let passwords be changed that serve as a confirmation alone', async () => {
    const homeserver = await createTestHomeserver({
      ...{ database: kind, fetch: validatedFetch },
      settings: { password_config: { enabled: 'only_for_reauth' } },
    });
    try {
      const user = await homeserver.registerUser('ann', 'wonderland');
      const { body } = await user.request<{ capabilities: Json }>('GET', '/capabilities');
      expect(body.capabilities['m.change_password']).toEqual({ enabled: true });
      const auth = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'ann' }, password: 'wonderland' };
      expect(await user.request('POST', '/account/password', { new_password: 'another one', auth })).toMatchObject({
        status: 200,
      });
    } finally {
      await homeserver.stop();
    }
  });

  it('follow the settings, and so do the endpoints', async () => {
    const homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        enable_set_displayname: false,
        enable_set_avatar_url: false,
        enable_3pid_changes: false,
        password_config: { localdb_enabled: false },
        login_via_existing_session: { enabled: true },
      },
    });
    try {
      const user = await homeserver.registerUser('ann');
      const { body } = await user.request<{ capabilities: Json }>('GET', '/capabilities');
      expect(body.capabilities).toMatchObject({
        'm.change_password': { enabled: false },
        'm.set_displayname': { enabled: false },
        'm.set_avatar_url': { enabled: false },
        'm.3pid_changes': { enabled: false },
        'm.get_login_token': { enabled: true },
      });
      // What was never set may be.
      await user.request('PUT', `/profile/${user.userId}/avatar_url`, { avatar_url: 'mxc://a/b' });
      for (const [method, path, content] of [
        ['PUT', `/profile/${user.userId}/displayname`, { displayname: 'x' }],
        ['PUT', `/profile/${user.userId}/avatar_url`, { avatar_url: 'mxc://a/c' }],
        ['POST', '/account/3pid/add', { client_secret: 's', sid: '1' }],
        ['POST', '/account/3pid/delete', { medium: 'email', address: 'a@example.org' }],
        ['POST', '/account/3pid/email/requestToken', { client_secret: 's', email: 'a@example.org', send_attempt: 1 }],
        ['POST', '/account/password', { new_password: 'x' }],
      ] as const)
        expect([path, asJson(await user.request(method, path, content))]).toMatchObject([
          path,
          { status: 403, errcode: 'M_FORBIDDEN' },
        ]);
    } finally {
      await homeserver.stop();
    }
  });
});
