import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = fileURLToPath(new URL('../dist/', import.meta.url));
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-resolving-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(path: string, content: string | object): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), typeof content === 'string' ? content : JSON.stringify(content));
}

const source = (name: string): string =>
  `{ $$type: 'RookeryModule', name: '${name}', apiVersion: '1.0', parseConfig: () => undefined, register() {} }`;

/** Loads modules one by one in a plain process, since the tests' own loader finds packages by other rules. */
function load(...modules: string[]): string[] {
  const script = `
    import { importModules } from '${join(dist, 'loader.js')}';
    const answers = [];
    for (const module of ${JSON.stringify(modules)}) {
      try {
        const [loaded] = await importModules([{ module }], { configDir: process.cwd(), clock: { after: () => ({ cancel() {} }) } });
        answers.push(loaded.definition.name);
      } catch (error) {
        answers.push(error.message);
      }
    }
    console.log(JSON.stringify(answers));`;
  const env = { ...process.env, NODE_OPTIONS: '' };
  const answer = execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: folder, env });
  return (JSON.parse(String(answer)) as string[]).map((text) => text.replaceAll(folder, ''));
}

it('loads a package by whatever its exports and its main say', () => {
  write('node_modules/only-require/package.json', { exports: { '.': { require: './x.cjs' } } });
  write('node_modules/only-require/x.cjs', `exports.default = ${source('only-require')}`);
  write('node_modules/both/package.json', { exports: { import: './x.mjs', require: './x.cjs' } });
  write('node_modules/both/x.mjs', `export default ${source('imported')}`);
  write('node_modules/both/x.cjs', `module.exports = ${source('required')}`);
  write('node_modules/nested/package.json', {
    exports: { '.': { node: { import: './x.mjs' } }, './part': './part.mjs' },
  });
  write('node_modules/nested/x.mjs', `export const whatever = ${source('nested')}`);
  write('node_modules/nested/part.mjs', `export default ${source('part')}`);
  for (const main of ['./lib', 'lib/index']) {
    write(`node_modules/main-${main.length}/package.json`, { main });
    write(`node_modules/main-${main.length}/lib/index.js`, `module.exports = ${source(main.replaceAll(/\W/g, ''))}`);
  }
  write('mine/main/package.json', { name: 'm', main: 'lib' });
  write('mine/main/lib/index.js', `module.exports = ${source('folder-of-folder')}`);
  write('mine/required/package.json', { name: 'r', exports: { require: './x.cjs' } });
  write('mine/required/x.cjs', `exports.default = ${source('required-by-folder')}`);
  write('mine/no-main/package.json', { name: 'n', type: 'module' });
  write('mine/no-main/index.mjs', `export default ${source('no-main')}`);
  write('mine/typed/package.json', { name: 't', type: 'module', main: 'index.ts' });
  write('mine/typed/index.ts', `interface A { readonly a: 1 }\nexport default ${source('typed')};\nexport type B = A;`);
  expect(
    load(
      'only-require',
      'both',
      'nested',
      'nested/part',
      './mine/main',
      './mine/required',
      './mine/no-main',
      './mine/typed',
    ),
  ).toEqual([
    'only-require',
    'imported',
    'nested',
    'part',
    'folder-of-folder',
    'required-by-folder',
    'no-main',
    'typed',
  ]);
  expect(load('main-5', 'main-9')).toEqual(['lib', 'libindex']);
});

it('says what is wrong with a package that is installed, and not that it should be installed', () => {
  write('node_modules/unbuilt-main/package.json', { main: 'dist/x.js' });
  write('modules/package.json', {});
  write('modules/node_modules/unbuilt/package.json', { exports: './dist/x.js' });
  write('node_modules/partial/package.json', { exports: { './part': './x.js' } });
  write('node_modules/broken/package.json', '{');
  write('newer.mjs', "import { ofTomorrow } from '@rookery/module-api'; export default ofTomorrow;");
  expect(load('unbuilt-main', 'unbuilt', 'partial', 'partial/other', 'fs', 'nowhere', 'a_b.C')).toEqual([
    'module unbuilt-main: its entry /node_modules/unbuilt-main/dist/x.js is missing: build the module first',
    'module unbuilt: its entry /modules/node_modules/unbuilt/dist/x.js is missing: build the module first',
    'module partial: its package.json exports no entry: correct the settings, or the package',
    'module partial/other: its package.json exports no other: correct the settings, or the package',
    'module fs: it is a part of Node.js, and no module',
    'module nowhere: the package is not installed for ; run: rookery module add nowhere',
    'module a_b.C: this is the name of a Python class, which does not load here; what takes its place says: rookery module suggest',
  ]);
  const [broken = '', newer = ''] = load('broken', './newer.mjs');
  expect(broken).toMatch(/module broken: .*package\.json/);
  expect(newer).toMatch(
    /it may need a newer module API than this server's 1\.0: update the server, or install an older/,
  );
});
