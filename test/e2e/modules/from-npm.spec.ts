import { execFile, type ExecFileException, spawn } from 'node:child_process';
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually, freePort } from '@rookery/testing';
import { stringify } from 'yaml';
import { NpmRegistry } from '../../support/npm-registry.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const minutes = 60_000;

let folder: string;
let registry: NpmRegistry;
let packed: string;
/** As somebody has it who knows of npm only: this Node.js, and no other registry. */
const env = (): NodeJS.ProcessEnv => ({
  ...registry.env(join(folder, 'cache')),
  PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
  ...(process.env['ROOKERY_TEST_POSTGRES'] ? { ROOKERY_TEST_POSTGRES: process.env['ROOKERY_TEST_POSTGRES'] } : {}),
});
const run = (cwd: string, command: string, ...args: string[]): Promise<{ code: number; output: string }> =>
  new Promise((resolve) => {
    execFile(command, args, { cwd, env: env(), maxBuffer: 1 << 26 }, (error: ExecFileException | null, out, err) =>
      resolve({ code: error ? Number(error.code ?? 1) : 0, output: out + err }),
    );
  });
const succeed = async (cwd: string, command: string, ...args: string[]): Promise<string> => {
  const { code, output } = await run(cwd, command, ...args);
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')} ended with ${code}\n${output.slice(-4_000)}`);
  return output;
};
const megabytesOf = (path: string): number => {
  const files = (readdirSync(path, { recursive: true }) as string[]).map((file) => lstatSync(join(path, file)));
  return files.filter((status) => status.isFile()).reduce((sum, { size }) => sum + size, 0) / 1e6;
};
const newFolder = (name: string): string => {
  const path = join(folder, name);
  mkdirSync(path);
  return path;
};

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-npm-'));
  packed = newFolder('packed');
  registry = await NpmRegistry.start();
  await succeed(root, process.execPath, 'tools/pack.mjs', packed);
  for (const file of readdirSync(packed)) registry.publish(join(packed, file));
}, 5 * minutes);
afterAll(async () => {
  await registry?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

it('everybody gets a whole package: words, licence, types for old and new, and nothing that leads nowhere', async () => {
  const place = newFolder('whole');
  writeFileSync(join(place, 'package.json'), '{"private": true}');
  await succeed(
    place,
    'npm',
    'install',
    ...['module-api', 'passport', 'nest', 'typeorm'].map((name) => `@rookery/${name}`),
  );
  for (const name of ['module-api', 'passport', 'nest', 'typeorm', 'matrix-types']) {
    const inside = join(place, 'node_modules/@rookery', name);
    const manifest = JSON.parse(readFileSync(join(inside, 'package.json'), 'utf8')) as Record<string, unknown>;
    expect(manifest).toMatchObject({
      ...{ license: 'Apache-2.0', main: './dist/index.js', types: './dist/index.d.ts' },
      engines: { node: expect.any(String) },
    });
    expect(manifest).not.toHaveProperty('private');
    expect(manifest).not.toHaveProperty('devDependencies');
    expect(JSON.stringify(manifest)).not.toContain('@rookery/source');
    const files = readdirSync(inside, { recursive: true }) as string[];
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'package.json']));
    expect(files.filter((file) => /\.map$|tsbuildinfo|\.spec\./.test(file))).toEqual([]);
  }
});

it(
  'from npm alone: a new module is written, checked, tested and packed, and a server that came the same way runs it',
  async () => {
    const work = newFolder('work');
    await succeed(work, 'npm', 'create', '--yes', '@rookery/module', 'shorter');
    const module = join(work, 'shorter');
    await succeed(module, 'npm', 'install');
    await succeed(module, 'npm', 'run', 'check');
    await succeed(module, 'npm', 'test');
    await succeed(module, 'npm', 'pack', '--silent');
    const [tarball] = readdirSync(module).filter((file) => file.endsWith('.tgz'));
    registry.publish(join(module, tarball!));

    const place = newFolder('server');
    const port = await freePort();
    const file = join(place, 'homeserver.yaml');
    const settings = {
      ...{ server_name: 'rookery.test', report_stats: false, public_baseurl: `http://127.0.0.1:${port}/` },
      ...{ signing_key_path: join(place, 'signing.key'), media_store_path: join(place, 'media') },
      ...{ enable_registration: true, enable_registration_without_verification: true, bcrypt_rounds: 4 },
      ...{ macaroon_secret_key: 'macaroons', form_secret: 'forms', trusted_key_servers: [] },
      database: { name: 'sqlite3', args: { database: join(place, 'homeserver.db') } },
      listeners: [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] }],
    };
    writeFileSync(join(place, 'package.json'), '{"private": true}');
    writeFileSync(file, stringify(settings));
    await succeed(place, 'npm', 'install', '@rookery/homeserver', '@rookery/ctl');
    const largestMb = 150;
    expect(megabytesOf(join(place, 'node_modules'))).toBeLessThan(largestMb);
    const rookery = join(place, 'node_modules/.bin/rookery');
    await succeed(place, rookery, 'config', 'check', file);
    expect(await succeed(place, rookery, 'module', 'add', 'shorter', '-c', file)).toContain('ok     shorter');
    expect(await succeed(place, rookery, 'module', 'check', '-c', file)).toContain('callbacks: checkEventForSpam');

    const server = spawn(join(place, 'node_modules/.bin/rookery-homeserver'), ['-c', file], { cwd: place, env: env() });
    let output = '';
    for (const stream of [server.stdout, server.stderr])
      stream.on('data', (part: Buffer) => (output += part.toString()));
    const ended = new Promise((resolve) => server.on('exit', resolve));
    try {
      const request = async (method: string, path: string, body?: object, token?: string) => {
        const response = await fetch(`http://127.0.0.1:${port}/_matrix/client/v3${path}`, {
          method,
          headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
          ...(body ? { body: JSON.stringify(body) } : {}),
        });
        return { status: response.status, body: (await response.json()) as Record<string, string> };
      };
      await eventually(
        async () => (await request('GET', '/login').catch(() => undefined))?.status === 200 || undefined,
      );
      const auth = { type: 'm.login.dummy' };
      const { body: user } = await request('POST', '/register', { username: 'anna', password: 'a password', auth });
      const token = user['access_token'];
      const { body: room } = await request('POST', '/createRoom', {}, token);
      const path = `/rooms/${encodeURIComponent(room['room_id']!)}/send/m.room.message`;
      const send = (id: string, text: string) =>
        request('PUT', `${path}/${id}`, { msgtype: 'm.text', body: text }, token);
      expect(await send('1', 'short')).toMatchObject({ status: 200 });
      expect(await send('2', 'long '.repeat(300))).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    } catch (error) {
      throw new Error(`${String(error)}\n${output}`, { cause: error });
    } finally {
      server.kill('SIGTERM');
      await ended;
    }

    // Found, looked at, and brought up to date; what would not start goes back.
    expect(await succeed(place, rookery, 'module', 'search', 'shorter')).toContain('shorter 0.1.0');
    expect(await succeed(place, rookery, 'module', 'info', 'shorter')).toMatch(/module API \^0\.1\.0: .* loads it/);
    const release = async (version: string, range: string): Promise<void> => {
      const path = join(module, 'package.json');
      const manifest = JSON.parse(readFileSync(path, 'utf8')) as object;
      writeFileSync(path, JSON.stringify({ ...manifest, version, peerDependencies: { '@rookery/module-api': range } }));
      await succeed(module, 'npm', 'pack', '--silent');
      registry.publish(join(module, `shorter-${version}.tgz`));
    };
    await release('0.2.0', '^9.0.0');
    expect(await succeed(place, rookery, 'module', 'info', 'shorter')).toContain('FAILED');
    const refused = await run(place, rookery, 'module', 'upgrade', '-c', file);
    expect(refused).toMatchObject({ code: 1, output: expect.stringContaining('shorter is 0.1.0 again') });
    expect(refused.output).toContain(
      'it is made for @rookery/module-api ^9.0.0, this server has 0.1.0; update the server or install an older version',
    );
    await succeed(place, rookery, 'module', 'check', '-c', file);
    await release('0.3.0', '^0.4.0');
    const upgraded = await succeed(place, rookery, 'module', 'upgrade', '-c', file);
    expect(upgraded).toContain('shorter 0.1.0 -> 0.3.0');
    expect(upgraded).toContain('warning: it is made for @rookery/module-api ^0.4.0, this server has 0.1.0');
    expect(await succeed(place, rookery, 'module', 'upgrade', '-c', file)).toContain('as new as can be');
    expect(await succeed(place, rookery, 'module', 'doctor', '-c', file)).toContain('ok     shorter');
  },
  15 * minutes,
);
