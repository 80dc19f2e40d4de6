import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeWhere, eventually } from '@rookery/testing';
import { pageText, rookery, rookeryIn } from '../support/operators.js';
import { databaseKinds, ServerProcess } from '../support/server-process.js';

const hasCurl = spawnSync('curl', ['--version']).status === 0;

describe.each(databaseKinds)('an operator (%s)', (kind) => {
  let server: ServerProcess;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind, { pid_file: 'server.pid' });
    await server.start();
  });
  afterAll(() => server?.remove());

  it('sees the version that runs', async () => {
    const answer = await fetch(`${server.baseUrl}/_synapse/admin/v1/server_version`);
    expect(await answer.json()).toEqual({ server_version: expect.stringMatching(/^Rookery \d+\.\d+\.\d+$/) });
  });

  it('checks the settings', async () => {
    const { code, output } = await rookery('config', 'check', server.configFile);
    expect({ code, output }).toMatchObject({ code: 0 });
  });

  describeWhere(hasCurl, 'curl is not on this machine')('with the page of the admin API', () => {
    it('gets a token, and asks with it', async () => {
      const [register = '', ask = ''] = [...pageText('admin-api.md').matchAll(/^```sh\n([^]*?)^```$/gm)].map(
        ([, example]) => example,
      );
      expect(register).toBe("rookery register-user --config homeserver.yaml --user admin --password '...' --admin\n");
      const made = await rookery(
        ...['register-user', '--config', server.configFile, '--user', 'admin'],
        ...['--password', '...', '--admin', server.baseUrl],
      );
      expect(made).toMatchObject({ code: 0 });
      const [login, list] = ask.replaceAll('http://localhost:8008', server.baseUrl).split(/\n(?=curl)/);
      const answered = (line: string): Record<string, unknown> =>
        JSON.parse(execFileSync('sh', ['-c', line], { encoding: 'utf8' })) as Record<string, unknown>;
      const { access_token: token } = answered(login!);
      expect(answered(list!.replace('TOKEN', String(token)))).toMatchObject({ total: expect.any(Number) });
    });

    it('looks whether an upgrade worked', () => {
      const [, line] = /`(curl [^`]*server_version)`/.exec(pageText('upgrading.md'))!;
      const printed = execFileSync('sh', ['-c', line!.replace('http://localhost:8008', server.baseUrl)], {
        encoding: 'utf8',
      });
      expect(printed).toMatch(/"server_version":"Rookery \d/);
    });
  });

  it('makes an administrator who can log in', async () => {
    const made = await rookery(
      'register-user',
      '--config',
      server.configFile,
      '-u',
      'root',
      '-p',
      'correct horse',
      '--admin',
      server.baseUrl,
    );
    expect(made).toMatchObject({ code: 0 });
    const login = await fetch(`${server.baseUrl}/_matrix/client/v3/login`, {
      method: 'POST',
      body: JSON.stringify({
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: 'root' },
        password: 'correct horse',
      }),
    });
    expect(login.status).toBe(200);
    expect(await login.json()).toMatchObject({ user_id: '@root:rookery.test' });
    const again = await rookery(
      'register-user',
      '--config',
      server.configFile,
      '-u',
      'root',
      '-p',
      'x',
      '--admin',
      server.baseUrl,
    );
    expect(again.code).not.toBe(0);
    expect(again.output).not.toMatch(/^\s+at /m);
  });

  it('registers from the folder of the settings without saying where they are', async () => {
    const account = ['-u', 'here', '-p', 'correct horse', '--no-admin'];
    const here = await rookeryIn(server.folder, 'register-user', ...account);
    expect(here).toMatchObject({ code: 0, output: expect.stringContaining('Made @here:rookery.test') });
    const elsewhere = join(server.folder, 'elsewhere');
    mkdirSync(elsewhere);
    expect(await rookeryIn(elsewhere, 'register-user', ...account, server.baseUrl)).toEqual({
      code: 2,
      output:
        'There is no homeserver.yaml in this folder: give the settings file with --config, or the secret with --shared-secret\n',
    });
    // A secret needs no settings, and reads none.
    writeFileSync(join(elsewhere, 'homeserver.yaml'), 'not: [settings');
    const secret = ['-k', server.registrationSecret, server.baseUrl, '--exists-ok'];
    expect(await rookeryIn(elsewhere, 'register-user', ...account, ...secret)).toMatchObject({ code: 0 });
  });

  it('lets the server take over a changed module, and removes it with what it stored', async () => {
    const folder = join(server.folder, 'counter');
    mkdirSync(folder);
    writeFileSync(
      join(folder, 'index.mjs'),
      `import { defineModule } from '@rookery/module-api';
      export default defineModule({
        name: 'counter',
        parseConfig: (raw) => raw,
        async register(api, config) {
          await api.store.put('greeting', config.greeting);
          api.registerWebResource('/_synapse/client/counter', async () => new Response(String(await api.store.get('greeting'))));
        },
      });`,
    );
    const settings = readFileSync(server.configFile, 'utf8');
    const withModule = (greeting: string): void =>
      writeFileSync(
        server.configFile,
        `${settings}\nmodules:\n  - module: ./counter/index.mjs\n    config: { greeting: ${greeting} }\n`,
      );
    const greeting = async (): Promise<string> => (await fetch(`${server.baseUrl}/_synapse/client/counter`)).text();
    withModule('hello');
    expect(await rookery('reload', '--config', server.configFile)).toMatchObject({ code: 0 });
    await eventually(async () => (await greeting()) === 'hello' || undefined);
    withModule('goodbye');
    const told = await rookery('reload', '--config', server.configFile);
    expect(told).toMatchObject({ code: 0, output: expect.stringContaining('modules changed: counter') as string });
    // It has happened when the command ends, whatever the outcome.
    expect(await greeting()).toBe('goodbye');
    writeFileSync(server.configFile, `${settings}\nmodules:\n  - module: ./counter/gone.mjs\n`);
    const refused = await rookery('reload', '--config', server.configFile);
    expect(refused.code).not.toBe(0);
    expect(refused.output).toContain('Nothing was reloaded');
    expect(refused.output).toContain('counter/gone.mjs');
    expect(await greeting()).toBe('goodbye');
    withModule('goodbye');
    await eventually(async () => (await greeting()) === 'goodbye' || undefined);
    expect((await rookery('module', 'list', '--config', server.configFile)).output).toContain('counter');

    // A server that does not let go of it keeps what it works with.
    const withLog = readFileSync(server.configFile, 'utf8') + `log_config: ${join(server.folder, 'log.yaml')}\n`;
    writeFileSync(join(server.folder, 'log.yaml'), 'root: {level: LOUD}');
    writeFileSync(server.configFile, withLog);
    const kept = await rookery('module', 'remove', './counter/index.mjs', '--config', server.configFile);
    expect(kept.code).toBe(1);
    expect(kept.output).toContain('its package and what it stored stay. Nothing was reloaded');
    expect(await greeting()).toBe('goodbye');
    withModule('goodbye');

    const removed = await rookery('module', 'remove', './counter/index.mjs', '--config', server.configFile);
    expect(removed).toMatchObject({ code: 0 });
    expect(removed.output).toContain('1 documents');
    expect(readFileSync(server.configFile, 'utf8')).not.toContain('counter');
    expect((await fetch(`${server.baseUrl}/_synapse/client/counter`)).status).toBe(404);
  });

  it('is told when there is nothing to reload', async () => {
    await server.stop();
    const { code, output } = await rookery('reload', '--config', server.configFile);
    expect(code).toBe(1);
    expect(output).toMatch(/does not run/);
  });
});
