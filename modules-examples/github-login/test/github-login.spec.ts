import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { ConfigError } from '@rookery/module-api';
import { startWorld, type World } from '../../../test/e2e/sso/world.js';
import { parseConfig } from '../src/config.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));

/** GitHub as far as a sign-in sees it. Whoever comes is the person of the moment. */
async function startGitHub() {
  const asked: { scope: string | null; agent: string | undefined; token: string | undefined }[] = [];
  const github = { person: { id: 1, login: 'nobody' } as object, emails: [] as object[], asked, url: '', answer: {} };
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const json = (body: unknown): void => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    switch (url.pathname) {
      case '/login/oauth/authorize': {
        const back = new URL(url.searchParams.get('redirect_uri') ?? '');
        const answer = { code: 'a code', ...github.answer, state: url.searchParams.get('state') ?? '' };
        for (const [name, value] of Object.entries(answer)) back.searchParams.set(name, value);
        asked.push({ scope: url.searchParams.get('scope'), agent: undefined, token: undefined });
        response.writeHead(302, { location: back.href });
        return response.end();
      }
      case '/login/oauth/access_token':
        return json({ access_token: 'a token', token_type: 'bearer' });
      case '/api/v3/user':
        asked.push({ scope: null, agent: request.headers['user-agent'], token: request.headers.authorization });
        return json(github.person);
      case '/api/v3/user/emails':
        return json(github.emails);
      default:
        response.writeHead(404);
        return response.end();
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  github.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return Object.assign(github, {
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

describe('signing in with GitHub', () => {
  let github: Awaited<ReturnType<typeof startGitHub>>;
  let world: World;
  beforeAll(async () => {
    github = await startGitHub();
    const common = { base_url: github.url, client_id: 'id', client_secret: 'secret' };
    const providers = [common, { ...common, id: 'work', name: 'Work', allow_existing_users: true }];
    world = await startWorld('sqlite', { modules: [{ module, config: { providers } }] });
  });
  afterAll(async () => {
    await world?.stop();
    await github?.stop();
  });

  it('suggests the name, and takes over the addresses that GitHub has verified', async () => {
    github.person = { id: 7, login: 'Octo-Cat', name: 'Octo Cat' };
    github.emails = [
      { email: 'octo@example.org', primary: true, verified: true },
      { email: 'other@example.org', verified: false },
    ];
    const browser = world.browser();
    const page = await world.begin(browser, 'github');
    expect(page.html).toContain('value="octo-cat"');
    expect(page.html).toContain('octo@example.org');
    expect(page.html).not.toContain('other@example.org');
    const user = await world.logIn(await browser.submit(page));
    expect(user.userId).toBe('@octo-cat:rookery.test');
    expect((await user.request('GET', `/profile/${user.userId}`)).body).toMatchObject({ displayname: 'Octo Cat' });
    expect(github.asked[0]?.scope).toBe('read:user,user:email');
    // They know by the number, which stays when the name changes.
    github.person = { id: 7, login: 'renamed' };
    expect((await world.logIn(await world.begin(world.browser(), 'github'))).userId).toBe(user.userId);
  });

  it('knows others at another instance', async () => {
    const older = await world.homeserver.registerUser('older');
    github.person = { id: 8, login: 'older' };
    github.emails = [{ email: 'other@example.org', verified: false }];
    expect((await world.logIn(await world.begin(world.browser(), 'work'))).userId).toBe(older.userId);
    const page = await world.begin(world.browser(), 'github');
    expect(page.html).toContain('value="older1"');
  });

  it('says so when the person refuses, or GitHub is of another opinion', async () => {
    github.answer = { error: 'access_denied', error_description: 'The user said <no>' };
    const refused = await world.begin(world.browser(), 'github');
    expect(refused.status).toBe(403);
    expect(refused.html).toContain('The user said &lt;no&gt;');
    github.answer = { error: 'redirect_uri_mismatch' };
    expect((await world.begin(world.browser(), 'github')).status).toBe(502);
    github.answer = {};
  });

  it('takes no answer that this browser did not ask for', async () => {
    const browser = world.browser();
    const away = await browser.go(
      `https://matrix.rookery.test/_matrix/client/v3/login/sso/redirect/github?redirectUrl=https://trusted.example/`,
    );
    expect(away.location?.searchParams.get('state')).toMatch(/.{16}/);
    const forged = await browser.go('https://matrix.rookery.test/_synapse/client/sso/github/callback?code=x&state=y');
    expect(forged.status).toBe(403);
  });
});

it.each([
  [undefined, 'providers'],
  [{ providers: [{ client_id: 'x' }] }, 'providers.0.client_secret'],
  [{ providers: [{ client_id: 'x', client_secret: 'y', base_url: 'http://github.example' }] }, 'providers.0.base_url'],
  [
    { providers: [{ client_id: 'x', client_secret: 'y', base_url: 'http://127.0.0.1:a@github.example' }] },
    'providers.0.base_url',
  ],
  [{ providers: [{ client_id: 'x', client_secret: 'y', secret: 1 }] }, 'providers.0.secret'],
  [
    { providers: [{ client_id: 'x', client_secret: 'y', allow_existing_users: true }] },
    'providers.0.allow_existing_users',
  ],
])('refuses settings that are wrong: %j', (raw, path) => {
  expect(() => parseConfig(raw)).toThrow(
    expect.objectContaining({ path: path.split('.').map((p) => (p === '0' ? 0 : p)) }),
  );
  expect(() => parseConfig(raw)).toThrow(ConfigError);
});
