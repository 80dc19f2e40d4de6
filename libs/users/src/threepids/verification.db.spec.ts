import { databaseMigrations } from '@rookery/database';
import type { OutboundRequest } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { MailRequest } from '@rookery/templates';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { PasswordReset } from '../uia/password-reset.service.js';
import { PasswordService } from '../accounts/password.service.js';
import { RegistrationService } from '../registration/registration.service.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { UiaService } from '../uia/uia.service.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { EmailVerification } from './email-verification.service.js';
import { RequestTokenService } from './request-token.service.js';
import { SessionService } from '../sessions/session.service.js';
import { ThreepidController } from '../http/threepid.controller.js';
import { ThreepidService } from './threepid.service.js';

type Outcome = { status: number; body: JsonObject };

const outcome = async (promise: Promise<unknown>): Promise<Outcome> => {
  try {
    return { status: 200, body: ((await promise) ?? {}) as JsonObject };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return { status: error.status, body: error.toBody() };
  }
};

eachDatabase('proofs of addresses', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  const mails: MailRequest[] = [];
  const asked: OutboundRequest[] = [];
  let foreign: { status: number; body: unknown } = { status: 200, body: {} };
  let users: UsersFixture;
  let secretive: UsersFixture;

  const request = (path: string, body: JsonObject, fixture = users) =>
    fixture.request('POST', `/_matrix/client/v3${path}`, body);
  const ask = (
    purpose: 'registration' | 'add_threepid' | 'password_reset',
    email: string,
    more: object = {},
    fixture = users,
  ) => {
    const body = { client_secret: 'secret', email, send_attempt: 1, ...more };
    return outcome(fixture.get(RequestTokenService).forEmail(purpose, body, request('/x', { ...body })));
  };
  const link = (): Record<'sid' | 'token' | 'client_secret', string> =>
    Object.fromEntries(new URL(mails.at(-1)!.values['link'] as string).searchParams) as never;
  const follow = async (fixture = users): Promise<string | undefined> => {
    const { sid, client_secret: clientSecret, token } = link();
    return fixture.get(EmailVerification).submit(sid, clientSecret, token);
  };
  const registerWith = (username: string, threepidCreds: object, session?: string): Promise<Outcome> => {
    const body = {
      username,
      password: 'pw',
      auth: { type: 'm.login.email.identity', threepid_creds: threepidCreds, ...(session ? { session } : {}) },
    };
    return outcome(users.get(RegistrationService).register(request('/register', body), body));
  };

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const outbound = (one: OutboundRequest) => {
      asked.push(one);
      return foreign;
    };
    const settings = {
      public_baseurl: 'https://matrix.example.org/',
      registrations_require_3pid: ['email'],
      email: { smtp_host: '127.0.0.1', notif_from: 'Tests <tests@example.org>' },
      'account_threepid_delegates.msisdn': 'https://id.example.org',
    };
    users = await buildUsers({ database: test.database, clock, mails, outbound, settings });
    secretive = await buildUsers({
      database: test.database,
      clock,
      mails,
      outbound,
      settings: { ...settings, request_token_inhibit_3pid_errors: true },
    });
    await users.get(AccountService).register({
      localpart: 'owner',
      passwordHash: await users.get(PasswordService).hash('old password'),
      threepids: [{ medium: 'email', address: 'taken@example.org', validatedMs: 1 }],
      origin: {},
    });
  });
  afterAll(async () => {
    await users.close();
    await secretive.close();
  });
  beforeEach(() => void mails.splice(0));

  it('leads from the mail to an account with the address', async () => {
    const { body } = await ask('registration', 'New@Example.org');
    expect(mails).toMatchObject([
      {
        to: 'new@example.org',
        kind: 'registration',
        values: {
          link: expect.stringMatching(
            /^https:\/\/matrix\.example\.org\/_matrix\/client\/unstable\/registration\/email\/submit_token\?/,
          ),
        },
      },
    ]);
    const creds = { sid: body['sid'], client_secret: 'secret' };
    expect(await registerWith('mailed', creds)).toMatchObject({
      status: 401,
      body: { errcode: 'M_THREEPID_AUTH_FAILED' },
    });
    expect(await follow()).toBeUndefined();
    expect(await registerWith('mailed', creds)).toMatchObject({
      status: 200,
      body: { user_id: '@mailed:example.org' },
    });
    expect(await users.get(ThreepidService).userOf('email', 'new@example.org')).toBe('@mailed:example.org');
  });

  it('counts a proof once, whoever comes with it', async () => {
    const { body } = await ask('registration', 'once@example.org');
    await follow();
    const creds = { sid: body['sid'], client_secret: 'secret' };
    const results = await Promise.all(['p1', 'p2', 'p3'].map((name) => registerWith(name, creds)));
    expect(results.map((one) => one.status).sort()).toEqual([200, 401, 401]);
    expect(await registerWith('p4', creds)).toMatchObject({ status: 401 });
  });

  it('needs the client’s secret as well as the session, and the link’s token', async () => {
    const { body } = await ask('registration', 'guarded@example.org', { client_secret: 'mine' });
    const { sid, token } = link();
    const emails = users.get(EmailVerification);
    expect(await outcome(emails.submit(sid, 'guess', token))).toMatchObject({
      status: 400,
      body: { errcode: 'M_THREEPID_AUTH_FAILED' },
    });
    expect(await outcome(emails.submit(sid, 'mine', 'guess'))).toMatchObject({
      status: 400,
      body: { errcode: 'M_TOKEN_INCORRECT' },
    });
    expect(await outcome(emails.submit('nothing', 'mine', token))).toMatchObject({ status: 400 });
    expect(await outcome(emails.submit('a\0b', 'mine', token))).toMatchObject({ status: 400 });
    await emails.submit(sid, 'mine', token);
    expect(await registerWith('thief', { sid: body['sid'], client_secret: 'guess' })).toMatchObject({
      status: 401,
      body: { errcode: 'M_THREEPID_AUTH_FAILED' },
    });
    const dump = JSON.stringify([
      await test.database.query('SELECT * FROM threepid_validation_session'),
      await test.database.query('SELECT * FROM threepid_validation_token'),
    ]);
    expect(dump).not.toContain(token);
    expect(dump).not.toContain('"mine"');
  });

  it('does not take a proof for another purpose than the mail’s', async () => {
    const { body } = await ask('add_threepid', 'purpose@example.org');
    await follow();
    expect(await registerWith('purpose', { sid: body['sid'], client_secret: 'secret' })).toMatchObject({
      status: 401,
      body: { errcode: 'M_THREEPID_AUTH_FAILED' },
    });
  });

  it('lets a link expire, and a proof', async () => {
    await ask('registration', 'slow@example.org');
    await clock.advance(3_600_000);
    expect(await outcome(follow())).toMatchObject({ status: 400, body: { errcode: 'M_TOKEN_EXPIRED' } });
    const { body } = await ask('registration', 'slow@example.org', { send_attempt: 2 });
    await follow();
    await clock.advance(24 * 3_600_000 + 1);
    expect(await registerWith('slow', { sid: body['sid'], client_secret: 'secret' })).toMatchObject({ status: 401 });
  });

  it('mails once per attempt', async () => {
    const first = await ask('registration', 'again@example.org');
    const repeated = await ask('registration', 'again@example.org');
    expect([mails.length, repeated.body]).toEqual([1, first.body]);
    await ask('registration', 'again@example.org', { send_attempt: 2 });
    expect(mails).toHaveLength(2);
    await follow();
    await ask('registration', 'again@example.org', { send_attempt: 3 });
    expect(mails).toHaveLength(2);
  });

  it('tells whether an address is known, or not, as the settings say', async () => {
    expect(await ask('registration', 'taken@example.org')).toMatchObject({
      status: 400,
      body: { errcode: 'M_THREEPID_IN_USE' },
    });
    expect(await ask('add_threepid', 'Taken@Example.org')).toMatchObject({
      status: 400,
      body: { errcode: 'M_THREEPID_IN_USE' },
    });
    expect(await ask('password_reset', 'nobody@example.org')).toMatchObject({
      status: 400,
      body: { errcode: 'M_THREEPID_NOT_FOUND' },
    });
    expect(mails).toEqual([]);
    const shape = { status: 200, body: { sid: expect.stringMatching(/^[A-Za-z]{24}$/) as unknown } };
    expect(await ask('registration', 'taken@example.org', { client_secret: 's2' }, secretive)).toEqual(shape);
    expect(mails).toMatchObject([{ to: 'taken@example.org', kind: 'already_in_use' }]);
    expect(mails[0]!.values).toEqual({});
    expect(await ask('password_reset', 'nobody@example.org', { client_secret: 's2' }, secretive)).toEqual(shape);
    expect(await ask('password_reset', 'taken@example.org', { client_secret: 's2' }, secretive)).toEqual(shape);
    expect(mails.map((mail) => mail.to)).toEqual(['taken@example.org', 'taken@example.org']);
  });

  it.each([
    'file:///etc/passwd',
    'javascript:alert(1)',
    'data:text/html,x',
    '//evil.example',
    'https://user:pw@evil.example/',
    'nonsense',
  ])('refuses to lead on to %s', async (nextLink) => {
    expect(await ask('registration', 'next@example.org', { next_link: nextLink })).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM' },
    });
  });

  it('leads on to where the client wants, within the operator’s list', async () => {
    await ask('registration', 'onward@example.org', { next_link: 'https://app.example.org/?a=1#b' });
    expect(await follow()).toBe('https://app.example.org/?a=1#b');
    const listed = await buildUsers({
      database: test.database,
      clock,
      mails,
      settings: { next_link_domain_whitelist: ['app.example.org'] },
    });
    expect(
      (await ask('registration', 'l1@example.org', { next_link: 'https://app.example.org/' }, listed)).status,
    ).toBe(200);
    expect(
      (await ask('registration', 'l2@example.org', { next_link: 'https://app.example.org.evil.example/' }, listed))
        .status,
    ).toBe(400);
    await listed.close();
  });

  it('sets a new password for whoever proves the account’s address, and ends all sessions', async () => {
    const { body } = await ask('password_reset', 'taken@example.org', { client_secret: 'reset' });
    const creds = { sid: body['sid'], client_secret: 'reset' };
    const reset = (auth: object) => {
      const resetBody = { new_password: 'new password', auth: { type: 'm.login.email.identity', ...auth } };
      return outcome(users.get(PasswordReset).reset(request('/account/password', resetBody), resetBody));
    };
    expect(await reset({ threepid_creds: creds })).toMatchObject({
      status: 401,
      body: { errcode: 'M_THREEPID_AUTH_FAILED' },
    });
    await follow();
    expect((await reset({ threepid_creds: creds })).status).toBe(200);
    const accounts = users.get(AccountService);
    const account = await accounts.find('@owner:example.org');
    expect([
      await accounts.matchingHash(account, 'new password'),
      await accounts.matchingHash(account, 'old password'),
    ]).toEqual([expect.any(String), undefined]);
    expect((await reset({ threepid_creds: creds })).status).toBe(401);
  });

  it('adds a proved address to an account once, and to nobody else’s', async () => {
    const controller = users.get(ThreepidController);
    const sessions = users.get(SessionService);
    const requesterOf = async (userId: string) => {
      const owner = (await sessions.findOwner((await sessions.open({ userId })).accessToken))!;
      return { ...owner, accessTokenId: owner.tokenId };
    };
    const owner = await requesterOf('@owner:example.org');
    const { body } = await ask('add_threepid', 'second@example.org', { client_secret: 'adding' });
    const add = (auth?: object) => {
      const addBody = { sid: body['sid'] as string, client_secret: 'adding', ...(auth ? { auth } : {}) };
      return outcome(controller.add(owner, request('/account/3pid/add', addBody), addBody));
    };
    const confirmed = { type: 'm.login.password', password: 'new password' };
    expect(await add()).toMatchObject({ status: 401, body: { flows: [{ stages: ['m.login.password'] }] } });
    // 400: a 401 would look like a logout to the client.
    foreign = { status: 400, body: { errcode: 'M_SESSION_NOT_VALIDATED' } };
    expect(await add(confirmed)).toMatchObject({ status: 400 });
    await follow();
    expect((await Promise.all([add(confirmed), add(confirmed)])).map((one) => one.status).sort()).toEqual([200, 400]);
    const { threepids } = (await controller.list(owner)) as { threepids: { address: string }[] };
    expect(threepids.map((one) => one.address)).toEqual(['taken@example.org', 'second@example.org']);
    expect(await controller.delete(owner, { medium: 'email', address: 'SECOND@example.org' })).toEqual({
      id_server_unbind_result: 'no-support',
    });
    expect(await users.get(ThreepidService).userOf('email', 'second@example.org')).toBeUndefined();
  });

  it('has phone numbers proved by the identity server of the settings, and counts that once, too', async () => {
    foreign = { status: 200, body: { sid: 'foreign-sid' } };
    const token = { client_secret: 'phone', country: 'GB', phone_number: '07700 900555', send_attempt: 1 };
    expect(await users.get(RequestTokenService).forMsisdn('registration', token, request('/x', {}))).toMatchObject({
      sid: 'foreign-sid',
      submit_url: 'https://matrix.example.org/_matrix/client/unstable/add_threepid/msisdn/submit_token',
    });
    expect(asked.at(-1)).toMatchObject({
      method: 'POST',
      url: 'https://id.example.org/_matrix/identity/api/v1/validate/msisdn/requestToken',
    });
    const uia = users.get(UiaService);
    const attempt = (sid = 'foreign-sid') => {
      const body = { auth: { type: 'm.login.msisdn', threepid_creds: { sid, client_secret: 'phone' } } };
      return outcome(
        uia.authenticate({ request: request('/register', body), body, flows: [['m.login.msisdn']], description: '' }),
      );
    };
    foreign = { status: 400, body: { errcode: 'M_SESSION_NOT_VALIDATED' } };
    expect(await attempt()).toMatchObject({ status: 401, body: { errcode: 'M_SESSION_NOT_VALIDATED' } });
    foreign = { status: 200, body: { medium: 'email', address: 'x@y.z', validated_at: 1 } };
    expect(await attempt()).toMatchObject({ status: 401, body: { errcode: 'M_THREEPID_AUTH_FAILED' } });
    const proved = (validatedMs: number): typeof foreign => ({
      status: 200,
      body: { medium: 'msisdn', address: '447700900555', validated_at: validatedMs },
    });
    foreign = proved(clock.nowMs() - 24 * 3_600_000 - 1);
    expect(await attempt()).toMatchObject({ status: 401, body: { errcode: 'M_THREEPID_AUTH_FAILED' } });
    foreign = proved(clock.nowMs() - 24 * 3_600_000);
    expect((await Promise.all([attempt(), attempt()])).map((one) => one.status).sort()).toEqual([200, 401]);
    // An id that counts sessions may be read in several spellings.
    expect((await attempt('0foreign-sid')).status).toBe(401);
    foreign = { status: 500, body: 'broken' };
    expect((await attempt()).status).toBe(502);
  });

  it('lets nobody past the captcha when its service is away', async () => {
    const fixture = await buildUsers({
      database: test.database,
      clock,
      outbound: () => foreign,
      settings: { enable_registration_captcha: true, recaptcha_public_key: 'a', recaptcha_private_key: 'b' },
    });
    const attempt = (response?: unknown) => {
      const body = {
        username: 'bot',
        password: 'pw',
        auth: { type: 'm.login.recaptcha', ...(response === undefined ? {} : { response }) },
      } as JsonObject;
      return outcome(
        fixture.get(RegistrationService).register(fixture.request('POST', '/_matrix/client/v3/register', body), body),
      );
    };
    foreign = { status: 500, body: {} };
    expect((await attempt('r')).status).toBe(502);
    foreign = { status: 200, body: { success: false } };
    expect(await attempt('r')).toMatchObject({ status: 401, body: { errcode: 'M_CAPTCHA_INVALID' } });
    expect(await attempt()).toMatchObject({ status: 401, body: { errcode: 'M_CAPTCHA_NEEDED' } });
    foreign = { status: 200, body: { success: true } };
    expect(await attempt('r')).toMatchObject({
      status: 401,
      body: { completed: ['m.login.recaptcha'], flows: [{ stages: ['m.login.recaptcha', 'm.login.dummy'] }] },
    });
    await fixture.close();
  });
});
