import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { ConsentService, findRegistrationToken, insertRegistrationToken } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import {
  asJson,
  type Challenge,
  challengeOf,
  expectSafe,
  type Json,
  linkOf,
  type MailServer,
  openPage,
  type Page,
  startMailServer,
  startNumberServer,
  startWebServer,
  submitForm,
  ForwardClock,
} from './support.js';

const fallback = (stage: string, session: string): string =>
  `/_matrix/client/v3/auth/${stage}/fallback/web?${new URLSearchParams({ session }).toString()}`;

describe.each(['sqlite', 'postgres'] as const)('interactive auth (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let captchas: Awaited<ReturnType<typeof startWebServer>>;
  let captchasAreDown = false;
  const clock = new ForwardClock();

  beforeAll(async () => {
    captchas = await startWebServer(({ body }) =>
      captchasAreDown
        ? { status: 503, body: {} }
        : { body: { success: new URLSearchParams(body).get('response') === 'human' } },
    );
    homeserver = await createTestHomeserver({
      database: kind,
      clock,
      fetch: validatedFetch,
      settings: {
        enable_registration_captcha: true,
        recaptcha_public_key: 'public"><script>',
        recaptcha_private_key: 'private',
        recaptcha_siteverify_api: `${captchas.url}/siteverify`,
        registration_requires_token: true,
        user_consent: {
          template_dir: new URL('./fixtures/consent', import.meta.url).pathname,
          version: '1.0',
          require_at_registration: true,
          policy_name: 'House rules',
        },
        rc_registration_token_validity: { per_second: 1000, burst_count: 1000 },
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await captchas?.stop();
  });

  const database = (): Database => homeserver.server.service(Database);
  const addToken = (token: string, uses?: number, lifetimeMs?: number): Promise<boolean> =>
    database().write(
      (tx) =>
        insertRegistrationToken(tx, token, uses, lifetimeMs === undefined ? undefined : clock.nowMs() + lifetimeMs),
      { name: 'test' },
    );
  const isValid = async (token: string): Promise<unknown> => {
    const query = new URLSearchParams({ token }).toString();
    const { body } = await homeserver.request(
      'GET',
      `/_matrix/client/v1/register/m.login.registration_token/validity?${query}`,
    );
    const old = await homeserver.request(
      'GET',
      `/_matrix/client/unstable/org.matrix.msc3231/register/org.matrix.msc3231.login.registration_token/validity?${query}`,
    );
    expect(old.body).toEqual(body);
    return body['valid'];
  };

  /** A registration that is under way. */
  const begin = async (username: string) => {
    const body = { username, password: 'correct horse' };
    const challenge = await challengeOf(homeserver.request('POST', '/register', body));
    const attempt = async (auth: Json): Promise<Json> =>
      asJson(await homeserver.request('POST', '/register', { ...body, auth: { session: challenge.session, ...auth } }));
    return { ...challenge, attempt };
  };

  it('lists the stages in order, the captcha before the next one, with what clients need to know', async () => {
    const { flows, params } = await begin('order');
    expect(flows).toEqual([
      { stages: ['m.login.registration_token', 'm.login.recaptcha', 'm.login.dummy', 'm.login.terms'] },
    ]);
    expect(params).toEqual({
      'm.login.recaptcha': { public_key: 'public"><script>' },
      'm.login.terms': {
        policies: {
          privacy_policy: {
            version: '1.0',
            en: { name: 'House rules', url: 'https://rookery.test/_matrix/consent?v=1.0' },
          },
        },
      },
    });
  });

  it('goes through every stage by JSON, none of which can be left out', async () => {
    await addToken('json', 1);
    const { attempt } = await begin('json');
    const missing = { status: 401, completed: expect.any(Array) };
    expect(await attempt({ type: 'm.login.dummy' })).toMatchObject({ ...missing, completed: ['m.login.dummy'] });
    expect(await attempt({ type: 'm.login.terms' })).toMatchObject(missing);
    expect(await attempt({ type: 'm.login.registration_token' })).toMatchObject({
      status: 401,
      errcode: 'M_MISSING_PARAM',
    });
    expect(await attempt({ type: 'm.login.registration_token', token: 'guess' })).toMatchObject({
      status: 401,
      errcode: 'M_UNAUTHORIZED',
    });
    expect(await attempt({ type: 'm.login.registration_token', token: 'json' })).toMatchObject(missing);
    expect(await attempt({ type: 'm.login.recaptcha' })).toMatchObject({ status: 401, errcode: 'M_CAPTCHA_NEEDED' });
    expect(await attempt({ type: 'm.login.recaptcha', response: 'robot' })).toMatchObject({
      status: 401,
      errcode: 'M_CAPTCHA_INVALID',
    });
    // Neither asking again without a stage nor repeating one that was passed replaces the one that is missing.
    expect(await attempt({})).toMatchObject(missing);
    expect(await attempt({ type: 'm.login.dummy' })).toMatchObject({
      status: 401,
      completed: expect.not.arrayContaining(['m.login.recaptcha']),
    });
    expect(await attempt({ type: 'm.login.recaptcha', response: 'human' })).toMatchObject({
      status: 200,
      user_id: '@json:rookery.test',
    });
    expect(captchas.requests.at(-1)).toMatchObject({ method: 'POST', path: '/siteverify' });
    expect(Object.fromEntries(new URLSearchParams(captchas.requests.at(-1)?.body))).toEqual({
      secret: 'private',
      response: 'human',
      remoteip: '127.0.0.1',
    });
    expect(await findRegistrationToken(database(), 'json')).toMatchObject({ pending: 0, completed: 1 });
    expect(await isValid('json')).toBe(false);
  });

  it('goes through every stage that has a page by its page, told why when it failed', async () => {
    await addToken('page', 1);
    const { session, attempt } = await begin('page');
    const at = (stage: string): Promise<Page> => openPage(homeserver, fallback(stage, session));

    const token = await at('m.login.registration_token');
    expectSafe(token);
    expect(token.html).not.toContain('role="alert"');
    const wrong = await submitForm(homeserver, token, { token: '<b>guess</b>' });
    expect(wrong.status).toBe(403);
    expect(wrong.html).toContain('role="alert"');
    expect(wrong.html).not.toContain('<b>guess');
    expect((await submitForm(homeserver, wrong, { token: 'page' })).html).toContain('onAuthDone');

    const captcha = await at('m.login.recaptcha');
    expect(captcha.html).toContain('data-sitekey="public&quot;&gt;&lt;script&gt;"');
    expect(captcha.headers.get('content-security-policy')).toMatch(/script-src 'nonce-[\w-]+' 'strict-dynamic'(;|$)/);
    const unsolved = await submitForm(homeserver, captcha, { 'g-recaptcha-response': 'robot' });
    expect(unsolved.html).toContain('role="alert"');
    expect((await submitForm(homeserver, unsolved, { 'g-recaptcha-response': 'human' })).status).toBe(200);

    const terms = await at('m.login.terms');
    expectSafe(terms);
    expect(terms.html).toContain('href="https://rookery.test/_matrix/consent?v=1.0"');
    expect(terms.html).toContain('>House rules</a>');
    expect((await submitForm(homeserver, terms)).status).toBe(200);

    expect(await attempt({})).toMatchObject({
      status: 401,
      completed: expect.arrayContaining(['m.login.registration_token', 'm.login.recaptcha', 'm.login.terms']),
    });
    expect(await attempt({ type: 'm.login.dummy' })).toMatchObject({ status: 200 });
    const consent = homeserver.server.service(ConsentService);
    expect(await consent.isMissing('@page:rookery.test')).toBe(false);
  });

  it('has no page for what needs none, nor for sessions that are none', async () => {
    const { session } = await begin('nopage');
    for (const [stage, id] of [
      ['m.login.dummy', session],
      ['m.login.password', session],
      ['m.login.email.identity', session],
      ['org.example.unknown', session],
      ['m.login.terms', 'made-up'],
      ['m.login.terms', `${session}x`],
    ] as const) {
      expect((await openPage(homeserver, fallback(stage, id))).status).toBe(404);
      const posted = await openPage(homeserver, fallback(stage, id), {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: `session=${encodeURIComponent(id)}`,
      });
      expect(posted.status).toBe(404);
    }
    expect((await openPage(homeserver, '/_matrix/client/v3/auth/m.login.terms/fallback/web')).status).toBe(400);
  });

  it('lets nobody in because the captcha service is down', async () => {
    const { attempt } = await begin('down');
    captchasAreDown = true;
    try {
      expect(await attempt({ type: 'm.login.recaptcha', response: 'human' })).toMatchObject({ status: 502 });
    } finally {
      captchasAreDown = false;
    }
    expect(await attempt({})).toMatchObject({ status: 401 });
    expect(await attempt({})).not.toHaveProperty('completed');
  });

  it('knows which registration tokens are good', async () => {
    await addToken('soon', undefined, 60_000);
    await addToken('none', 0);
    expect([
      await isValid('soon'),
      await isValid('none'),
      await isValid('never'),
      await isValid('x'.repeat(65)),
    ]).toEqual([true, false, false, false]);
    clock.advance(60_001);
    expect(await isValid('soon')).toBe(false);
    const { attempt } = await begin('late');
    expect(await attempt({ type: 'm.login.registration_token', token: 'soon' })).toMatchObject({
      errcode: 'M_UNAUTHORIZED',
    });
  });

  it('goes on after a restart, with what was proved before it', async () => {
    await addToken('restart', 1);
    const { session, attempt } = await begin('restart');
    await attempt({ type: 'm.login.registration_token', token: 'restart' });
    await submitForm(homeserver, await openPage(homeserver, fallback('m.login.terms', session)));
    await homeserver.restart();
    await attempt({ type: 'm.login.recaptcha', response: 'human' });
    expect(await attempt({ type: 'm.login.dummy' })).toMatchObject({ status: 200 });
  });

  it('forgets a session after two days', async () => {
    const { session, attempt } = await begin('slow');
    clock.advance(48 * 3_600_000 + 1);
    const answer = await attempt({ type: 'm.login.dummy' });
    expect(answer).toMatchObject({ status: 401, session: expect.any(String), errcode: 'M_UNKNOWN' });
    expect(answer['session']).not.toBe(session);
    expect((await openPage(homeserver, fallback('m.login.terms', session))).status).toBe(404);
  });

  it('shows the policy, and takes a user’s word for it once they came by their own link', async () => {
    const consent = homeserver.server.service(ConsentService);
    await addToken('policy', 1);
    const { attempt } = await begin('policy');
    await attempt({ type: 'm.login.registration_token', token: 'policy' });
    await attempt({ type: 'm.login.recaptcha', response: 'human' });
    await attempt({ type: 'm.login.dummy' });
    expect(await attempt({ type: 'm.login.terms' })).toMatchObject({ status: 200 });
    await database().write(
      (tx) => tx.run('UPDATE users SET consent_version = NULL WHERE name = ?', ['@policy:rookery.test']),
      {
        name: 'test',
      },
    );
    const open = await openPage(homeserver, '/_matrix/consent?v=1.0');
    expect(open).toMatchObject({ status: 200, html: expect.stringContaining('for everybody') });
    expect((await openPage(homeserver, '/_matrix/consent?v=0.9')).status).toBe(404);
    expect((await openPage(homeserver, '/_matrix/consent?v=..%2F..%2Fsecret')).status).toBe(404);
    expect((await openPage(homeserver, `/_matrix/consent?v=1.0&u=policy&h=${'0'.repeat(64)}`)).status).toBe(403);
    const uri = new URL(consent.uriFor('@policy:rookery.test'));
    uri.searchParams.set('v', '1.0');
    const own = await openPage(homeserver, uri);
    expect(await submitForm(homeserver, own, { u: 'page' })).toMatchObject({ status: 403 });
    expect(await submitForm(homeserver, own, { v: '2.0' })).toMatchObject({ status: 404 });
    expect((await submitForm(homeserver, own)).status).toBe(200);
    expect((await openPage(homeserver, uri)).html).toContain('has agreed to version 1.0');
  });
});

describe.each(['sqlite', 'postgres'] as const)('registration with addresses (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  let numbers: Awaited<ReturnType<typeof startNumberServer>>;

  beforeAll(async () => {
    mail = await startMailServer();
    numbers = await startNumberServer();
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        public_baseurl: 'https://chat.example/',
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: '%(app)s <noreply@rookery.test>' },
        account_threepid_delegates: { msisdn: numbers.url },
        registrations_require_3pid: ['email', 'msisdn'],
        allowed_local_3pids: [
          { medium: 'email', pattern: '^[^@]+@example\\.org$' },
          { medium: 'msisdn', pattern: '^44' },
        ],
        rc_3pid_validation: { per_second: 1000, burst_count: 1000 },
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
    await numbers?.stop();
  });

  const flow = ['m.login.msisdn', 'm.login.email.identity'];
  const requestMail = async (email: string, secret: string, more: Json = {}): Promise<Json> =>
    asJson(
      await homeserver.request('POST', '/register/email/requestToken', {
        client_secret: secret,
        email,
        send_attempt: 1,
        ...more,
      }),
    );
  const requestCode = async (number: string, secret: string): Promise<Json> =>
    asJson(
      await homeserver.request('POST', '/register/msisdn/requestToken', {
        client_secret: secret,
        country: 'GB',
        phone_number: number,
        send_attempt: 1,
      }),
    );

  it('takes both proofs, each once, and gives the account the addresses', async () => {
    const body = { username: 'both', password: 'correct horse' };
    const challenge: Challenge = await challengeOf(homeserver.request('POST', '/register', body));
    expect(challenge.flows).toEqual([{ stages: flow }]);
    const attempt = async (auth: Json): Promise<Json> =>
      asJson(await homeserver.request('POST', '/register', { ...body, auth: { session: challenge.session, ...auth } }));

    const wish = await requestMail('Both@Example.org', 'mail-secret');
    const mailCreds = { sid: wish['sid'], client_secret: 'mail-secret' };
    const byMail = { type: 'm.login.email.identity', threepid_creds: mailCreds };
    expect(await attempt(byMail)).toMatchObject({ status: 401, errcode: 'M_THREEPID_AUTH_FAILED' });
    const letter = await mail.next('both@example.org');
    expect(letter.subject).toBe('[rookery.test] Validate your email');
    const link = linkOf(letter);
    expect(link.href).toMatch(
      /^https:\/\/chat\.example\/_matrix\/client\/unstable\/registration\/email\/submit_token\?/,
    );
    const done = await openPage(homeserver, link);
    expect(done.status).toBe(200);
    expectSafe(done);
    // Neither another secret nor another session can use it.
    expect(await attempt({ ...byMail, threepid_creds: { ...mailCreds, client_secret: 'guess' } })).toMatchObject({
      errcode: 'M_THREEPID_AUTH_FAILED',
    });
    expect(await attempt(byMail)).toMatchObject({ status: 401, completed: ['m.login.email.identity'] });

    const text = await requestCode('07700 900001', 'phone-secret');
    expect(text).toMatchObject({
      status: 200,
      msisdn: '447700900001',
      submit_url: expect.stringContaining('https://chat.example/'),
    });
    const sid = String(text['sid']);
    const byPhone = { type: 'm.login.msisdn', threepid_creds: { sid, client_secret: 'phone-secret' } };
    expect(await attempt(byPhone)).toMatchObject({ status: 401, completed: ['m.login.email.identity'] });
    const { pathname } = new URL(String(text['submit_url']));
    const submit = async (token: string): Promise<unknown> =>
      (await homeserver.request('POST', pathname, { sid, client_secret: 'phone-secret', token })).body;
    expect(await submit('000000')).toEqual({ success: false });
    expect(await submit(numbers.codeOf(sid))).toEqual({ success: true });
    const answer = await attempt(byPhone);
    expect(answer).toMatchObject({ status: 200, user_id: '@both:rookery.test' });
    const { body: own } = await homeserver.request<{ threepids: Json[] }>(
      'GET',
      '/account/3pid',
      undefined,
      String(answer['access_token']),
    );
    expect(own.threepids.map(({ medium, address }) => `${String(medium)} ${String(address)}`).sort()).toEqual([
      'email both@example.org',
      'msisdn 447700900001',
    ]);

    // The proofs are used up.
    const again = { username: 'again', password: 'correct horse' };
    const { session } = await challengeOf(homeserver.request('POST', '/register', again));
    for (const auth of [byMail, byPhone]) {
      const refused = asJson(await homeserver.request('POST', '/register', { ...again, auth: { session, ...auth } }));
      expect(refused).toMatchObject({ status: 401 });
      expect(refused).not.toHaveProperty('completed', [auth.type]);
    }
  });

  it('proves nothing that the settings do not allow, or that somebody has', async () => {
    expect(await requestMail('both@example.org', 'x')).toMatchObject({ status: 400, errcode: 'M_THREEPID_IN_USE' });
    expect(await requestMail('both@elsewhere.org', 'x')).toMatchObject({ status: 403, errcode: 'M_THREEPID_DENIED' });
    expect(await requestCode('07700 900001', 'x')).toMatchObject({ status: 400, errcode: 'M_THREEPID_IN_USE' });
    expect(await requestMail('no address', 'x')).toMatchObject({ status: 400 });
    expect(await requestMail('free@example.org', 'not valid!')).toMatchObject({
      status: 400,
      errcode: 'M_INVALID_PARAM',
    });
  });

  it.each(['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,hi', '//evil.example', 'https://a@b.example/'])(
    'leads from a link to nowhere like %s',
    async (nextLink) => {
      expect(await requestMail('free@example.org', 'next', { next_link: nextLink })).toMatchObject({
        status: 400,
        errcode: 'M_INVALID_PARAM',
      });
    },
  );

  it('leads to where the client wanted, says when a link does not hold, and mails again when asked again', async () => {
    const wish = await requestMail('next@example.org', 'next', { next_link: 'https://client.example/done?x=1' });
    const first = linkOf(await mail.next('next@example.org'));
    const same = await requestMail('next@example.org', 'next', { next_link: 'https://client.example/done?x=1' });
    expect(same['sid']).toBe(wish['sid']);
    const more = await requestMail('next@example.org', 'next', { send_attempt: 2 });
    expect(more['sid']).toBe(wish['sid']);
    const second = linkOf(await mail.next('next@example.org'));
    expect(second.searchParams.get('token')).not.toBe(first.searchParams.get('token'));
    expect(mail.mails.filter(({ recipients }) => recipients.includes('next@example.org'))).toHaveLength(2);
    for (const [name, value] of [
      ['token', 'guess'],
      ['sid', 'guess'],
      ['client_secret', 'guess'],
      ['token', '<script>alert(1)</script>'],
    ] as const) {
      const wrong = new URL(first);
      wrong.searchParams.set(name, value);
      const page = await openPage(homeserver, wrong);
      expect(page.status).toBe(400);
      expectSafe(page);
      expect(page.html).not.toContain('<script>alert');
    }
    const led = await openPage(homeserver, first);
    expect([led.status, led.headers.get('location')]).toEqual([302, 'https://client.example/done?x=1']);
  });
});
