import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { databaseKinds, ServerProcess } from '../support/server-process.js';

const command = join(process.cwd(), 'apps/ctl/bin/rookery.mjs');

function rookery(args: readonly string[], input = ''): Promise<{ code: number | null; output: string }> {
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const child = spawn(process.execPath, [command, ...args], { env: environment });
  let output = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  child.stderr.on('data', (data: Buffer) => (output += data.toString()));
  child.stdin.end(input);
  return new Promise((resolve) => child.on('exit', (code) => resolve({ code, output })));
}

describe.each(databaseKinds)('an operator (%s)', (kind) => {
  let server: ServerProcess;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind);
    await server.start();
  });
  afterAll(() => server?.remove());

  it('checks the settings', async () => {
    const { code, output } = await rookery(['config', 'check', server.configFile]);
    expect({ code, output }).toMatchObject({ code: 0 });
  });

  it('makes an administrator who can log in', async () => {
    const made = await rookery([
      'register-user',
      '--config',
      server.configFile,
      '-u',
      'root',
      '-p',
      'correct horse',
      '--admin',
      server.baseUrl,
    ]);
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
    const again = await rookery([
      'register-user',
      '--config',
      server.configFile,
      '-u',
      'root',
      '-p',
      'x',
      '--admin',
      server.baseUrl,
    ]);
    expect(again.code).not.toBe(0);
    expect(again.output).not.toMatch(/^\s+at /m);
  });

  it('sees the version that runs', async () => {
    const answer = await fetch(`${server.baseUrl}/_synapse/admin/v1/server_version`);
    expect(await answer.json()).toEqual({ server_version: expect.stringMatching(/^Rookery \d+\.\d+\.\d+$/) });
  });
});
