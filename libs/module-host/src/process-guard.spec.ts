import { spawnSync } from 'node:child_process';
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
function run(module: string, outside = ''): { code: number | null; out: string } {
  mkdirSync(join(folder, 'mine'));
  const file = join(folder, 'mine', 'index.mjs');
  writeFileSync(file, module);
  writeFileSync(
    join(folder, 'main.mts'),
    `
    import { guardProcess } from '${join(here, 'process-guard.ts')}';
    const say = (message: string, fields: { module?: string; err: Error }) => console.log(message, fields.module, String(fields.err));
    const definition = { name: 'mine' };
    guardProcess(() => [{ url: '${pathToFileURL(file).href}', definition }] as never, { error: say } as never);
    await import('${pathToFileURL(file).href}');
    ${outside}
    setTimeout(() => console.log('done'), 50);
  `,
  );
  const env = { ...process.env, NODE_OPTIONS: '' };
  const result = spawnSync(process.execPath, [join(folder, 'main.mts')], { encoding: 'utf8', env });
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
