import { fileURLToPath } from 'node:url';
import { type Browser, linkOf, type Shown } from './browser.js';
import { FakeProvider } from './fake-provider.js';
import { asked, elsewhere, oddAnswers, people, refreshable } from './fixtures/identity-providers.js';
import { base, startWorld, type World } from './world.js';

const module = fileURLToPath(new URL('./fixtures/identity-providers.ts', import.meta.url));
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

describe.each(['sqlite', 'postgres'] as const)('sign-in providers of modules (%s)', (kind) => {
  let world: World;
  let pictures: FakeProvider;

  beforeAll(async () => {
    pictures = await FakeProvider.start();
    pictures.answers.set('/anna', () => ({ bytes: png, type: 'image/png' }));
    world = await startWorld(kind, {
      ip_range_whitelist: ['127.0.0.1'],
      dynamic_thumbnails: true,
      refreshable_access_token_lifetime: '5m',
      rc_login: {
        address: { per_second: 1000, burst_count: 1000 },
        account: { per_second: 1000, burst_count: 1000 },
        failed_attempts: { per_second: 0.001, burst_count: 4 },
      },
      modules: [
        {
          module,
          config: {
            providers: [
              { id: 'redirects', name: 'Redirects' },
              { id: 'again', name: 'Once more', localpart: 'x-' },
              { id: 'asks', name: 'Asks' },
              { id: 'closed', name: 'Closed' },
              { id: 'fails', name: 'Fails' },
            ],
          },
        },
      ],
    });
  });
  beforeEach(() => {
    people.clear();
    refreshable.clear();
    oddAnswers.clear();
    asked.splice(0);
  });
  afterAll(async () => {
    await world?.stop();
    await pictures?.stop();
  });

  const callback = (id: string, query: Record<string, string> = {}): string =>
    `${base}/_synapse/client/sso/${id}/callback?${new URLSearchParams(query).toString()}`;
  /** Begins at a provider that leads elsewhere, and comes back from there. */
  const signOn = async (
    browser: Browser,
    id: string,
    who: string,
    more: Record<string, string> = {},
  ): Promise<Shown> => {
    const away = await world.begin(browser, id);
    expect(away.location?.href).toContain(elsewhere);
    const state = away.location?.searchParams.get('state') ?? '';
    return browser.follow(callback(id, { who, state, ...more }));
  };
  const failed = (shown: Shown, code: string, status: number): void => {
    expect({ status: shown.status, html: shown.html }).toMatchObject({ status });
    expect(shown.html).toContain(`<code>${code}</code>`);
  };

  it('are told to clients', async () => {
    const { body } = await world.homeserver.request<{ flows: unknown[] }>('GET', '/login');
    expect(body.flows).toContainEqual({
      type: 'm.login.sso',
      identity_providers: expect.arrayContaining([
        { id: 'redirects', name: 'Redirects', icon: 'mxc://rookery.test/icon', brand: 'test' },
        { id: 'again', name: 'Once more', icon: 'mxc://rookery.test/icon', brand: 'test' },
      ]),
    });
  });

  it('make an account with name and picture, and know the person again', async () => {
    people.set('anna', { title: 'Anna Example', picture: `${pictures.issuer}/anna` });
    const user = await world.logIn(await signOn(world.browser(), 'redirects', 'anna'));
    expect(user.userId).toBe('@anna:rookery.test');
    expect(user.answer).toMatchObject({ 'org.example.by': 'redirects' });
    const { body } = await user.request<Record<string, string>>('GET', `/profile/${user.userId}`);
    expect(body).toMatchObject({ displayname: 'Anna Example', avatar_url: expect.stringMatching(/^mxc:/) });
    expect((await world.logIn(await signOn(world.browser(), 'redirects', 'anna'))).userId).toBe(user.userId);
    // What the browser keeps for the server is not the module's to see.
    expect(asked.map(({ cookie }) => cookie)).toEqual(asked.map(() => null));
  });

  it('are of one kind and yet different: another instance knows other people', async () => {
    people.set('twin', {});
    const one = await world.logIn(await signOn(world.browser(), 'redirects', 'twin'));
    const two = await world.logIn(await signOn(world.browser(), 'again', 'twin'));
    expect([one.userId, two.userId]).toEqual(['@twin:rookery.test', '@x-twin:rookery.test']);
  });

  it('let the person confirm the name, or take one of those that are free', async () => {
    await world.homeserver.registerUser('picky');
    people.set('picky', { confirm: true });
    const browser = world.browser();
    const page = await signOn(browser, 'redirects', 'picky');
    expect(page.url.pathname).toBe('/_synapse/client/pick_username/account_details');
    expect(page.html).toContain('value="picky1"');
    const user = await world.logIn(await browser.submit(page, { username: 'picky.two' }));
    expect(user.userId).toBe('@picky.two:rookery.test');
  });

  it('tie an account that is there to the person, where the module says so', async () => {
    const before = await world.homeserver.registerUser('older');
    people.set('ollie', { existing: 'older' });
    expect((await world.logIn(await signOn(world.browser(), 'redirects', 'ollie'))).userId).toBe(before.userId);
    people.set('ollie', {});
    expect((await world.logIn(await signOn(world.browser(), 'redirects', 'ollie'))).userId).toBe(before.userId);
  });

  it('show a page of their own, as often as it takes, and end it by the way back to the client', async () => {
    const browser = world.browser();
    const page = await world.begin(browser, 'asks');
    expect(page.url.pathname).toBe('/_synapse/client/sso/asks/begin');
    expect(page.headers['content-security-policy']).toContain("default-src 'none'");
    const wrong = await browser.submit(page, { name: 'frida', password: 'guess' });
    expect(wrong).toMatchObject({ status: 403 });
    expect(wrong.html).toContain('Wrong 1');
    const right = await browser.submit(wrong, { name: 'frida', password: 'password of frida' });
    expect((await world.logIn(right)).userId).toBe('@frida:rookery.test');
    // The sign-on is over: its form counts no more.
    failed(await browser.submit(wrong, { name: 'frida', password: 'password of frida' }), 'missing_session', 400);
  });

  it('confirm an operation of the user who signed on there, and of nobody else', async () => {
    people.set('bert', {});
    people.set('carl', {});
    const browser = world.browser();
    const bert = await world.logIn(await signOn(browser, 'redirects', 'bert'));
    await world.logIn(await signOn(world.browser(), 'redirects', 'carl'));
    const remove = (auth?: object) =>
      bert.request<{ session: string; flows: unknown }>('POST', '/delete_devices', {
        devices: ['X'],
        ...(auth ? { auth } : {}),
      });
    const { body } = await remove();
    expect(body.flows).toEqual([{ stages: ['m.login.sso'] }]);
    asked.splice(0);
    const confirm = async (who: string): Promise<Shown> => {
      const page = await browser.go(`${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${body.session}`);
      expect(page.html).toContain('Redirects');
      const away = linkOf(page, /Confirm/);
      return browser.follow(callback('redirects', { who, state: away.searchParams.get('state') ?? '' }));
    };
    expect(await confirm('carl')).toMatchObject({ status: 403 });
    expect(await remove({ session: body.session })).toMatchObject({ status: 401 });
    expect(await confirm('bert')).toMatchObject({ status: 200 });
    expect(asked.map(({ purpose }) => purpose)).toEqual(['uia', 'uia', 'uia', 'uia']);
    expect(await remove({ session: body.session })).toMatchObject({ status: 200 });
  });

  it('confirm by a page of their own, too', async () => {
    const browser = world.browser();
    const first = await browser.submit(await world.begin(browser, 'asks'), {
      name: 'hanna',
      password: 'password of hanna',
    });
    const hanna = await world.logIn(first);
    const { body } = await hanna.request<{ session: string }>('POST', '/delete_devices', { devices: ['X'] });
    const page = await browser.go(`${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${body.session}`);
    const form = await browser.follow(linkOf(page, /Confirm/));
    const done = await browser.submit(form, { name: 'hanna', password: 'password of hanna' });
    expect(done.html).toContain('Your identity is confirmed');
    expect(
      await hanna.request('POST', '/delete_devices', { devices: ['X'], auth: { session: body.session } }),
    ).toMatchObject({ status: 200 });
  });

  describe('end sessions by themselves', () => {
    const send = (fields: Record<string, string>, id = 'redirects') =>
      fetch(`${world.homeserver.baseUrl}/_synapse/client/sso/${id}/logout`, {
        method: 'POST',
        body: new URLSearchParams({ secret: 'right', ...fields }),
      });
    const lives = async (user: { request: World['homeserver']['request'] }) =>
      (await user.request('GET', '/account/whoami')).status === 200;
    const logIn = async (who: string, session: string) => {
      people.set(who, { session });
      return world.logIn(await signOn(world.browser(), 'redirects', who));
    };

    it('one session, or all of a person, and none at another provider', async () => {
      const one = await logIn('ida', `one ${kind}`);
      const two = await logIn('ida', `two ${kind}`);
      expect((await send({ session: `one ${kind}` }, 'again')).status).toBe(200);
      expect([await lives(one), await lives(two)]).toEqual([true, true]);
      expect((await send({ session: `one ${kind}` })).status).toBe(200);
      expect([await lives(one), await lives(two)]).toEqual([false, true]);
      expect((await send({ person: 'redirects ida' })).status).toBe(200);
      expect(await lives(two)).toBe(false);
    });

    it('by requests that are right, each once', async () => {
      const user = await logIn('jana', `jana ${kind}`);
      const answer = await send({ secret: 'wrong', person: 'redirects jana' });
      expect([answer.status, answer.headers.get('cache-control')]).toEqual([400, 'no-store']);
      expect((await send({})).status).toBe(400);
      expect((await send({ person: 'redirects nobody' })).status).toBe(400);
      expect((await send({ session: `jana ${kind}`, person: 'redirects ida' })).status).toBe(200);
      expect(await lives(user)).toBe(true);
      expect((await send({ id: `once ${kind}`, session: `jana ${kind}` })).status).toBe(200);
      expect(await lives(user)).toBe(false);
      expect((await send({ id: `once ${kind}`, session: `jana ${kind}` })).status).toBe(400);
      expect((await send({ person: 'x' }, 'nothing')).status).toBe(404);
    });
  });

  describe('are asked when a session goes on', () => {
    const open = async (who: string, token: string, id = 'redirects') => {
      people.set(who, { token });
      const shown = await signOn(world.browser(), id, who);
      const { body } = await world.homeserver.request<Record<string, string>>('POST', '/login', {
        type: 'm.login.token',
        token: shown.location?.searchParams.get('loginToken'),
        refresh_token: true,
      });
      return body;
    };
    const refresh = (token: string | undefined) =>
      world.homeserver.request<Record<string, string>>('POST', '/refresh', { refresh_token: token });

    it('renew their own tokens, each used once, until the person is signed on no more', async () => {
      const first = await open('kira', `k ${kind}`);
      const second = await refresh(first['refresh_token']);
      expect(second).toMatchObject({ status: 200 });
      expect([...refreshable.keys()]).toEqual([`k ${kind}+`]);
      const third = await refresh(second.body['refresh_token']);
      expect(third).toMatchObject({ status: 200 });
      expect([...refreshable.keys()]).toEqual([`k ${kind}++`]);
      refreshable.clear();
      expect(await refresh(third.body['refresh_token'])).toMatchObject({
        status: 401,
        body: { errcode: 'M_UNKNOWN_TOKEN', soft_logout: false },
      });
      const token = third.body['access_token'];
      expect(await world.homeserver.request('GET', '/account/whoami', undefined, token)).toMatchObject({ status: 401 });
    });

    it('renew them where the module froze them', async () => {
      const first = await open('kora', `o ${kind}`, 'again');
      expect(await refresh(first['refresh_token'])).toMatchObject({ status: 200 });
      expect([...refreshable.keys()]).toEqual([`o ${kind}+`]);
    });

    it('end the session by null, too', async () => {
      oddAnswers.set('odd', null);
      const first = await open('klara', 'odd');
      expect(await refresh(first['refresh_token'])).toMatchObject({ status: 401 });
      const token = first['access_token'];
      expect(await world.homeserver.request('GET', '/account/whoami', undefined, token)).toMatchObject({ status: 401 });
    });

    it.each([
      [false, 'konrad'],
      ['a name', 'kurt'],
    ])('keep the session, and are asked again, when they answer %p', async (odd, who) => {
      oddAnswers.set('odd', odd);
      const first = await open(who, 'odd');
      const second = await refresh(first['refresh_token']);
      expect(second).toMatchObject({ status: 200 });
      oddAnswers.set('odd', undefined);
      expect(await refresh(second.body['refresh_token'])).toMatchObject({ status: 401 });
    });

    it('keep the session when they are away', async () => {
      const first = await open('lena', 'broken');
      expect(await refresh(first['refresh_token'])).toMatchObject({ status: 200 });
    });

    it('are not asked by two requests at a time for one session', async () => {
      const first = await open('mona', `m ${kind}`);
      const answers = await Promise.all([refresh(first['refresh_token']), refresh(first['refresh_token'])]);
      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    });
  });

  describe('keep out', () => {
    it('whom they refuse, in their words as text', async () => {
      const shown = await signOn(world.browser(), 'redirects', '', { error: 'access_denied' });
      failed(shown, 'access_denied', 401);
      expect(shown.html).toContain('&lt;b&gt;access_denied&lt;/b&gt;');
    });

    it('who has no account, where none are made', async () => {
      failed(await signOn(world.browser(), 'closed', 'nina'), 'mapping_error', 403);
    });

    it('somebody without an id at the provider does not get in', async () => {
      people.set('', { name: 'x' });
      const browser = world.browser();
      const away = await world.begin(browser, 'redirects');
      const state = away.location?.searchParams.get('state') ?? '';
      const shown = await browser.follow(callback('redirects', { state, who: 'a'.repeat(2000) }));
      failed(shown, 'mapping_error', 400);
    });

    it('whose browser began nothing, something else, or the same twice', async () => {
      people.set('olga', {});
      failed(await world.browser().go(callback('redirects', { who: 'olga' })), 'missing_session', 400);
      const browser = world.browser();
      const away = await world.begin(browser, 'again');
      const state = away.location?.searchParams.get('state') ?? '';
      failed(await browser.go(callback('redirects', { who: 'olga', state })), 'missing_session', 400);
      const cookies = browser.cookies(callback('again'));
      await world.logIn(await browser.follow(callback('again', { who: 'olga', state })));
      for (const [name, value] of Object.entries(cookies))
        browser.setCookie(callback('again'), `${name}=${value}; Path=/_synapse/client/sso/again; Secure`);
      failed(await browser.go(callback('again', { who: 'olga', state })), 'invalid_session', 400);
      failed(await world.browser().go(callback('nothing')), 'unknown_idp', 404);
    });

    it('everybody while the module fails, without telling why', async () => {
      const shown = await world.begin(world.browser(), 'fails');
      failed(shown, 'provider_unavailable', 502);
      expect(shown.html).not.toContain('secret');
    });
  });

  // The last: nobody signs on with this form for a while.
  it('slow down whoever guesses', async () => {
    const browser = world.browser();
    let page = await world.begin(browser, 'asks');
    let status = 403;
    for (let i = 0; i < 10 && status === 403; i++) {
      page = {
        ...page,
        ...(await browser.go(page.url.href.replace('begin', 'callback'), { form: { name: 'greta' } })),
      };
      ({ status } = page);
    }
    expect(status).toBe(429);
  });
});
