import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { AccountService, insertRegistrationToken } from '@rookery/users';
import { Database } from '@rookery/database';
import { validatedFetch } from '../../support/openapi.js';
import { asJson, ForwardClock, type Json, logIn } from './support.js';

const dummy = { auth: { type: 'm.login.dummy' } };
const mail = { smtp_host: '127.0.0.1', smtp_port: 1, notif_from: 'noreply@rookery.test' };
const delegate = { msisdn: 'https://numbers.invalid' };
const [token, captcha, email, phone, terms] = [
  'm.login.registration_token',
  'm.login.recaptcha',
  'm.login.email.identity',
  'm.login.msisdn',
  'm.login.terms',
];

const consent = {
  template_dir: new URL('./fixtures/consent', import.meta.url).pathname,
  version: '1.0',
  require_at_registration: true,
};

/** Settings, and the stages of each flow that follow. */
const flowTable: readonly (readonly [what: string, settings: Json, flows: readonly (readonly string[])[]])[] = [
  ['nothing', {}, [['m.login.dummy']]],
  ['mail', { email: mail }, [['m.login.dummy'], [email]]],
  [
    'mail and numbers',
    { email: mail, account_threepid_delegates: delegate },
    [['m.login.dummy'], [email], [phone], [phone, email]],
  ],
  [
    'mail and numbers, of which numbers are not to be asked for',
    { email: mail, account_threepid_delegates: delegate, disable_msisdn_registration: true },
    [['m.login.dummy'], [email]],
  ],
  [
    'mail that is required',
    { email: mail, account_threepid_delegates: delegate, registrations_require_3pid: ['email'] },
    [[email], [phone, email]],
  ],
  [
    'both that are required',
    { email: mail, account_threepid_delegates: delegate, registrations_require_3pid: ['email', 'msisdn'] },
    [[phone, email]],
  ],
  [
    'a captcha, the policy and tokens',
    {
      email: mail,
      enable_registration_captcha: true,
      recaptcha_public_key: 'a',
      recaptcha_private_key: 'b',
      registration_requires_token: true,
      user_consent: consent,
    },
    [
      [token, captcha, 'm.login.dummy', terms],
      [token, captcha, email, terms],
    ],
  ],
  [
    'a token in place of an address',
    {
      email: mail,
      registrations_require_3pid: ['email'],
      registration_requires_token: true,
      enable_registration_token_3pid_bypass: true,
    },
    [[token, email], [token]],
  ],
  [
    'a token in place of an address, which nobody else needs',
    { email: mail, registrations_require_3pid: ['email'], enable_registration_token_3pid_bypass: true },
    [[email], [token]],
  ],
  [
    'a captcha, the policy and a token in place of an address',
    {
      email: mail,
      enable_registration_captcha: true,
      recaptcha_public_key: 'a',
      recaptcha_private_key: 'b',
      registrations_require_3pid: ['email'],
      registration_requires_token: true,
      enable_registration_token_3pid_bypass: true,
      user_consent: consent,
    },
    [
      [token, captcha, email, terms],
      [captcha, token, terms],
    ],
  ],
];

describe.each(['sqlite', 'postgres'] as const)('settings of registration (%s)', (kind) => {
  let homeserver: TestHomeserver | undefined;
  const clock = new ForwardClock();
  const start = async (settings: Json): Promise<TestHomeserver> => {
    await homeserver?.stop();
    return (homeserver = await createTestHomeserver({ database: kind, clock, fetch: validatedFetch, settings }));
  };
  afterAll(() => homeserver?.stop());
  const register = async (server: TestHomeserver, body: Json): Promise<Json> =>
    asJson(await server.request('POST', '/register', { password: 'long enough', ...dummy, ...body }));

  it('gives new accounts their type, and names with an underscore where that is allowed', async () => {
    const server = await start({
      allow_underscore_prefixed_localpart: true,
      user_types: { default_user_type: 'crew', extra_user_types: ['crew'] },
    });
    expect(await register(server, { username: '_ann' })).toMatchObject({ status: 200, user_id: '@_ann:rookery.test' });
    expect((await server.server.service(AccountService).find('@_ann:rookery.test'))?.userType).toBe('crew');
  });

  it('takes a token instead of an address, and counts it', async () => {
    const server = await start({
      email: mail,
      registrations_require_3pid: ['email'],
      registration_requires_token: true,
      enable_registration_token_3pid_bypass: true,
    });
    await server.server.service(Database).write((tx) => insertRegistrationToken(tx, 'once', 1, undefined), {
      name: 'test',
    });
    const auth = { type: token, token: 'once' };
    expect(await register(server, { username: 'ann', auth })).toMatchObject({ status: 200 });
    expect(await register(server, { username: 'bob', auth })).toMatchObject({ status: 401, errcode: 'M_UNAUTHORIZED' });
  });

  it('ends sessions that cannot be refreshed after their time', async () => {
    const server = await start({ nonrefreshable_access_token_lifetime: '1h' });
    const ann = await server.registerUser('ann');
    const whoami = async (user: TestUser): Promise<Json> => asJson(await user.request('GET', '/account/whoami'));
    expect(await whoami(ann)).toMatchObject({ status: 200 });
    clock.advance(3_600_001);
    expect(await whoami(ann)).toMatchObject({ status: 401, errcode: 'M_UNKNOWN_TOKEN', soft_logout: true });
    expect(await whoami(await logIn(server, 'ann'))).toMatchObject({ status: 200 });
  });

  it('keeps accounts waiting for an administrator', async () => {
    const settings = { allow_guest_access: true, experimental_features: { msc3866: {} as Json } };
    const server = await start(settings);
    const old = await server.registerUser('old');
    settings.experimental_features.msc3866 = { enabled: true, require_approval_for_new_accounts: true };
    await server.restart();
    const waiting = {
      status: 403,
      errcode: 'ORG.MATRIX.MSC3866_USER_AWAITING_APPROVAL',
      approval_notice_medium: 'org.matrix.msc3866.none',
    };
    expect(await register(server, { username: 'new' })).toMatchObject(waiting);
    expect(await register(server, { username: 'newer', inhibit_login: true })).toMatchObject({ status: 200 });
    const login = async (user: string): Promise<Json> => {
      const identifier = { type: 'm.id.user', user };
      const password = 'long enough';
      return asJson(await server.request('POST', '/login', { type: 'm.login.password', identifier, password }));
    };
    for (const name of ['new', 'newer']) expect([name, await login(name)]).toMatchObject([name, waiting]);
    // Who was there before stays, and guests are nobody's to approve.
    expect((await old.request('GET', '/account/whoami')).status).toBe(200);
    expect((await server.request('POST', '/register?kind=guest', {})).status).toBe(200);
    const accounts = server.server.service(AccountService);
    await accounts.setFlags('@new:rookery.test', { approved: true });
    const { access_token: accessToken } = await login('new');
    const ask = async (path: string): Promise<Json> =>
      asJson(await server.request('GET', path, undefined, String(accessToken)));
    expect(await ask('/account/whoami')).toMatchObject({ status: 200 });
    // What was given may be taken back: sessions that are open end, too.
    await accounts.setFlags('@new:rookery.test', { approved: false });
    expect(await ask('/account/whoami')).toMatchObject(waiting);
    expect((await server.request('POST', '/logout', {}, String(accessToken))).status).toBe(200);
  });
});

// Flows depend on no database.
describe('flows of registration', () => {
  it.each(flowTable)('are those that follow from %s', async (_, settings, flows) => {
    const homeserver = await createTestHomeserver({ fetch: validatedFetch, settings });
    try {
      const { body } = await homeserver.request<{ flows: { stages: string[] }[] }>('GET', '/register');
      expect(body.flows.map(({ stages }) => stages)).toEqual(flows);
    } finally {
      await homeserver.stop();
    }
  });
});
