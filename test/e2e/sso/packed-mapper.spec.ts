import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ServerProcess } from '../../support/server-process.js';
import { Browser, type Shown } from './browser.js';
import { FakeProvider } from './fake-provider.js';
import { trusted } from './world.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));

/** Packs the module and what it needs, and installs it beside a server's settings. */
function installMapper(folder: string): void {
  const packed = join(folder, 'packed');
  mkdirSync(packed);
  const options = { cwd: root, stdio: 'pipe', env: { ...process.env, NODE_OPTIONS: '' } } as const;
  const folders = ['libs/matrix-types', 'libs/module-api', 'modules-examples/oidc-mapper'];
  execFileSync(process.execPath, [join(root, 'node_modules/typescript7/bin/tsc'), '-b', ...folders], options);
  const sources = folders.map((path) => `./${path}`);
  execFileSync('npm', ['pack', '--silent', '--pack-destination', packed, ...sources], options);
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'server', private: true }));
  const tarballs = readdirSync(packed).map((file) => join(packed, file));
  const install = ['install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', '--silent', ...tarballs];
  execFileSync('npm', install, { ...options, cwd: folder });
}

it('a packed module maps people on the built server, without TLS on this machine', async () => {
  const provider = await FakeProvider.start();
  const server = await ServerProcess.prepare('sqlite', {
    modules: [{ module: '@rookery-examples/oidc-mapper' }],
    sso: { client_whitelist: [trusted] },
    oidc_providers: [
      {
        idp_id: 'packed',
        idp_name: 'Packed',
        issuer: provider.issuer,
        client_id: 'rookery',
        client_secret: 'secret',
        user_mapping_provider: {
          module: 'oidc-mapper',
          config: { groups: ['staff'], localpart: 'nick', extra: { 'org.example.team': 'team' } },
        },
      },
    ],
  });
  try {
    installMapper(server.folder);
    await server.start();
    const signOn = (): Promise<Shown> =>
      new Browser().follow(
        `${server.baseUrl}/_matrix/client/v3/login/sso/redirect?${new URLSearchParams({ redirectUrl: trusted }).toString()}`,
      );
    provider.person = { sub: '1', nick: 'Anna', groups: ['staff'], team: 'red' };
    const shown = await signOn();
    const token = shown.location?.searchParams.get('loginToken');
    const login = await fetch(`${server.baseUrl}/_matrix/client/v3/login`, {
      method: 'POST',
      body: JSON.stringify({ type: 'm.login.token', token }),
    });
    expect({ status: login.status, body: await login.json(), html: shown.html }).toMatchObject({
      status: 200,
      body: { user_id: '@anna:rookery.test', 'org.example.team': 'red' },
    });
    // Who leaves the group does not get in again.
    provider.person = { ...provider.person, groups: ['guests'] };
    const again = await signOn();
    expect({ status: again.status, output: server.output }).toMatchObject({ status: 403 });
    expect(again.html).toContain('You may not use this server');
  } finally {
    await server.remove();
    await provider.stop();
  }
});
