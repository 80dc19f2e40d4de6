import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { ThreepidService } from '@rookery/users';
import { validatedFetch } from '../../support/openapi.js';
import {
  asJson,
  challengeOf,
  expectSafe,
  type Json,
  linkOf,
  type MailServer,
  openPage,
  startMailServer,
  withPassword,
} from './support.js';

const wide = { per_second: 1000, burst_count: 1000 };

describe.each(['sqlite', 'postgres'] as const)('attacks on accounts (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  let ann: TestUser;
  let eve: TestUser;

  beforeAll(async () => {
    mail = await startMailServer();
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
        request_token_inhibit_3pid_errors: true,
        inhibit_user_in_use_error: true,
        rc_3pid_validation: wide,
        // As expensive as in real life, so that a shortcut would be seen.
        bcrypt_rounds: 10,
      },
    });
    ann = await homeserver.registerUser('ann');
    eve = await homeserver.registerUser('eve');
    await homeserver.server.service(ThreepidService).add(ann.userId, 'email', 'ann@example.org', Date.now(), {});
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
  });

  const post = async (path: string, body: Json): Promise<Json> => asJson(await homeserver.request('POST', path, body));
  const login = (identifier: Json, password: string): Promise<Json> =>
    post('/login', { type: 'm.login.password', identifier, password });
  const named = (user: string): Json => ({ type: 'm.id.user', user });

  it('does not tell by its words who has an account', async () => {
    const refused = await login(named('ann'), 'guess');
    expect(refused).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    for (const identifier of [
      named('nobody'),
      named('@nobody:rookery.test'),
      named('@ann:elsewhere.org'),
      named('a'.repeat(300)),
      { type: 'm.id.thirdparty', medium: 'email', address: 'ann@example.org' },
      { type: 'm.id.thirdparty', medium: 'email', address: 'nobody@example.org' },
    ])
      expect(await login(identifier, 'guess')).toEqual(refused);
    for (const purpose of ['register', 'account/password', 'account/3pid']) {
      const ask = (email: string): Promise<Json> =>
        post(`/${purpose}/email/requestToken`, { client_secret: purpose.replace('/', '-'), email, send_attempt: 1 });
      const [known, unknown] = [await ask('ann@example.org'), await ask(`nobody@${purpose.replace('/', '')}.org`)];
      expect([known, unknown]).toEqual([
        { status: 200, sid: expect.stringMatching(/^[A-Za-z]{24}$/) },
        { status: 200, sid: expect.stringMatching(/^[A-Za-z]{24}$/) },
      ]);
    }
    for (const name of ['ann', 'free'])
      expect(asJson(await homeserver.request('GET', `/register/available?username=${name}`))).toEqual({
        status: 200,
        available: true,
      });
    const { session } = await challengeOf(homeserver.request('POST', '/register', { username: 'ann', password: 'x' }));
    expect(typeof session).toBe('string');
  });

  it('does not tell by its time who has an account', async () => {
    // The shortest of many, taken in turn: what else the machine does only makes an answer later.
    const work = async (identifier: Json): Promise<number> => {
      const before = performance.now();
      await login(identifier, 'guess');
      return performance.now() - before;
    };
    const unknown = { type: 'm.id.thirdparty', medium: 'email', address: 'nobody@example.org' };
    const claims = [named('ann'), named('nobody'), unknown];
    const least = claims.map(() => Infinity);
    const ratio = (): number => Math.min(...least.slice(1)) / least[0]!;
    // The hash of a password takes most of it; without one the answer would come many times faster, however often it is tried.
    for (let round = 0; round < 20 || (round < 200 && ratio() <= 0.6); round++)
      for (const [index, claim] of claims.entries()) least[index] = Math.min(least[index]!, await work(claim));
    expect(ratio()).toBeGreaterThan(0.6);
  });

  it('tells the owner of an address, and nobody else, that somebody tried it', async () => {
    await post('/register/email/requestToken', { client_secret: 'again', email: 'ann@example.org', send_attempt: 1 });
    const letter = await eventually(() =>
      mail.mails.find(
        ({ recipients, subject }) =>
          recipients.includes('ann@example.org') && subject === '[rookery.test] Email already in use',
      ),
    );
    expect(letter.text).not.toMatch(/submit_token/);
  });

  it('finishes no session that somebody else chose, began or holds', async () => {
    const path = '/account/deactivate';
    const begun = await challengeOf(eve.request('POST', path, {}));
    const auth = { type: 'm.login.password', password: 'password of ann' };
    // Fixation: Eve's session, brought by Ann.
    expect(asJson(await ann.request('POST', path, { auth: { ...auth, session: begun.session } }))).toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
    });
    // Borrowing: Ann's password in Eve's session.
    const own = { identifier: named('ann'), session: begun.session };
    expect(asJson(await eve.request('POST', path, { auth: { ...auth, ...own } }))).toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
    });
    for (const session of ['x', '', begun.session.slice(0, -1), `${begun.session}\0`, '../../x', 'x'.repeat(50_000)]) {
      const answer = await ann.request('POST', path, { auth: { ...auth, session } });
      expect([401, 403]).toContain(answer.status);
      expect(answer.body['session']).not.toBe(session);
    }
    // A session of an unauthenticated operation is none of a user's.
    const registration = await challengeOf(homeserver.request('POST', '/register', { username: 'r', password: 'x' }));
    expect((await ann.request('POST', path, { auth: { ...auth, session: registration.session } })).status).toBe(403);
    for (const user of [ann, eve]) expect((await user.request('GET', '/account/whoami')).status).toBe(200);
  });

  it('lets nobody around a stage', async () => {
    const path = '/account/deactivate';
    const { session } = await challengeOf(ann.request('POST', path, {}));
    for (const auth of [
      { type: 'm.login.dummy', session },
      { type: 'm.login.terms', session },
      { type: 'm.login.sso', session },
      { type: 'm.login.token', session, token: 'x' },
      { type: '__proto__', session },
      { type: 'constructor', session },
    ])
      expect(asJson(await ann.request('POST', path, { auth }))).toMatchObject({
        status: 400,
        errcode: 'M_UNRECOGNIZED',
      });
    for (const auth of [{ session }, { session, completed: ['m.login.password'] }, {}, null])
      expect((await ann.request('POST', path, { auth })).status).toBe(401);
    for (const auth of [
      [],
      'm.login.password',
      1,
      { session: 1 },
      { type: {} },
      { session, type: ['m.login.password'] },
    ])
      expect(asJson(await ann.request('POST', path, { auth }))).toMatchObject({ status: 400, errcode: 'M_BAD_JSON' });
    // A page of another stage does not pass the one that counts.
    await openPage(homeserver, '/_matrix/client/v3/auth/m.login.terms/fallback/web', {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ session }).toString(),
    });
    expect((await ann.request('POST', path, { auth: { session } })).status).toBe(401);
    expect((await ann.request('GET', '/account/whoami')).status).toBe(200);
  });

  it('counts a proof of an address once, for who made it', async () => {
    const email = 'proof@example.org';
    const { sid } = await post('/account/3pid/email/requestToken', { client_secret: 'secret', email, send_attempt: 1 });
    const creds = { client_secret: 'secret', sid };
    await openPage(homeserver, linkOf(await mail.next(email)));
    const add = async (user: TestUser, name: string, more: Json = {}): Promise<Json> =>
      asJson(await withPassword(user, 'POST', '/account/3pid/add', { ...creds, ...more }, `password of ${name}`));
    expect(await add(eve, 'eve', { client_secret: 'guess' })).toMatchObject({ status: 400 });
    expect(await add(eve, 'eve', { sid: 'x'.repeat(24) })).toMatchObject({ status: 400 });
    // Two at once: one gets it.
    const both = await Promise.all([add(ann, 'ann'), add(eve, 'eve')]);
    expect(both.map(({ status }) => status).sort()).toEqual([200, 400]);
    // Not even once the address is free again.
    for (const user of [ann, eve])
      await user.request('POST', '/account/3pid/delete', { medium: 'email', address: email });
    for (const [user, name] of [
      [ann, 'ann'],
      [eve, 'eve'],
    ] as const)
      expect(await add(user, name)).toMatchObject({ status: 400, errcode: 'M_THREEPID_AUTH_FAILED' });
  });

  it.each([
    'victim@example.org\r\nBcc: spam@example.org',
    'victim@example.org, other@example.org',
    'Victim <victim@example.org>',
    '"<script>alert(1)</script>"@example.org',
    'a@b@example.org',
    'victim@example.org\0',
    `${'a'.repeat(600)}@example.org`,
    '@example.org',
    'victim@',
    'vi\u202ectim@example.org',
  ])('writes no mail to %j', async (email) => {
    const before = mail.mails.length;
    const answer = await post('/register/email/requestToken', { client_secret: 's', email, send_attempt: 1 });
    expect(answer).toMatchObject({ status: 400 });
    expect(mail.mails).toHaveLength(before);
  });

  it('lets no markup of a user into pages and mails', async () => {
    const evil = '"><img src=x onerror=alert(1)>{{ 7*7 }}';
    for (const path of [
      `/_synapse/client/password_reset/email/submit_token?${new URLSearchParams({ sid: evil, client_secret: evil, token: evil }).toString()}`,
      `/_matrix/client/unstable/registration/email/submit_token?${new URLSearchParams({ sid: evil, client_secret: evil, token: evil }).toString()}`,
      `/_matrix/client/unstable/add_threepid/email/submit_token?${new URLSearchParams({ sid: evil, client_secret: evil, token: evil }).toString()}`,
    ]) {
      const page = await openPage(homeserver, path);
      expectSafe(page);
      expect(page.html).not.toContain('<img src=x');
      expect(page.html).not.toContain('49');
    }
    const reset = await openPage(
      homeserver,
      `/_synapse/client/password_reset/email/submit_token?${new URLSearchParams({ sid: evil, client_secret: 's', token: 't' }).toString()}`,
    );
    // No form carries on what no mail has said.
    expect(reset.status).toBe(400);
    expect(reset.html).not.toContain('<form');
    expectSafe(reset);
  });

  it('lets nobody write a header of an answer by the link to go on to', async () => {
    for (const nextLink of [
      'https://a.org/\r\nSet-Cookie: a=b',
      'https://a.org/\u202e',
      'javascript:alert(1)',
      '//a.org',
    ]) {
      const email = `next${nextLink.length}@example.org`;
      const wish = { client_secret: 'next', email, send_attempt: 1, next_link: nextLink };
      const begun = await post('/register/email/requestToken', wish);
      if (begun['status'] !== 200) {
        expect(begun).toMatchObject({ status: 400 });
        continue;
      }
      const page = await openPage(homeserver, linkOf(await mail.next(email)));
      expect(page.headers.get('set-cookie')).toBeNull();
      expect(page.headers.get('location') ?? '').toMatch(/^(?:https:\/\/a\.org\/[\x21-\x7e]*)?$/);
    }
  });

  it('looks at all of a long password', async () => {
    const start = 'a'.repeat(72);
    const body = { username: 'long', password: `${start}real`, auth: { type: 'm.login.dummy' } };
    expect(await post('/register', body)).toMatchObject({ status: 200 });
    expect(await login(named('long'), `${start}fake`)).toMatchObject({ status: 403 });
    expect(await login(named('long'), start)).toMatchObject({ status: 403 });
    expect(await login(named('long'), `${start}real`)).toMatchObject({ status: 200 });
    expect(await login(named('ann'), 'password of ann\0')).toMatchObject({ status: 403 });
    expect(await login(named('ann'), '')).toMatchObject({ status: 403 });
    expect(await login(named('ann'), 'x'.repeat(50_000))).toMatchObject({ status: 403 });
    expect(await login(named('ann'), 'x'.repeat(1_000_000))).toMatchObject({ status: 413 });
  });

  it.each(['аnn', 'ＡＮＮ', 'ann\u200b', 'ａnn', 'ann\u0301', 'K\u212aim', '@ann:rookery.test\u2024', 'ann ', '\tann'])(
    'takes %j for nobody’s name',
    async (name) => {
      expect(await login(named(name), 'password of ann')).toMatchObject({ status: 403 });
      expect(await post('/register', { username: name, password: 'x', auth: { type: 'm.login.dummy' } })).toMatchObject(
        {
          status: 400,
          errcode: 'M_INVALID_USERNAME',
        },
      );
    },
  );

  it('guesses of tokens get nowhere, and no token shows in an answer to somebody else', async () => {
    for (const token of [
      '',
      'x',
      ann.accessToken.slice(0, -1),
      `${ann.accessToken} `,
      ann.accessToken.toUpperCase(),
      `%00${ann.accessToken}`,
      'null',
      '1',
      "' OR 1=1 --",
    ]) {
      const answer = await homeserver.request('GET', `/account/whoami?access_token=${encodeURIComponent(token)}`);
      expect([400, 401]).toContain(answer.status);
    }
    const { body } = await ann.request('GET', '/devices');
    expect(JSON.stringify(body)).not.toContain(ann.accessToken);
  });
});

describe.each(['sqlite', 'postgres'] as const)('names of attackers (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;
  const evil =
    'Bob"><img src=x onerror=alert(1)>{{ 7*7 }}\u202egpj.exe\r\nBcc: eve@evil.org\r\n\r\nPay at https://evil.org\u2066';

  beforeAll(async () => {
    mail = await startMailServer();
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        public_baseurl: 'https://chat.example/',
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
        account_validity: { enabled: true, period: '30d', renew_at: '7d' },
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
  });

  it('stay names in the mails of this server: no markup, no header, no line of their own, not turned around', async () => {
    const bob = await homeserver.registerUser('bob');
    const named = await bob.request('PUT', `/profile/${bob.userId}/displayname`, { displayname: evil });
    expect(named.status).toBe(200);
    await homeserver.server.service(ThreepidService).add(bob.userId, 'email', 'bob@example.org', Date.now(), {});
    const sent = await bob.request('POST', '/_matrix/client/unstable/account_validity/send_mail', {});
    expect(sent.status).toBe(200);
    const letter = await mail.next('bob@example.org');
    expect(letter.recipients).toEqual(['bob@example.org']);
    expect(letter.raw).not.toMatch(/^Bcc:/im);
    const { html = '', text = '' } = letter;
    for (const part of [html, text]) {
      expect(part).toContain('gpj.exe');
      expect(part).toContain('7*7');
      expect(part).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
      expect(part).not.toMatch(/^\s*(?:Bcc|Pay)/m);
    }
    expect(html).not.toContain('<img src=x');
  });
});
