import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { LoadedModule } from './loader.js';
import { ownerOf } from './process-guard.js';

const here = fileURLToPath(new URL('.', import.meta.url));
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-guard-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a module's code in a guarded process of its own; `done` is printed when it lives on. */
function run(module: string, outside = '', more = ''): { code: number | null; out: string } {
  mkdirSync(join(folder, 'mine'));
  const file = join(folder, 'mine', 'index.mjs');
  writeFileSync(file, module);
  writeFileSync(
    join(folder, 'main.mjs'),
    `
    import { guardProcess } from '${join(here, '../dist/process-guard.js')}';
    const say = (message, fields) => console.log(message, fields.module, String(fields.err));
    const definition = { name: 'mine' };
    guardProcess(() => [{ url: '${pathToFileURL(file).href}', definition }${more}], { error: say });
    await import('${pathToFileURL(file).href}');
    ${outside}
    setTimeout(() => console.log('done'), 50);
  `,
  );
  const env = { ...process.env, NODE_OPTIONS: '' };
  const result = spawnSync(process.execPath, [join(folder, 'main.mjs')], { encoding: 'utf8', env });
  return { code: result.status, out: result.stdout };
}

it('logs a rejection that nobody awaits, with the module’s name, and the process lives on', () => {
  const { code, out } = run(`Promise.reject(new Error('floating'));`);
  expect(out).toBe('A promise was rejected with nobody listening mine Error: floating\ndone\n');
  expect(code).toBe(0);
});

it('logs an exception of a module’s timer, and the process lives on', () => {
  const { code, out } = run(`setTimeout(() => { throw new Error('in a timer'); }, 1);`);
  expect(out).toBe('A module threw where nobody could catch it mine Error: in a timer\ndone\n');
  expect(code).toBe(0);
});

/** Runs code of two modules as a host does, in the guarded process: `loaded` has them. */
function runHosted(
  modules: Readonly<Record<string, string>>,
  before = '',
  after = '',
): { code: number | null; out: string } {
  const entries = Object.entries(modules).map(([file, code]) => {
    writeFileSync(join(folder, file), code);
    return { module: `./${file}`, onError: 'deny', allowFederationTo: [] };
  });
  mkdirSync(join(folder, 'node_modules', 'dependency'), { recursive: true });
  writeFileSync(
    join(folder, 'node_modules', 'dependency', 'index.js'),
    `const { connect } = require('node:net');
     exports.knock = () => { connect(1, '127.0.0.1'); };
     exports.late = () => { setTimeout(() => { throw new Error('late'); }, 1); };`,
  );
  writeFileSync(
    join(folder, 'main.mjs'),
    `
    import { guardProcess, ModuleHost, offlineCapabilities } from '${join(here, '../dist/index.js')}';
    import { SilentLogger, SystemClock } from '${join(here, '../../platform/dist/index.js')}';
    const say = (message, fields) => console.log(message, fields.module, String(fields.err).replace(/.*ECONNREFUSED.*/, 'ECONNREFUSED'));
    const logger = new SilentLogger();
    const host = new ModuleHost({ clock: new SystemClock(), logger, configDir: ${JSON.stringify(folder)} });
    ${before}
    guardProcess(() => host.running, { error: say });
    const loaded = await host.import(${JSON.stringify(entries)});
    await host.start(loaded, offlineCapabilities({ serverName: 'example.org' }));
    const context = { source: 'client', isAdmin: false, duringRoomCreation: false };
    await host.dispatcher.gate('checkEventForSpam', context, { type: 'x' });
    ${after}
    setTimeout(() => console.log('done'), 100);
  `,
  );
  const env = { ...process.env, NODE_OPTIONS: '' };
  const result = spawnSync(process.execPath, [join(folder, 'main.mjs')], { encoding: 'utf8', env });
  return { code: result.status, out: result.stdout + result.stderr };
}
const hosted = (name: string, body: string, outside = ''): string => `
  import { defineModule, NOT_SPAM } from '@rookery/module-api';
  import { knock, late } from 'dependency';
  ${outside}
  export default defineModule({ name: '${name}', register(api) { ${body} } });`;
const onEvent = (body: string): string =>
  `api.registerSpamCheckerCallbacks({ checkEventForSpam: async () => { ${body}; return NOT_SPAM; } });`;

it.each([
  ['a socket of a package that nobody listens to, begun at import', hosted('guilty', '', 'knock();'), 'ECONNREFUSED'],
  ['such a socket, begun by a callback', hosted('guilty', onEvent('knock()')), 'ECONNREFUSED'],
  ['a timer of a package, begun at registration', hosted('guilty', 'late();'), 'Error: late'],
  ['a timer of a package, begun by a callback', hosted('guilty', onEvent('late()')), 'Error: late'],
  [
    'a timer of a package, begun in the background',
    hosted('guilty', `api.runAsBackgroundProcess('x', async () => late());`),
    'Error: late',
  ],
])('%s does not end the process, and the log names the module, not its neighbor', (_, module, said) => {
  const innocent = hosted('innocent', onEvent(''));
  expect(
    runHosted({
      'a-innocent.mjs': innocent,
      'guilty.mjs': module,
      'innocent.mjs': innocent.replace('innocent', 'other'),
    }),
  ).toEqual({
    code: 0,
    out: `A module threw where nobody could catch it guilty ${said}\ndone\n`,
  });
});

it('names the module whose callback rejects in a package, with nobody listening', () => {
  const module = hosted('guilty', onEvent(`Promise.resolve().then(() => { throw new Error('lost'); })`));
  expect(runHosted({ 'innocent.mjs': hosted('innocent', onEvent('')), 'guilty.mjs': module })).toEqual({
    code: 0,
    out: 'A promise was rejected with nobody listening guilty Error: lost\ndone\n',
  });
});

it('tells modules of one folder apart by their files, and names all where only the folder is known', () => {
  const module = (name: string): LoadedModule =>
    ({ url: pathToFileURL(join(folder, `${name}.mjs`)).href, definition: { name } }) as unknown as LoadedModule;
  const both = [module('innocent'), module('guilty')];
  const thrownIn = (file: string): Error =>
    Object.assign(new Error('x'), { stack: `Error: x\n    at f (${join(folder, file)}:1:2)` });
  expect(ownerOf(thrownIn('guilty.mjs'), both)).toBe('guilty');
  expect(ownerOf(thrownIn('shared.mjs'), both)).toBe('innocent or guilty');
});

it('lets an exception of the server itself end the process', () => {
  const { code, out } = run('', `setTimeout(() => { throw new Error('ours'); }, 1);`);
  expect(out).toBe('');
  expect(code).not.toBe(0);
});

it('names a module that ends the process, which then counts as failed', () => {
  const { code, out } = run(`setTimeout(() => process.exit(0), 1);`);
  expect(out).toBe('A module ended the process mine undefined\n');
  expect(code).toBe(1);
});

it('lets the server itself end the process as it likes', () => {
  expect(run('', 'process.exit(0);')).toEqual({ code: 0, out: '' });
});

/** Imports a module as a server does, in a process in which nothing else is going on. */
function load(module: string): { code: number | null; out: string; err: string } {
  writeFileSync(join(folder, 'module.mjs'), module);
  const script = `
    import { importModules, whileLoading } from '${join(here, '../dist/loader.js')}';
    import { SystemClock } from '${join(here, '../../platform/dist/index.js')}';
    const clock = new SystemClock();
    clock.after = (ms, fn) => SystemClock.prototype.after.call(clock, ms / 15, fn);
    const entry = { module: './module.mjs', onError: 'deny', allowFederationTo: [], where: () => 'homeserver.yaml:3' };
    entry.settingsOption = ' -c x.yaml';
    try {
      const [loaded] = await importModules([entry], { configDir: process.cwd(), clock });
      await whileLoading({ ...loaded, clock, late: 'it did not finish' }, async () => loaded.definition.register());
      console.log('loaded');
    } catch (error) {
      console.log(error.message);
    }`;
  const env = { ...process.env, NODE_OPTIONS: '' };
  const args = ['--input-type=module', '-e', script];
  const result = spawnSync(process.execPath, args, { encoding: 'utf8', env, cwd: folder });
  return { code: result.status, out: result.stdout, err: result.stderr };
}
const definition = (register: string, parseConfig = ''): string =>
  `export default { $$type: 'RookeryModule', name: 'm', apiVersion: '1.0', parseConfig() {${parseConfig}}, register() {${register}} };`;

it.each([
  ['while it is imported', 'process.exit(0);'],
  ['while it checks its settings', definition('', 'process.exit(0);')],
  ['while it registers', definition('process.exit(0);')],
])('a module that ends the process %s is named with what mends it, and the process counts as failed', (_, module) => {
  expect(load(module)).toEqual({
    code: 1,
    out: '',
    err:
      'homeserver.yaml:3: module ./module.mjs: its code ended the process while it was loaded; ' +
      'to do without it, run: rookery module remove ./module.mjs --keep-data -c x.yaml\n',
  });
});

it.each([
  ['is imported', 'await new Promise(() => {});', 'its code did not finish loading within 30 s'],
  ['registers', definition('return new Promise(() => {});'), 'it did not finish within 30 s'],
])(
  'a module that hangs while it %s is waited for and named, though nothing else keeps the process',
  (_, module, said) => {
    const { code, out } = load(module);
    expect(out).toContain(said);
    expect(code).toBe(0);
  },
);

it('takes no code of the server for that of a module that lies in its folder', () => {
  const module = (path: string): LoadedModule =>
    ({ url: pathToFileURL(path).href, definition: { name: 'near' } }) as unknown as LoadedModule;
  const root = join(here, '../../..');
  const thrownIn = (path: string): Error =>
    Object.assign(new Error('x'), { stack: `Error: x\n    at f (${path}:1:2)` });
  for (const path of [join(root, 'near.mjs'), join(root, 'near', 'index.js'), join(here, 'near.mjs')]) {
    expect(ownerOf(thrownIn(join(here, 'host.ts')), [module(path)])).toBeUndefined();
    expect(ownerOf(thrownIn(path), [module(path)])).toBe('near');
  }
  expect(ownerOf(thrownIn(join(root, 'near', 'other.js')), [module(join(root, 'near', 'index.js'))])).toBe('near');
  expect(ownerOf('a text', [module(join(root, 'near.mjs'))])).toBeUndefined();
});

it.each([
  ['is imported', 'for (;;);'],
  ['registers', definition('for (;;);')],
])(
  'a module that never gives the thread back while it %s is named before, and a signal ends the process',
  async (_, module) => {
    writeFileSync(join(folder, 'module.mjs'), module);
    const script = `
    import { writeSync } from 'node:fs';
    import { guardProcess, ModuleHost, offlineCapabilities } from '${join(here, '../dist/index.js')}';
    import { SilentLogger, SystemClock } from '${join(here, '../../platform/dist/index.js')}';
    class Said extends SilentLogger {
      info(message, fields) { writeSync(1, message + ' ' + fields.module + '\\n'); }
      child() { return this; }
    }
    process.on('SIGTERM', () => process.exit(0));
    const host = new ModuleHost({ clock: new SystemClock(), logger: new Said(), configDir: process.cwd() });
    guardProcess(() => host.running, new SilentLogger());
    const loaded = await host.import([{ module: './module.mjs', onError: 'deny', allowFederationTo: [] }]);
    await host.start(loaded, offlineCapabilities({ serverName: 'example.org' }));`;
    const env = { ...process.env, NODE_OPTIONS: '' };
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], { env, cwd: folder });
    const closed = new Promise((resolve) => child.on('close', (__, by) => resolve(by)));
    const last = module.startsWith('for') ? 'Loading module ./module.mjs' : 'Registering module m';
    let out = '';
    await new Promise<void>((resolve) => {
      child.stdout.on('data', (data: Buffer) => {
        out += data.toString();
        if (out.includes(last)) resolve();
      });
      void closed.then(() => resolve());
    });
    child.kill('SIGTERM');
    const signal = await closed;
    expect({ out: out.trim().split('\n').at(-1), signal }).toEqual({ out: last, signal: 'SIGTERM' });
  },
);

it('gives signals back to their listeners once modules are loaded', () => {
  const { out } = runHosted(
    { 'quiet.mjs': hosted('quiet', '') },
    `
    process.on('SIGTERM', () => { console.log('told'); });
    process.once('SIGTERM', () => { console.log('told once'); });`,
    `process.kill(process.pid, 'SIGTERM'); process.kill(process.pid, 'SIGTERM');`,
  );
  expect(out).toMatch(/^told\ntold once\n(told\n)?done\n$/);
});
