import { freePort } from '@rookery/testing';
import { spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { databaseKinds, ServerProcess } from '../support/server-process.js';

const main = join(process.cwd(), 'apps/homeserver/dist/bundle/main.js');

interface Run {
  readonly code: number | null;
  readonly output: string;
  readonly readyAfterMs: number | undefined;
}

function environment(): NodeJS.ProcessEnv {
  const copy = { ...process.env };
  delete copy['NODE_OPTIONS'];
  return copy;
}

/** Starts the program; once it says that it runs, calls `whileRunning` and sends SIGTERM. */
async function run(
  folder: string,
  args: readonly string[],
  whileRunning?: () => Promise<void>,
  nodeArgs: readonly string[] = [],
): Promise<Run> {
  const startedAt = performance.now();
  const child = spawn(process.execPath, [...nodeArgs, main, ...args], { cwd: folder, env: environment() });
  let output = '';
  let readyAfterMs: number | undefined;
  let running: Promise<void> | undefined;
  const onData = (data: Buffer): void => {
    output += data.toString();
    if (readyAfterMs !== undefined || !output.includes('is running as')) return;
    readyAfterMs = performance.now() - startedAt;
    running = Promise.resolve(whileRunning?.()).finally(() => child.kill('SIGTERM'));
    // What fails in it fails the test below.
    running.catch(() => undefined);
  };
  child.stdout.on('data', onData);
  child.stderr.on('data', onData);
  // Not `exit`: what was written last may arrive after that.
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  await running;
  return { code, output, readyAfterMs };
}

describe('starting', () => {
  const folders: string[] = [];
  const folder = (): string => {
    const made = mkdtempSync(join(tmpdir(), 'rookery-start-'));
    folders.push(made);
    return made;
  };
  afterAll(() => {
    for (const each of folders) rmSync(each, { recursive: true, force: true });
  });

  it.each(['SIGTERM', 'SIGINT'] as const)('ends in order on %s, however often that comes', async (signal) => {
    const args = ['--server-name', 'often.test', '--port', String(await freePort())];
    const child = spawn(process.execPath, [main, ...args], { cwd: folder(), env: environment() });
    let output = '';
    let sending: NodeJS.Timeout | undefined;
    child.stdout.on('data', (data: Buffer) => {
      output += data.toString();
      // As a terminal and the program that started it both do.
      if (output.includes('is running as')) sending ??= setInterval(() => child.kill(signal), 1);
    });
    const end = await new Promise<unknown[]>((resolve) => child.once('exit', (...args) => resolve(args)));
    clearInterval(sending);
    expect(end).toEqual([0, null]);
  });

  it('reads its settings once more after a start in which it was told to', async () => {
    const args = ['--server-name', 'hasty.test', '--port', String(await freePort())];
    const child = spawn(process.execPath, [main, ...args], { cwd: folder(), env: environment() });
    let output = '';
    let sending: NodeJS.Timeout | undefined;
    child.stdout.on('data', (data: Buffer) => {
      output += data.toString();
      // From the first line on, which is a warning about its settings.
      if (!output.includes('is running as')) sending ??= setInterval(() => child.kill('SIGHUP'), 1);
      else clearInterval(sending);
      if (output.includes('Settings reloaded')) child.kill('SIGTERM');
    });
    const end = await new Promise<unknown[]>((resolve) => child.once('exit', (...args) => resolve(args)));
    clearInterval(sending);
    expect(end).toEqual([0, null]);
  });

  it('goes on when it is told to reload before it has read its settings', async () => {
    const hooks = `process.getBuiltinModule('node:module').registerHooks({
      load(url, context, next) {
        if (/\\/run-[^/]*\\.js$/.test(url)) process.kill(process.pid, 'SIGHUP');
        return next(url, context);
      },
    })`;
    const args = ['--server-name', 'early.test', '--port', String(await freePort())];
    const { code, readyAfterMs } = await run(folder(), args, undefined, [
      '--import',
      `data:text/javascript,${encodeURIComponent(hooks)}`,
    ]);
    expect(code).toBe(0);
    expect(readyAfterMs).toBeDefined();
  });

  it('writes settings, key and database on the first run, and uses them on the second', async () => {
    const at = folder();
    const port = await freePort();
    const first = await run(at, ['--server-name', 'first.test', '--port', String(port)], async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/_matrix/client/versions`);
      expect(answer.status).toBe(200);
      const flows = await fetch(`http://127.0.0.1:${port}/_matrix/client/v3/login`);
      expect(await flows.json()).toMatchObject({ flows: expect.arrayContaining([{ type: 'm.login.password' }]) });
    });
    expect(first.output).toContain(`http://127.0.0.1:${port}`);
    expect(first.output).toContain('register-user');
    expect(first.code).toBe(0);
    expect(readdirSync(at).sort()).toEqual(['data', 'homeserver.yaml']);
    const settings = readFileSync(join(at, 'homeserver.yaml'), 'utf8');
    expect(settings).toMatch(/^server_name: first\.test$/m);
    expect(settings).toMatch(/^# /m);
    expect(statSync(join(at, 'homeserver.yaml')).mode & 0o077).toBe(0);
    expect(statSync(join(at, 'data/homeserver.db')).mode & 0o077).toBe(0);
    const key = readdirSync(join(at, 'data')).find((name) => name.endsWith('.signing.key'));
    const keyText = readFileSync(join(at, 'data', key ?? ''), 'utf8');
    expect(keyText).toMatch(/^ed25519 a_[A-Za-z]{4} [A-Za-z0-9+/]{43}\n$/);

    const second = await run(at, []);
    expect(second.code).toBe(0);
    expect(second.readyAfterMs).toBeDefined();
    expect(readFileSync(join(at, 'homeserver.yaml'), 'utf8')).toBe(settings);
    expect(readFileSync(join(at, 'data', key ?? ''), 'utf8')).toBe(keyText);
    expect(second.output).not.toMatch(/Upgrading the database/);

    for (const [late, reason] of [
      [['--server-name', 'second.test'], /^--server-name second\.test comes too late: .* says first\.test, .*\n$/],
      [['--port', '1'], /^--port 1 comes too late: change the port of the listener in .*homeserver\.yaml\n$/],
    ] as const)
      expect(await run(at, [...late])).toMatchObject({ code: 1, output: expect.stringMatching(reason) });
  });

  it('writes nothing but JSON into a log of JSON: one line says what runs', async () => {
    const at = folder();
    const args = ['--server-name', 'lines.test', '--port', String(await freePort())];
    for (const line of ['There is no account yet', 'is running as lines.test']) {
      const { code, output } = await run(at, args);
      expect(code).toBe(0);
      const lines = output
        .trim()
        .split('\n')
        .map((text) => JSON.parse(text) as Record<string, unknown>);
      expect(lines.filter(({ msg }) => String(msg).includes(line))).toHaveLength(1);
      expect(lines.filter(({ msg }) => / is running as /.test(String(msg)))).toMatchObject([
        {
          ...{ level: 'info', version: expect.stringMatching(/^\d+\.\d+/) as string, server_name: 'lines.test' },
          ...{ database: 'sqlite', schema: expect.any(Number) as number },
          listening: [expect.stringMatching(/^http:/)],
        },
      ]);
    }
    writeFileSync(join(at, 'text.yaml'), 'log_format: text\n');
    const text = await run(at, ['--config', 'homeserver.yaml', 'text.yaml']);
    expect(text.output).toMatch(/^Rookery \S+ is running as lines\.test$/m);
    expect(text.output).toContain('Make the first administrator');
  });

  it('takes the options that units of other servers have', async () => {
    const at = folder();
    writeFileSync(join(at, 'a.yaml'), "server_name: units.test\nreport_stats: false\nturn_shared_secret: ''\n");
    const listener = `{port: ${await freePort()}, type: http, bind_addresses: [127.0.0.1]}`;
    writeFileSync(join(at, 'b.yaml'), `listeners: [${listener}]\n`);
    const args = ['--config-path=a.yaml', '--config-path', 'b.yaml', '--no-secrets-in-config'];
    expect(await run(at, args)).toMatchObject({ code: 0, output: expect.stringContaining('is running as units.test') });
    writeFileSync(join(at, 'b.yaml'), `listeners: [${listener}]\nform_secret: here\n`);
    expect(await run(at, args)).toMatchObject({
      code: 1,
      output: expect.stringMatching(/b\.yaml:2: form_secret: secrets must not stand in the settings/),
    });
  });

  it('loads no library for what the settings do not ask for', async () => {
    const at = folder();
    const list = join(at, 'loaded.json');
    const hook = join(at, 'hook.mjs');
    writeFileSync(
      hook,
      `process.env.LOADED_MODULES = ${JSON.stringify(list)};
await import(${JSON.stringify(join(process.cwd(), 'test/support/loaded-modules.mjs'))});
`,
    );
    const args = ['--server-name', 'few.test', '--port', String(await freePort())];
    const { code } = await run(at, args, undefined, ['--import', hook]);
    expect(code).toBe(0);
    const { files } = JSON.parse(readFileSync(list, 'utf8')) as { files: string[] };
    const loaded = files.flatMap((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1] ?? []);
    expect(loaded).toEqual(expect.arrayContaining(['better-sqlite3', 'fastify']));
    const optional = ['@redis/client', 'pg', 'nodemailer', 'sharp', 'htmlparser2', 'minijinja-js', 'openid-client'];
    const libraries = [...optional, '@node-saml/node-saml', 'fast-xml-parser', 'typeorm', 'class-validator', 're2js'];
    expect(libraries.filter((name) => loaded.includes(name))).toEqual([]);
  });

  it('shows an error that nobody foresaw where it is in the sources', async () => {
    const at = folder();
    const hook = join(at, 'hook.mjs');
    writeFileSync(
      hook,
      `import { Server } from 'node:net';
Server.prototype.listen = () => {
  throw new Error('no listening today');
};
`,
    );
    const args = ['--server-name', 'places.test', '--port', String(await freePort())];
    const { code, output } = await run(at, args, undefined, ['--import', hook]);
    expect(code).toBe(1);
    expect(output).toMatch(/^Error: no listening today\n[^]*\(.*\/libs\/http\/src\/[\w/.-]+\.ts:\d+:\d+\)$/m);
    expect(output).toMatch(/ at .*\/apps\/homeserver\/src\/create-homeserver\.ts:\d+:\d+\)$/m);
  });

  describe('refuses with one clear line', () => {
    let taken: Server;
    let takenPort: number;
    beforeAll(async () => {
      taken = createServer();
      await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
      takenPort = (taken.address() as { port: number }).port;
    });
    afterAll(() => new Promise((resolve) => taken.close(resolve)));

    const settings = (at: string, port: number, more = ''): string => {
      const file = join(at, 'homeserver.yaml');
      writeFileSync(
        file,
        `server_name: refuse.test\nreport_stats: false\nsigning_key_path: signing.key\nmedia_store_path: media\n` +
          `listeners:\n  - {port: ${port}, bind_addresses: [127.0.0.1], type: http, resources: [{names: [client]}]}\n` +
          `database: {name: sqlite3, args: {database: homeserver.db}}\n${more}`,
      );
      return file;
    };
    const refused = async (at: string, file: string): Promise<string> => {
      const { code, output, readyAfterMs } = await run(at, ['--config', file]);
      expect(readyAfterMs).toBeUndefined();
      expect(code).not.toBe(0);
      expect(output).not.toMatch(/^\s+at .*\(/m);
      return output;
    };

    it('when the port is taken', async () => {
      const at = folder();
      expect(await refused(at, settings(at, takenPort))).toContain(String(takenPort));
    });

    it('when the signing key is no key', async () => {
      const at = folder();
      writeFileSync(join(at, 'signing.key'), 'this is no key\n');
      expect(await refused(at, settings(at, await freePort()))).toContain('signing.key');
      expect(readFileSync(join(at, 'signing.key'), 'utf8')).toBe('this is no key\n');
    });

    it('when the database is corrupt', async () => {
      const at = folder();
      writeFileSync(join(at, 'homeserver.db'), 'x'.repeat(10_000));
      expect(await refused(at, settings(at, await freePort()))).toContain('homeserver.db');
      expect(readFileSync(join(at, 'homeserver.db'), 'utf8')).toBe('x'.repeat(10_000));
    });

    it('when a setting is wrong, with file and line', async () => {
      const at = folder();
      expect(await refused(at, settings(at, await freePort(), 'bcrypt_rounds: many\n'))).toMatch(
        /homeserver\.yaml:8.*bcrypt_rounds.*whole number/,
      );
    });

    it('when a module is missing, with the command that mends it', async () => {
      const at = folder();
      const output = await refused(at, settings(at, await freePort(), 'modules: [{module: not-there, config: {}}]\n'));
      expect(output).toMatch(/not-there/);
      expect(output).toMatch(/rookery module add/);
    });

    it('when the settings file is not there', async () => {
      const at = folder();
      expect(await refused(at, join(at, 'other.yaml'))).toMatch(/There is no .*other\.yaml\nrookery config generate /);
    });

    it('when the folder cannot be written, and leaves nothing behind', async () => {
      const at = folder();
      const inner = join(at, 'inner');
      mkdirSync(inner);
      // Root may write anywhere: a file in the folder's place stops it as well.
      if (process.getuid?.() === 0) writeFileSync(join(inner, 'data'), '');
      else chmodSync(inner, 0o500);
      const { code, output } = await run(inner, ['--server-name', 'refuse.test', '--port', String(await freePort())]);
      expect(code).not.toBe(0);
      expect(output).not.toMatch(/^\s+at .*\(/m);
      expect(existsSync(join(inner, 'homeserver.yaml.new'))).toBe(false);
      chmodSync(inner, 0o700);
    });
  });

  it.each(databaseKinds)('refuses to be the second server on a database, or a worker beside it (%s)', async (kind) => {
    const server = await ServerProcess.prepare(kind);
    try {
      await server.start();
      const port = await freePort();
      const settings = readFileSync(server.configFile, 'utf8');
      const second = join(server.folder, 'second.yaml');
      writeFileSync(second, settings.replace(/port: \d+\n(\s+bind_addresses)/, `port: ${port}\n$1`));
      const refused = await run(server.folder, ['--config', second]);
      expect(refused.readyAfterMs).toBeUndefined();
      expect(refused.code).toBe(1);
      expect(refused.output).toMatch(/^Another server runs on the database .+\nStop that one first, .+\n$/m);
      expect(refused.output).not.toMatch(/^\s+at .*\(/m);

      const worker = join(server.folder, 'worker.yaml');
      writeFileSync(worker, `worker_app: synapse.app.generic_worker\nworker_name: w\nworker_listeners: []\n`);
      const asWorker = await run(server.folder, ['--config', second, worker]);
      expect(asWorker.code).toBe(1);
      expect(asWorker.output).toMatch(/worker\.yaml:1: worker_app: these are the settings of a worker/);

      expect((await fetch(`${server.baseUrl}/health`)).status).toBe(200);
      // A killed one leaves nothing behind that would keep the next one out.
      await server.stop('SIGKILL');
      await server.start();
    } finally {
      await server.remove();
    }
  });

  it('greets people, or sends them to a web client, and tells its process id', async () => {
    const at = folder();
    const port = await freePort();
    const base = `http://127.0.0.1:${port}/`;
    await run(at, ['--server-name', 'front.test', '--port', String(port)], async () => {
      const page = await fetch(base);
      expect(page.status).toBe(200);
      expect(await page.text()).toContain('front.test');
      expect((await fetch(`${base}_matrix/static/`)).status).toBe(200);
    });
    const file = join(at, 'homeserver.yaml');
    const settings = readFileSync(file, 'utf8');
    writeFileSync(file, `${settings}\nweb_client_location: https://app.example/\n`);
    // `rookery reload` finds the server without anybody having set anything.
    const pidFile = join(at, 'data', 'homeserver.pid');
    const { code } = await run(at, [], async () => {
      const answer = await fetch(base, { redirect: 'manual' });
      expect([answer.status, answer.headers.get('location')]).toEqual([302, 'https://app.example/']);
      expect(readFileSync(pidFile, 'utf8')).toMatch(/^\d+\n$/);
    });
    expect(code).toBe(0);
    expect(existsSync(pidFile)).toBe(false);
  });

  it('--help names the options', () => {
    const help = spawnSync(process.execPath, [main, '--help'], { encoding: 'utf8', env: environment() });
    expect(help.status).toBe(0);
    expect(help.stdout).toMatch(/--config/);
  });

  it('lets a request that is under way finish before it ends', async () => {
    const at = folder();
    const port = await freePort();
    let waiting: Promise<Response> | undefined;
    const { code } = await run(at, ['--port', String(port)], async () => {
      const secret =
        /registration_shared_secret: "?([A-Za-z]+)/.exec(readFileSync(join(at, 'homeserver.yaml'), 'utf8'))?.[1] ?? '';
      const base = `http://127.0.0.1:${port}`;
      const { nonce } = (await (await fetch(`${base}/_synapse/admin/v1/register`)).json()) as { nonce: string };
      const { createHmac } = await import('node:crypto');
      const mac = createHmac('sha1', secret).update(`${nonce}\0alice\0wonderland\0admin`).digest('hex');
      const registered = await fetch(`${base}/_synapse/admin/v1/register`, {
        method: 'POST',
        body: JSON.stringify({ nonce, username: 'alice', password: 'wonderland', admin: true, mac }),
      });
      const { access_token: token } = (await registered.json()) as { access_token: string };
      const headers = { authorization: `Bearer ${token}` };
      const { next_batch: since } = (await (await fetch(`${base}/_matrix/client/v3/sync`, { headers })).json()) as {
        next_batch: string;
      };
      waiting = fetch(`${base}/_matrix/client/v3/sync?timeout=60000&since=${since}`, { headers });
      waiting.catch(() => undefined);
      // By then it has come to the server, slow as the machine may be.
      await new Promise((resolve) => setTimeout(resolve, 2_000));
    });
    expect(code).toBe(0);
    const answer = await waiting;
    expect(answer?.status).toBe(200);
    expect(await answer?.json()).toHaveProperty('next_batch');
  });
});
