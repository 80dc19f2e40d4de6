import { execFile, type ExecFileException, spawn } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually, freePort } from '@rookery/testing';
import pg from 'pg';
import ts from 'typescript';
import { parse, stringify } from 'yaml';
import { docExamples, untyped } from '../../support/doc-examples.js';
import { NpmRegistry } from '../../support/npm-registry.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const minutes = 60_000;
/** What a release is told of where the sources lie. */
const repository = 'https://code.example/rookery.git';

/** Counts, as other modules ask it to; its settings by a schema of no library. */
const scores = `
import { defineModule } from '@rookery/module-api';
const validate = (value) => {
  const issues = [];
  if (typeof value.start !== 'number') issues.push({ message: 'expected a number', path: ['start'] });
  if (!(value.step > 0)) issues.push({ message: 'expected more than 0', path: [{ key: 'step' }] });
  return issues.length > 0 ? { issues } : { value };
};
export default defineModule({
  name: 'scores',
  configSchema: { '~standard': { version: 1, vendor: 'nobody', validate } },
  register(api, { start, step }) {
    let score = start;
    api.messages.answer('add', async () => ({ score: (score += step) }));
    api.registerWebResource('/_synapse/client/scores', async () => {
      const users = [];
      for await (const { userId } of api.listUsers()) users.push(userId);
      return Response.json({ score, users });
    });
  },
});\n`;
/** Refuses by what another module says. */
const judge = `
import { defineModule, NOT_SPAM, SafePattern } from '@rookery/module-api';
export default defineModule({
  name: 'judge',
  register(api) {
    const bad = new SafePattern('refused (word)+');
    api.registerSpamCheckerCallbacks({ async checkEventForSpam({ content }) {
      if (!bad.test(String(content.body))) return NOT_SPAM;
      const { score } = await api.messages.ask('scores', 'add', {});
      return score > 5 ? 'M_FORBIDDEN' : NOT_SPAM;
    } });
  },
});\n`;

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
  await succeed(root, process.execPath, 'tools/pack.mjs', '--repository', repository, packed);
  for (const file of readdirSync(packed)) registry.publish(join(packed, file));
}, 5 * minutes);
afterAll(async () => {
  await registry?.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

it('everybody gets a whole package: words, licence, types for old and new, and nothing that leads nowhere', async () => {
  const place = newFolder('whole');
  const tarballs = readdirSync(packed);
  const names: string[] = [];
  for (const tarball of tarballs) {
    const inside = join(place, tarball);
    mkdirSync(inside);
    await succeed(place, 'tar', '-xzf', join(packed, tarball), '-C', inside, '--strip-components=1');
    const manifest = JSON.parse(readFileSync(join(inside, 'package.json'), 'utf8')) as {
      readonly name: string;
      readonly exports: Record<string, Record<string, string>>;
      readonly dependencies?: Record<string, string>;
    };
    names.push(manifest.name);
    expect(manifest).toMatchObject({
      ...{
        license: 'Apache-2.0',
        description: expect.stringMatching(/./),
        keywords: expect.arrayContaining(['matrix']),
      },
      ...{ main: './dist/index.js', types: './dist/index.d.ts', engines: { node: expect.any(String) } },
      exports: { '.': { types: './dist/index.d.ts', default: './dist/index.js' }, './package.json': './package.json' },
      repository: {
        type: 'git',
        url: repository,
        directory: expect.stringMatching(/^(?:libs|apps|modules-examples)\/[\w-]+$/),
      },
      publishConfig: { access: 'public', provenance: true },
    });
    for (const field of ['private', 'devDependencies', 'scripts']) expect(manifest).not.toHaveProperty(field);
    expect(JSON.stringify(manifest)).not.toContain('@rookery/source');
    // What it needs of ours comes from where it came from, in one version.
    const needs = Object.entries(manifest.dependencies ?? {}).filter(([name]) => name.startsWith('@rookery'));
    for (const [, range] of needs) expect(range).toMatch(/^\d+\.\d+\.\d+$/);
    const files = readdirSync(inside, { recursive: true }) as string[];
    const wanted = ['LICENSE', 'README.md', 'package.json', 'dist/index.js', 'dist/index.d.ts'];
    expect(files).toEqual(expect.arrayContaining(wanted));
    // An error that came by in the bundle is placed by the map beside it, which names what lies in which package.
    const placed = files.filter((file) => /^dist\/bundle\/[^/]+\.js\.map$/.test(file));
    expect(placed.length > 0).toBe(manifest.name === '@rookery/homeserver');
    for (const map of placed) {
      const { sources } = JSON.parse(readFileSync(join(inside, map), 'utf8')) as { readonly sources: string[] };
      expect(sources.filter((source) => !/^(?:\.\.\/){2,4}(?!libs\/|node_modules\/)[@\w]/.test(source))).toEqual([]);
      expect(files).toContain(map.slice(0, -'.map'.length));
    }
    const others = files.filter((file) => !placed.includes(file));
    expect(others.filter((file) => /\.map$|tsbuildinfo|\.(spec|fixture)\./.test(file))).toEqual([]);
    expect(readFileSync(join(inside, 'README.md'), 'utf8').length).toBeGreaterThan(100);
  }
  const folders = ['libs', 'apps', 'modules-examples'].flatMap((group) =>
    readdirSync(join(root, group)).map((name) => join(root, group, name, 'package.json')),
  );
  const ours = folders
    .filter((path) => existsSync(path))
    .map((path) => (JSON.parse(readFileSync(path, 'utf8')) as { name: string }).name);
  expect(names.sort()).toEqual(ours.sort());
});

it('who writes modules gets types, however their compiler looks packages up', async () => {
  const place = newFolder('types');
  // As here: TypeORM says that it wants an older driver than the server brings.
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    readonly dependencies: Record<string, string>;
  };
  const overrides = { typeorm: { 'better-sqlite3': dependencies['better-sqlite3'] } };
  writeFileSync(join(place, 'package.json'), JSON.stringify({ private: true, type: 'module', overrides }));
  const bridges = ['module-api', 'passport', 'nest', 'typeorm', 'testing'].map((name) => `@rookery/${name}`);
  await succeed(place, 'npm', 'install', ...bridges);
  writeFileSync(
    join(place, 'uses.ts'),
    `import { defineModule, type ModuleApi } from '@rookery/module-api';
    import { nestModule } from '@rookery/nest';
    import { passportProvider } from '@rookery/passport';
    import { createTestHomeserver } from '@rookery/testing';
    import { moduleDataSource } from '@rookery/typeorm';
    export const all: unknown[] = [nestModule, passportProvider, createTestHomeserver, moduleDataSource];
    export default defineModule({ name: 'a', register(api: ModuleApi) {
      // @ts-expect-error There is no such callback: what is imported has types.
      api.registerSpamCheckerCallbacks({ nothing: () => true });
    } });\n`,
  );
  const tsc = join(root, 'node_modules/typescript7/bin/tsc');
  for (const [module, resolution] of [
    ['nodenext', 'nodenext'],
    ['node20', 'node16'],
    ['preserve', 'bundler'],
  ] as const)
    await succeed(
      place,
      process.execPath,
      tsc,
      ...['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2024', '--types', ''],
      ...['--module', module, '--moduleResolution', resolution, 'uses.ts'],
    );

  // And what the documents show them compiles.
  await succeed(place, 'npm', 'install', '@types/node');
  writeFileSync(join(place, 'untyped.d.ts'), untyped);
  const examples = docExamples();
  expect(examples.length).toBeGreaterThan(30);
  // Every name that a package exports is in one of them.
  const declared = ts.createProgram(
    bridges.map((name) => join(place, 'node_modules', name, 'dist/index.d.ts')),
    { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, skipLibCheck: true },
  );
  const checker = declared.getTypeChecker();
  const shown = examples.map((example) => example.shown).join('\n');
  for (const name of bridges) {
    const file = declared.getSourceFile(join(place, 'node_modules', name, 'dist/index.d.ts'))!;
    const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(file)!).map((symbol) => symbol.name);
    expect(exported.length).toBeGreaterThan(2);
    const unused = exported.filter((one) => !new RegExp(`\\b${one}\\b`).test(shown));
    expect([name, unused]).toEqual([name, []]);
  }
  const written = examples.map(({ place: where, text }, i) => {
    const file = `${i}-${where.replace(/[^\w.]+/g, '-')}.ts`;
    writeFileSync(join(place, file), `// ${where}\n${text}`);
    return file;
  });
  const strictly = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2024', '--module', 'nodenext'];
  const decorating = ['--experimentalDecorators', '--emitDecoratorMetadata'];
  await succeed(
    place,
    process.execPath,
    tsc,
    ...strictly,
    ...decorating,
    '--types',
    'node',
    'untyped.d.ts',
    ...written,
  );
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
    writeFileSync(join(place, 'scores.mjs'), scores);
    writeFileSync(join(place, 'judge.mjs'), judge);
    const scored = { module: './scores.mjs', config: { start: 'high', step: 0 } };
    writeFileSync(file, stringify({ ...settings, modules: [scored] }));
    await succeed(place, 'npm', 'install', '@rookery/homeserver', '@rookery/ctl');
    const largestMb = 150;
    expect(megabytesOf(join(place, 'node_modules'))).toBeLessThan(largestMb);
    // Who does not use the bridges does not have them.
    const bridges = ['@rookery/nest', '@rookery/typeorm', '@rookery/passport', 'typeorm'];
    expect(bridges.filter((name) => existsSync(join(place, 'node_modules', name)))).toEqual([]);
    const rookery = join(place, 'node_modules/.bin/rookery');
    // A schema says everything that is wrong.
    const wrong = await run(place, rookery, 'module', 'check', '-c', file);
    expect(wrong.code).toBe(1);
    for (const problem of ['config.start: expected a number', 'config.step: expected more than 0'])
      expect(wrong.output).toContain(problem);
    scored.config = { start: 5, step: 2 } as never;
    writeFileSync(file, stringify({ ...settings, modules: [scored, { module: './judge.mjs', shadow: true }] }));
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
      // One in shadow refuses nothing; what it asked of another one has an answer, and accounts are read one by one.
      expect(await send('3', 'a refused word')).toMatchObject({ status: 200 });
      const seen = await eventually(async () => {
        const response = await fetch(`http://127.0.0.1:${port}/_synapse/client/scores`);
        const told = (await response.json()) as { score: number; users: string[] };
        return told.score > 5 && told;
      });
      expect(seen).toEqual({ score: 7, users: ['@anna:rookery.test'] });
      // What a server writes comes when it comes.
      await eventually(() => output.includes('A module in shadow would have refused something'));
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
    expect(refused).toMatchObject({ code: 1, output: expect.stringContaining('shorter stays 0.1.0') });
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

it(
  'who runs a server installs it for the whole machine, as the page says, and adds the part that it lacks',
  async () => {
    const prefix = newFolder('machine');
    const place = newFolder('operator');
    const data = join(place, 'data');
    const file = join(place, 'homeserver.yaml');
    const anywhere = { ...env(), npm_config_prefix: prefix, PATH: `${join(prefix, 'bin')}:${env()['PATH']}` };
    /** A line of the page, in a shell. */
    const line = (text: string): Promise<{ code: number; output: string }> =>
      new Promise((resolve) => {
        execFile('sh', ['-c', text], { cwd: place, env: anywhere, maxBuffer: 1 << 26 }, (error, out, err) =>
          resolve({ code: error ? Number(error.code ?? 1) : 0, output: out + err }),
        );
      });
    const done = async (text: string): Promise<string> => {
      const { code, output } = await line(text);
      if (code !== 0) throw new Error(`${text} ended with ${code}\n${output.slice(-4_000)}`);
      return output;
    };
    const page = readFileSync(join(root, 'docs/operators/install.md'), 'utf8');
    const [install, withPostgres] = [...page.matchAll(/`(npm install -g @rookery\/homeserver(?: pg@\d+)?)`/g)];
    await done(install![1]!);
    const [, example] = /```sh\n(rookery config generate[^]*?)```/.exec(page)!;
    const [generate, start] = example!
      .replaceAll('/etc/rookery/homeserver.yaml', file)
      .replaceAll('/var/lib/rookery', data)
      .trim()
      .split('\n');
    await done(generate!);
    const port = await freePort();
    const settings = parse(readFileSync(file, 'utf8')) as { listeners: { port: number }[]; database: object };
    settings.listeners = settings.listeners.slice(0, 1).map((listener) => ({ ...listener, port }));
    writeFileSync(file, stringify(settings));

    const running = async (use: () => Promise<void>): Promise<void> => {
      const server = spawn('sh', ['-c', `exec ${start}`], { cwd: place, env: anywhere });
      let output = '';
      for (const stream of [server.stdout, server.stderr])
        stream.on('data', (part: Buffer) => (output += part.toString()));
      const ended = new Promise((resolve) => server.on('exit', resolve));
      try {
        await eventually(async () => {
          if (server.exitCode !== null) throw new Error('The server has ended');
          return (await fetch(`http://127.0.0.1:${port}/health`).catch(() => undefined))?.ok;
        });
        await use();
      } catch (error) {
        throw new Error(`${String(error)}\n${output}`, { cause: error });
      } finally {
        server.kill('SIGTERM');
        await ended;
      }
    };
    const register = `rookery register-user --config ${file} --user root --password secret --admin`;
    await running(async () => {
      expect(await done(register)).toContain('@root:example.org');
      expect(await done(`rookery config check ${file}`)).toBeDefined();
      expect(await done('rookery --version')).toMatch(/\d+\.\d+\.\d+/);
    });

    const { hostname, port: postgresPort, username, password } = new URL(process.env['ROOKERY_TEST_POSTGRES']!);
    const name = `rookery_global_${process.pid}`;
    const client = new pg.Client({ connectionString: process.env['ROOKERY_TEST_POSTGRES'] });
    await client.connect();
    try {
      await client.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'`);
      const args = { host: hostname, port: Number(postgresPort), user: username, password, dbname: name };
      writeFileSync(file, stringify({ ...settings, database: { name: 'psycopg2', args } }));
      const lacking = await line(start!);
      expect(lacking).toMatchObject({
        code: 1,
        output: expect.stringMatching(/needs the package pg: .*npm install -g pg@/),
      });
      await done(withPostgres![1]!);
      await running(async () => {
        expect(await done(register)).toContain('@root:example.org');
      });
    } finally {
      await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
      await client.end();
    }
  },
  15 * minutes,
);
