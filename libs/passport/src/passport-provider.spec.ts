import type { IdentityProvider, SignOnStep } from '@rookery/module-api';
// @ts-expect-error It brings no types.
import OpenIDConnectStrategy from 'passport-openidconnect';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { keepProfile, passportProvider, profileOf } from './index.js';

const callbackUrl = 'https://matrix.example/_synapse/client/sso/x/callback';
const context = (url: string, init: RequestInit = {}) => ({
  ...({ callbackUrl, purpose: 'login', requestId: 'a', ip: '192.0.2.1', userAgent: 'b' } as const),
  request: new Request(url, init),
});
const begin = async (provider: IdentityProvider): Promise<SignOnStep> =>
  provider.begin(
    context('https://matrix.example/_matrix/client/v3/login/sso/redirect/x?redirectUrl=https://app.example'),
  );
/** As the server does it: what is kept becomes JSON in between. */
const goOn = async (provider: IdentityProvider, step: SignOnStep, query: string, form?: object): Promise<SignOnStep> =>
  provider.callback({
    ...context(
      callbackUrl + query,
      form && { method: 'POST', body: new URLSearchParams(form as Record<string, string>) },
    ),
    state: 'state' in step ? (JSON.parse(JSON.stringify(step.state ?? null)) as unknown) : undefined,
  });

interface Acts {
  success(user: unknown, info?: unknown): void;
  fail(challenge?: unknown, status?: number): void;
  redirect(url: string): void;
  pass(): void;
  error(error: unknown): void;
}
interface Asked {
  readonly session: Record<string, unknown>;
  readonly query: Record<string, unknown>;
  readonly body: Record<string, unknown>;
  readonly res: { send(body: unknown): void; writeHead(status: number, headers: object): { end(): void } };
}
const acting = (act: (this: Acts, request: Asked) => void) =>
  passportProvider({ id: 'x', name: 'X', strategy: () => ({ authenticate: act }) });

describe('a strategy as a provider', () => {
  it('keeps its session between the steps', async () => {
    const provider = acting(function ({ session, query }) {
      if (query['code'] === undefined) {
        session['secret'] = 'kept';
        return this.redirect('https://idp.example/?a=b');
      }
      return this.success({ id: 7, secret: session['secret'] });
    });
    const step = await begin(provider);
    expect(step).toEqual({ redirect: 'https://idp.example/?a=b', state: { secret: 'kept' } });
    expect(await goOn(provider, step, '?code=1')).toMatchObject({
      identity: { remoteId: '7', claims: { secret: 'kept' } },
    });
  });

  it.each<[string, (this: Acts, request: Asked) => void, object]>([
    [
      'a refusal with words',
      function () {
        this.fail({ message: 'No' }, 401);
      },
      { refused: { description: 'No', status: 401 } },
    ],
    [
      'a refusal with a status alone',
      function () {
        this.fail(400);
      },
      { refused: { description: 'X did not let you in.', status: 400 } },
    ],
    [
      'a challenge for a header',
      function () {
        this.fail('Basic realm="Users"');
      },
      { refused: { description: 'X did not let you in.', status: 403 } },
    ],
    [
      'an error of the person',
      function () {
        this.error(Object.assign(new Error('Go away'), { status: 403 }));
      },
      { refused: { description: 'Go away', status: 403 } },
    ],
    [
      'nothing to say',
      function () {
        this.pass();
      },
      { refused: { error: 'not_handled' } },
    ],
    [
      'a page',
      function ({ res }) {
        res.send('<form></form>');
      },
      { page: '<form></form>', status: 200 },
    ],
    [
      'a redirect as Node.js writes it',
      function ({ res }) {
        res.writeHead(302, { Location: 'https://idp.example/?a=b' }).end();
      },
      { redirect: 'https://idp.example/?a=b' },
    ],
    [
      'a path of its own',
      function () {
        this.redirect('/elsewhere');
      },
      { redirect: 'https://matrix.example/elsewhere' },
    ],
  ])('understands %s', async (_, act, step) => {
    expect(await begin(acting(act))).toMatchObject(step);
  });

  it.each<[string, (this: Acts) => unknown]>([
    [
      'told',
      function () {
        this.error(new Error('broken'));
      },
    ],
    [
      'thrown',
      function () {
        throw new Error('broken');
      },
    ],
    [
      'thrown later',
      async function () {
        await Promise.resolve();
        throw new Error('broken');
      },
    ],
    [
      'told with a status of the server',
      function () {
        this.error(Object.assign(new Error('broken'), { status: 500 }));
      },
    ],
  ])('passes errors on: %s', async (_, act) => {
    await expect(begin(acting(act as (this: Acts) => void))).rejects.toThrow('broken');
  });

  it('does not mix requests of one strategy', async () => {
    const shared = {
      async authenticate(this: Acts, { query }: Asked) {
        await new Promise((resolve) => setImmediate(resolve));
        this.success({ id: query['who'] });
      },
    };
    const provider = passportProvider({ id: 'x', name: 'X', strategy: () => shared });
    const both = await Promise.all(['a', 'b'].map((who) => goOn(provider, { redirect: 'x' }, `?who=${who}`)));
    expect(both).toMatchObject([{ identity: { remoteId: 'a' } }, { identity: { remoteId: 'b' } }]);
  });

  it('shows a form for what people type, and never a password again', async () => {
    const provider = passportProvider({
      id: 'x',
      name: 'X',
      form: { title: '<Staff>' },
      strategy: () => ({
        authenticate(this: Acts, { body }: Asked) {
          if (body['password'] === 'right') this.success({ id: body['username'] });
          else this.fail({ message: 'Wrong & out' });
        },
      }),
    });
    const first = (await begin(provider)) as { page: string };
    expect(first.page).toContain('<h1>&#60;Staff&#62;</h1>');
    expect(first.page).toContain(`action="${callbackUrl}"`);
    const second = await goOn(provider, first, '', { username: '"anna"', password: 'guess' });
    expect(second).toMatchObject({ status: 403, page: expect.stringContaining('Wrong &#38; out') });
    expect(second).toMatchObject({ page: expect.stringContaining('value="&#34;anna&#34;"') });
    expect((second as { page: string }).page).not.toContain('guess');
    expect(await goOn(provider, second, '', { username: 'anna', password: 'right' })).toMatchObject({
      identity: { remoteId: 'anna' },
    });
  });

  it('needs somebody with an id', async () => {
    await expect(
      begin(
        acting(function () {
          this.success({ name: 'x' });
        }),
      ),
    ).rejects.toThrow('no id');
  });

  it('takes name, picture and verified addresses from a profile', () => {
    const claims = {
      username: 'Anna',
      name: { givenName: 'Anna', familyName: 'Example' },
      photos: [{ value: 'https://pictures.example/a' }],
      emails: [{ value: 'a@example.org', verified: true }, { value: 'b@example.org' }, { value: 7, verified: true }],
    };
    expect(profileOf({ remoteId: '1', claims }, 2)).toEqual({
      localpart: 'anna2',
      confirmLocalpart: true,
      displayName: 'Anna Example',
      picture: 'https://pictures.example/a',
      emails: ['a@example.org'],
    });
  });
});

it('a strategy of somebody else, as it was published, signs people on', async () => {
  const token = (claims: object): string =>
    ['{}', JSON.stringify(claims), ''].map((part) => Buffer.from(part).toString('base64url')).join('.');
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const userinfo = { sub: 's1', name: 'Anna Example', preferred_username: 'anna' };
    const issued = { iss: 'https://idp.example', aud: 'client', sub: 's1', exp: 4e9, iat: 1 };
    const tokens = { access_token: 'a', token_type: 'Bearer', id_token: token(issued) };
    response.end(JSON.stringify(request.url === '/token' ? tokens : userinfo));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider = passportProvider({
    id: 'x',
    name: 'X',
    strategy: () =>
      new OpenIDConnectStrategy(
        {
          ...{ issuer: 'https://idp.example', authorizationURL: `${url}/authorize`, tokenURL: `${url}/token` },
          ...{ userInfoURL: `${url}/userinfo`, clientID: 'client', clientSecret: 'secret', callbackURL: callbackUrl },
          skipUserProfile: false,
        },
        keepProfile,
      ),
  });
  try {
    const step = await begin(provider);
    const state = 'redirect' in step ? new URL(step.redirect).searchParams.get('state') : undefined;
    expect(state).toEqual(expect.any(String));
    expect(await goOn(provider, step, `?code=c&state=${encodeURIComponent(state ?? '')}`)).toMatchObject({
      identity: { remoteId: 's1', claims: { displayName: 'Anna Example' } },
    });
    expect(await goOn(provider, step, '?code=c&state=another')).toMatchObject({ refused: { status: 403 } });
    expect(await goOn(provider, step, '?error=access_denied&error_description=No')).toMatchObject({
      refused: { description: 'No' },
    });
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
});
