import { spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from '@rookery/testing';
import { NpmRegistry } from '../../support/npm-registry.js';

const program = fileURLToPath(new URL('../../../apps/ctl/dist/main.js', import.meta.url));
const minutes = 60_000;

let folder: string;
let place: string;
let file: string;
let registry: NpmRegistry;
let env: NodeJS.ProcessEnv;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-upgrade-'));
  registry = await NpmRegistry.start();
  env = {
    ...registry.env(join(folder, 'cache')),
    PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
  };
});
afterAll(async () => {
  await registry?.stop();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  place = mkdtempSync(join(folder, 'place-'));
  file = join(place, 'homeserver.yaml');
  settings('');
});

const settings = (more: string): void =>
  writeFileSync(
    file,
    `server_name: example.org\nreport_stats: false\n${more}database: { name: sqlite3, args: { database: ${place}/a.db } }\n`,
  );
const start = (args: readonly string[], input?: string): Promise<{ code: number | null; output: string }> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, [program, 'module', ...args, '-c', file], { cwd: place, env });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (output += part.toString()));
    child.on('close', (code) => resolve({ code, output }));
    child.stdin.end(input ?? '');
  });
const rookery = async (...args: string[]): Promise<string> => {
  const { code, output } = await start(args);
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}\n${output}`);
  return output;
};

/** Publishes a version of a module. */
function release(name: string, version: string, rookeryField?: object, body = '', range = '^0.1.0'): void {
  const inside = join(folder, 'src', `${name}-${version}`);
  mkdirSync(inside, { recursive: true });
  const peers = { '@rookery/module-api': range };
  const manifest = { name, version, type: 'module', exports: './index.js', peerDependencies: peers };
  writeFileSync(join(inside, 'package.json'), JSON.stringify({ ...manifest, rookery: rookeryField }));
  writeFileSync(
    join(inside, 'index.js'),
    `import { defineModule } from '@rookery/module-api'; export default defineModule({ name: '${name}', register(api) { ${body} } });`,
  );
  const { stdout, status } = spawnSync('npm', ['pack', '--silent', '--pack-destination', folder], {
    cwd: inside,
    env,
    encoding: 'utf8',
  });
  expect(status).toBe(0);
  registry.publish(join(folder, stdout.trim()));
}
const versionOf = (name: string, modules = 'modules'): string =>
  (JSON.parse(readFileSync(join(place, modules, 'node_modules', name, 'package.json'), 'utf8')) as { version: string })
    .version;
/** What lies beside the settings, without the settings. */
const beside = (): string[] =>
  readdirSync(place)
    .filter((name) => name.startsWith('modules'))
    .sort();

it(
  'what a new version wants beyond what the one before did is shown, and needs a yes',
  async () => {
    release('asks', '1.0.0', { callbacks: ['userMayJoinRoom'], hosts: ['a.example'] });
    await rookery('add', 'asks');
    release('asks', '1.1.0', { callbacks: ['userMayJoinRoom'], hosts: ['a.example', 'b.example'], secrets: ['KEY'] });
    for (const [answer, said] of [
      ['', 'there is nobody to ask; --yes installs them nevertheless: asks stays 1.0.0'],
      ['no\n', 'Nothing has changed: asks stays 1.0.0'],
    ] as const) {
      const { code, output } = await start(['upgrade'], answer);
      expect([code, versionOf('asks')]).toEqual([answer === '' ? 1 : 1, '1.0.0']);
      expect(output).toContain('from now on sends requests to: b.example\n');
      expect(output).toContain('from now on reads from the environment: KEY\n');
      expect(output).not.toContain('from now on is asked');
      expect(output).toContain(said);
    }
    expect(await start(['upgrade'], 'yes\n')).toMatchObject({ code: 0 });
    expect(versionOf('asks')).toBe('1.1.0');
    release('asks', '1.2.0');
    expect(await rookery('upgrade', '--yes')).toContain('from now on it does not say what it uses');
    expect(versionOf('asks')).toBe('1.2.0');
    expect(beside()).toEqual(['modules']);
  },
  5 * minutes,
);

it(
  'what would not start is never installed, and what is there stays, also without the registry',
  async () => {
    release('stays', '1.0.0', {});
    await rookery('add', 'stays');
    release('stays', '1.1.0', {}, 'throw new Error("no luck");');
    const refused = await start(['upgrade']);
    expect(refused).toMatchObject({ code: 1, output: expect.stringContaining('register() failed: no luck') });
    expect(refused.output).toContain('The server would not start with these versions: stays stays 1.0.0');
    release('stays', '1.2.0', {}, '', '^9.0.0');
    const other = await start(['upgrade']);
    expect(other.output).toContain('it is made for @rookery/module-api ^9.0.0, this server has 0.1.0');
    expect([other.code, versionOf('stays')]).toEqual([1, '1.0.0']);
    const away = { ...env };
    Object.assign(env, { npm_config_registry: 'http://127.0.0.1:1/', npm_config_fetch_retries: '0' });
    try {
      for (const command of [['upgrade'], ['add', 'another']]) {
        const { code, output } = await start(command);
        expect([code, output]).toEqual([1, expect.stringContaining('what is installed has not changed')]);
      }
    } finally {
      Object.assign(env, away);
    }
    expect(await rookery('check')).toContain('ok     stays');
    expect(beside()).toEqual(['modules']);
  },
  5 * minutes,
);

it(
  'whoever is killed in the middle leaves the packages of before, or the new ones, and the next command tidies up',
  async () => {
    release('killed', '1.0.0', {});
    await rookery('add', 'killed');
    release('killed', '1.1.0', {}, `await new Promise((done) => setTimeout(done, 2_000));`.replace('await', 'return'));
    const child = spawn(process.execPath, [program, 'module', 'upgrade', '-c', file], {
      cwd: place,
      env,
      stdio: 'ignore',
    });
    const ended = new Promise((resolve) => child.on('exit', resolve));
    // While the new version is looked at.
    await eventually(() => beside().some((name) => name.includes('.next-')));
    const second = await start(['upgrade']);
    expect(second.output).toMatch(/The process \d+ is changing what is installed/);
    child.kill('SIGKILL');
    await ended;
    expect(versionOf('killed')).toBe('1.0.0');
    expect(await rookery('check')).toContain('ok     killed');
    expect(beside().length).toBeGreaterThan(1);
    await rookery('doctor');
    await eventually(async () => (await start(['doctor']), beside().length === 1));

    // Between the two steps in which one set takes the place of another, a server still finds the one.
    renameSync(join(place, 'modules'), join(place, 'modules.former'));
    expect(await rookery('check')).toContain('ok     killed');
    expect(await rookery('doctor')).toContain('interrupted command');
    expect([versionOf('killed'), beside()]).toEqual(['1.0.0', ['modules']]);
  },
  5 * minutes,
);

it(
  'a module that others need is not removed, and a removal that was interrupted can be ended',
  async () => {
    release(
      'base',
      '1.0.0',
      {},
      `api.messages.answer('hi', async () => ({})); api.registerMediaStorageProvider('tape', () => ({ storeFile() {}, fetch() {} }));`,
    );
    release('asker', '1.0.0', { modules: ['base'] });
    await rookery('add', 'base');
    await rookery('add', 'asker');
    const text = readFileSync(file, 'utf8');
    const refused = await start(['remove', 'base']);
    expect([refused.code, readFileSync(file, 'utf8'), existsSync(join(place, 'modules/node_modules/base'))]).toEqual([
      1,
      text,
      true,
    ]);
    expect(refused.output).toContain(
      'asker asks base: remove that first; to remove it all the same: rookery module remove base --force',
    );
    await rookery('remove', 'asker');
    writeFileSync(
      file,
      `${readFileSync(file, 'utf8')}media_storage_providers: [{ module: tape, store_local: true }]\n`,
    );
    const needed = await start(['remove', 'base']);
    expect([needed.code, needed.output]).toEqual([
      1,
      expect.stringMatching(/would not start without base: .*media storage tape: no module/),
    ]);

    // As it is left when somebody is killed after the settings were written.
    settings('');
    expect(await rookery('doctor')).toContain('warning: base is installed and not listed');
    const { output } = await start(['remove', 'base']);
    expect(output).toContain('It had stored nothing');
    expect(existsSync(join(place, 'modules/node_modules/base'))).toBe(false);
    expect(await start(['remove', 'base'])).toMatchObject({
      code: 1,
      output: expect.stringContaining('lists no module called base'),
    });

    await rookery('add', 'base');
    await rookery('add', 'asker');
    await rookery('remove', 'base', '--force');
    expect(await rookery('check')).toContain('warning: asker asks the module base, which the settings do not list');
  },
  5 * minutes,
);
