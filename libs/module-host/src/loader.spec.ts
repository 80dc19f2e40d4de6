import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SystemClock } from '@rookery/platform';
import { importModules, type LoadedModule, type ModuleEntry } from './loader.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-loader-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A module as plain objects, since a package in an empty folder has no @rookery/module-api: the brand is a string. */
const source = (name: string, more = ''): string =>
  `{ $$type: 'RookeryModule', name: '${name}', apiVersion: '1.0', parseConfig: (raw) => raw, register() {}, ${more} }`;

function write(path: string, content: string | object): void {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
}

const load = async (module: string, more: Partial<ModuleEntry> = {}): Promise<LoadedModule> => {
  const entry: ModuleEntry = {
    module,
    config: undefined,
    onError: 'deny',
    timeLimitMs: undefined,
    allowFederationTo: [],
    where: (path) => ['homeserver.yaml:7', ...path].join('/'),
    ...more,
  };
  const [loaded] = await importModules([entry], { configDir: folder, clock: new SystemClock() });
  return loaded as LoadedModule;
};
const nameOf = async (module: string): Promise<string> => (await load(module)).definition.name;

it('loads a package whose exports know nothing but import', async () => {
  write('node_modules/only-import/package.json', { type: 'module', exports: { '.': { import: './x.js' } } });
  write('node_modules/only-import/x.js', `export default ${source('only-import')}`);
  expect(await nameOf('only-import')).toBe('only-import');
});

it('loads CommonJS, plain and as compilers write it', async () => {
  write('node_modules/plain/package.json', { main: 'main.js' });
  write('node_modules/plain/main.js', `module.exports = ${source('plain')}`);
  write('node_modules/compiled/package.json', { main: './main.js' });
  write(
    'node_modules/compiled/main.js',
    `Object.defineProperty(exports, '__esModule', { value: true }); exports.default = ${source('compiled')}`,
  );
  expect(await nameOf('plain')).toBe('plain');
  expect(await nameOf('compiled')).toBe('compiled');
});

it('takes modules that bring a module API of their own: brands count, not classes', async () => {
  write('node_modules/@rookery/module-api/package.json', {
    name: '@rookery/module-api',
    type: 'module',
    exports: './x.js',
  });
  // Another version, with classes of its own.
  write(
    'node_modules/@rookery/module-api/x.js',
    `export class ConfigError extends Error { $$type = 'ConfigError'; constructor(m, path) { super(m); this.path = path; } }
    export const defineModule = (definition) => ({ $$type: 'RookeryModule', apiVersion: '1.0', ...definition });
    export const version = 'of the module';`,
  );
  write(
    'own.mjs',
    `import { ConfigError, defineModule, version } from '@rookery/module-api';
    export default defineModule({ name: 'own', parseConfig(raw) {
      if (raw?.a) throw new ConfigError('expected nothing', ['a']);
      return version;
    }, register() {} });`,
  );
  expect((await load('./own.mjs')).config).toBe('of the module');
  await expect(load('./own.mjs', { config: { a: 1 } })).rejects.toThrow(
    'homeserver.yaml:7/config/a: module own: config.a: expected nothing',
  );
});

it('loads a scoped package, a path, a folder and a URL', async () => {
  write('node_modules/@scope/pkg/package.json', { type: 'module', exports: './x.js' });
  write('node_modules/@scope/pkg/x.js', `export default ${source('scoped')}`);
  write('mine/file.mjs', `export const anything = ${source('by-path')}`);
  write('mine/folder/package.json', { name: 'f', type: 'module', exports: { import: './lib/x.js' } });
  write('mine/folder/lib/x.js', `export default ${source('by-folder')}`);
  write('mine/old/package.json', { main: 'x.cjs' });
  write('mine/old/x.cjs', `module.exports = ${source('by-main')}`);
  expect(await nameOf('@scope/pkg')).toBe('scoped');
  expect(await nameOf('./mine/file.mjs')).toBe('by-path');
  expect(await nameOf(join(folder, 'mine/file.mjs'))).toBe('by-path');
  expect(await nameOf(pathToFileURL(join(folder, 'mine/file.mjs')).href)).toBe('by-path');
  expect(await nameOf('./mine/folder')).toBe('by-folder');
  write('mine/bare/index.mjs', `export default ${source('by-index')}`);
  expect(await nameOf('./mine/old')).toBe('by-main');
  expect(await nameOf('./mine/bare')).toBe('by-index');
});

it('picks one of several modules by the name of its export', async () => {
  write('two.mjs', `export const one = ${source('one')}; export const two = ${source('two')};`);
  expect(await nameOf('./two.mjs#two')).toBe('two');
  await expect(load('./two.mjs')).rejects.toThrow(/several modules; pick one: \.\/two\.mjs#one, \.\/two\.mjs#two/);
  await expect(load('./two.mjs#three')).rejects.toThrow(/its export three is no module/);
});

it.each([
  ['not-there', 'rookery module add not-there'],
  ['@scope/not-there/sub', 'rookery module add @scope/not-there'],
])('names the command that mends a missing package: %s', async (name, command) => {
  await expect(load(name)).rejects.toThrow(
    `homeserver.yaml:7: module ${name}: the package is not installed for ${folder}; run: ${command}`,
  );
});

it('says what is wrong with a path, a folder and a package', async () => {
  write('empty/readme.md', '');
  write('unbuilt/package.json', { name: 'unbuilt', exports: './dist/index.js' });
  write('broken.mjs', 'export default {');
  write('throws.mjs', "throw new Error('no luck')");
  write('nothing.mjs', 'export default 42');
  await expect(load('./gone.mjs')).rejects.toThrow(/there is no .*gone\.mjs: correct the path/);
  await expect(load('./empty')).rejects.toThrow(/has neither a package\.json nor an index\.js/);
  await expect(load('./unbuilt')).rejects.toThrow(/build the module first/);
  await expect(load('./broken.mjs')).rejects.toThrow(
    /broken\.mjs cannot be loaded: Unexpected end of input; to see where: node --check \S+broken\.mjs$/,
  );
  await expect(load('./throws.mjs')).rejects.toThrow(/throws\.mjs:1:7 cannot be loaded: no luck/);
  await expect(load('./nothing.mjs')).rejects.toThrow(/exports no module made by defineModule/);
});

it.each([
  ["'1.0'", undefined],
  ["'2.0'", /update the server/],
  ["'0.9'", /install a newer version of the module/],
  ["'one'", /not of the form "1\.0"/],
  ['undefined', /not of the form/],
])('checks the API version %s', async (version, message) => {
  write('x.mjs', `export default ${source('versioned', `apiVersion: ${version}`)}`);
  const loading = load('./x.mjs');
  if (message) await expect(loading).rejects.toThrow(message);
  else await loading;
});

it('warns of a module that is made for more than this server has', async () => {
  write('x.mjs', `export default ${source('newer', `apiVersion: '1.99'`)}`);
  expect((await load('./x.mjs')).warnings).toEqual([
    'it is made for module API 1.99, this server has 1.0: what is newer is not there; update the server',
  ]);
});

it('takes the package at its word: what its peerDependencies ask for', async () => {
  const peer = async (range: string, kind = 'peerDependencies'): Promise<LoadedModule> => {
    write('peer/package.json', { name: 'peer', [kind]: { '@rookery/module-api': range } });
    write('peer/lib/index.mjs', `export default ${source('peer')}`);
    return load('./peer/lib/index.mjs');
  };
  expect((await peer('^0.1.0')).warnings).toEqual([]);
  expect((await peer('^0.9.0')).warnings).toEqual([expect.stringContaining('made for @rookery/module-api ^0.9.0')]);
  await expect(peer('^9.0.0')).rejects.toThrow(
    /module peer: .*made for @rookery\/module-api \^9\.0\.0, this server has \d+\.\d+\.\d+; update the server/,
  );
  await expect(peer('^9.0.0', 'dependencies')).rejects.toThrow(/made for @rookery\/module-api \^9\.0\.0/);
});

it.each(["''", "'Word Filter'", "'../up'", 'undefined', `'${'x'.repeat(65)}'`])(
  'takes no module named %s',
  async (name) => {
    write('x.mjs', `export default ${source('x', `name: ${name}`)}`);
    await expect(load('./x.mjs')).rejects.toThrow(/a module is named with/);
  },
);

it('checks the configuration and points to its place', async () => {
  const failing = `parseConfig(raw) {
    const error = new Error('expected a word');
    throw Object.assign(error, { $$type: 'ConfigError', path: ['words', 1] });
  }`;
  write('strict.mjs', `export default ${source('strict', failing)}`);
  await expect(load('./strict.mjs')).rejects.toThrow(
    'homeserver.yaml:7/config/words/1: module strict: config.words[1]: expected a word',
  );
  write('crashing.mjs', `export default ${source('crashing', 'parseConfig(raw) { return raw.words.length }')}`);
  await expect(load('./crashing.mjs')).rejects.toThrow(/homeserver\.yaml:7: module crashing: parseConfig\(\) failed: /);
  write('slow.mjs', `export default ${source('slow', 'async parseConfig() {}')}`);
  await expect(load('./slow.mjs')).rejects.toThrow(/parseConfig\(\) is asynchronous/);
  write('fine.mjs', `export default ${source('fine', 'parseConfig: (raw) => raw.words.length')}`);
  expect((await load('./fine.mjs', { config: { words: ['a', 'b'] } })).config).toBe(2);
});

it('says everything that a schema finds wrong, each with its place', async () => {
  const schema = `configSchema: { '~standard': { version: 1, vendor: 'test', validate: ({ words }) => ({
    issues: words.map((word, i) => ({ message: 'expected a word', path: ['words', i] })) }) } },`;
  write(
    'schema.mjs',
    `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'schema', ${schema} register() {} });`,
  );
  await expect(load('./schema.mjs', { config: { words: [1, 2] } })).rejects.toThrow(
    'homeserver.yaml:7/config/words/0: module schema: config.words[0]: expected a word; ' +
      'homeserver.yaml:7/config/words/1: config.words[1]: expected a word',
  );
});

it('lends the module API to a module that has none installed, and finds what was installed beside the settings', async () => {
  write(
    'single.mjs',
    `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'single', parseConfig: () => undefined, register() {} });`,
  );
  write('modules/package.json', {});
  write('modules/node_modules/beside/package.json', { type: 'module', exports: './x.js' });
  write(
    'modules/node_modules/beside/x.js',
    `import { defineModule } from '@rookery/module-api';
    export default defineModule({ name: 'beside', parseConfig: () => undefined, register() {} });`,
  );
  write('modules/node_modules/common/package.json', { main: 'x.js' });
  write(
    'modules/node_modules/common/x.js',
    `const { defineModule } = require('@rookery/module-api');
    module.exports = defineModule({ name: 'common', parseConfig: () => undefined, register() {} });`,
  );
  expect(await nameOf('./single.mjs')).toBe('single');
  expect(await nameOf('beside')).toBe('beside');
  expect(await nameOf('common')).toBe('common');
});

it.each(['module', 'commonjs'])(
  'imports changed code of a package (%s) anew, all its files and no others',
  async (type) => {
    const isEsm = type === 'module';
    const name = `changing-${type}`;
    const write2 = (part: string, helper: string): void => {
      const at = `node_modules/${name}`;
      write(`${at}/package.json`, { name, type, exports: './index.js' });
      write(`${at}/node_modules/helper/package.json`, { name: 'helper', type, exports: './index.js' });
      const told = (value: string): string => (isEsm ? `export const said = ${value};` : `exports.said = ${value};`);
      write(`${at}/node_modules/helper/index.js`, told(`'${helper}'`));
      write(`${at}/part.js`, told(`'${part}'`));
      const brand = `{ $$type: 'RookeryModule', name: '${name}', apiVersion: '1.0', register() {}, parseConfig: () => part.said + helper.said }`;
      write(
        `${at}/index.js`,
        isEsm
          ? `import * as part from './part.js'; import * as helper from 'helper'; export default ${brand};`
          : `const part = require('./part.js'); const helper = require('helper'); module.exports = ${brand};`,
      );
    };
    write2('one', ' once');
    const first = await load(name);
    expect(first.config).toBe('one once');
    expect((await load(name)).definition).toBe(first.definition);
    // What a package uses is not looked at: it may belong to others, too.
    write2('other', ' twice');
    expect((await load(name)).config).toBe('other once');
    expect(first.definition.parseConfig(undefined)).toBe('one once');
  },
);
