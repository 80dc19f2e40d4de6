import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createModule } from './create-module.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-create-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const node = (args: readonly string[], cwd: string, env: Record<string, string>): string => {
  const result = spawnSync(process.execPath, args, { cwd, encoding: 'utf8', env: { ...process.env, ...env } });
  if (result.status !== 0)
    throw new Error(`${args.join(' ')} ended with ${result.status}\n${result.stdout}${result.stderr}`);
  return result.stdout;
};

it('writes a module that compiles and whose own test passes in a real server', () => {
  const place = join(folder, 'my-module');
  createModule(place);
  symlinkSync(join(root, 'node_modules'), join(place, 'node_modules'));
  const tsc = join(root, 'node_modules/typescript7/bin/tsc');
  // Against what is built, as the module of anybody else.
  const compile = (...args: string[]): string => node([tsc, ...args], place, { NODE_OPTIONS: '' });
  compile('-p', '.');
  compile('-p', 'tsconfig.build.json');
  expect(readdirSync(join(place, 'dist'))).toContain('index.js');
  const run = (): string => node(['--test', 'test/module.test.ts'], place, {});
  expect(run()).toMatch(/pass 1/);
  // A test that could not fail would be worth nothing to its author.
  const compiled = join(place, 'dist/index.js');
  writeFileSync(
    compiled,
    readFileSync(compiled, 'utf8').replace('body.length <= maxLength', 'body.length <= Infinity'),
  );
  expect(run).toThrow(/200 !== 403/);
  appendFileSync(join(place, 'test/module.test.ts'), '\nawait createTestHomeserver({ setings: {} });\n');
  expect(() => compile('-p', '.')).toThrow(/setings/);
}, 120_000);

it.each(['plain', 'nest'] as const)(
  'packs a %s one with its code, whoever has built it before, and says what it uses',
  async (kind) => {
    const place = join(folder, 'my-module');
    createModule(place, 'my-module', kind);
    symlinkSync(join(root, 'node_modules'), join(place, 'node_modules'));
    const env = { ...process.env, NODE_OPTIONS: '' };
    const packing = spawnSync('npm', ['pack', '--dry-run', '--json'], { cwd: place, encoding: 'utf8', env });
    expect(packing).toMatchObject({ status: 0, stdout: expect.stringContaining('"dist/index.js"') });
    const { rookery } = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')) as {
      rookery: { callbacks: string[]; settings: string[] };
    };
    expect(rookery.callbacks).toEqual(['checkEventForSpam']);
    const code = readFileSync(join(place, kind === 'nest' ? 'src/settings.ts' : 'src/config.ts'), 'utf8');
    expect(rookery.settings.filter((name) => code.includes(name))).toEqual(['max_length', 'message']);
  },
  120_000,
);

it('writes a Nest module likewise', () => {
  const place = join(folder, 'my-module');
  createModule(place, 'my-module', 'nest');
  symlinkSync(join(root, 'node_modules'), join(place, 'node_modules'));
  const tsc = join(root, 'node_modules/typescript7/bin/tsc');
  const compile = (...args: string[]): string => node([tsc, ...args], place, { NODE_OPTIONS: '' });
  compile('-p', '.');
  compile('-p', 'tsconfig.build.json');
  const run = (): string => node(['--test', 'test/module.test.ts'], place, {});
  expect(run()).toMatch(/pass 2/);
  const compiled = join(place, 'dist/length.service.js');
  writeFileSync(compiled, readFileSync(compiled, 'utf8').replace('this.settings.max_length', 'Infinity'));
  expect(run).toThrow(/200 !== 403/);
}, 120_000);

it('uses the packages of the checkout that wrote it, for npm finds them nowhere else yet', () => {
  const place = join(folder, 'deep', 'my-module');
  createModule(place, 'my-module', 'nest');
  const manifest = JSON.parse(readFileSync(join(place, 'package.json'), 'utf8')) as Record<
    'dependencies' | 'devDependencies' | 'peerDependencies',
    Record<string, string>
  >;
  for (const name of ['@rookery/module-api', '@rookery/nest', '@rookery/testing']) {
    const linked = manifest.devDependencies[name]?.replace(/^file:/, '') ?? '';
    const found = JSON.parse(readFileSync(join(place, linked, 'package.json'), 'utf8')) as { name: string };
    expect(found.name).toBe(name);
  }
  // What is published asks for a version.
  expect(manifest.peerDependencies).toEqual({ '@rookery/module-api': '^0.1.0' });
  expect(Object.values(manifest.dependencies).filter((version) => !/^\^\d/.test(version))).toEqual([]);
});

it('writes into a new repository, and says in a line what is in its way', () => {
  mkdirSync(join(folder, 'repository', '.git'), { recursive: true });
  expect(createModule(join(folder, 'repository'))).toContain('package.json');
  writeFileSync(join(folder, 'file'), '');
  expect(() => createModule(join(folder, 'file'))).toThrow(/file cannot be written: it is no folder/);
});

it('names the package as told, and the module after it', () => {
  const files = createModule(join(folder, 'x'), '@scope/word-filter');
  const manifest = JSON.parse(readFileSync(join(folder, 'x', 'package.json'), 'utf8')) as { name: string };
  expect(manifest.name).toBe('@scope/word-filter');
  expect(readFileSync(join(folder, 'x', 'src/index.ts'), 'utf8')).toContain("name: 'word-filter'");
  expect(files).toContain('test/module.test.ts');
});

it('touches nothing in a folder that is not empty, and takes no odd name', () => {
  mkdirSync(join(folder, 'full'));
  writeFileSync(join(folder, 'full', 'a'), '');
  expect(() => createModule(join(folder, 'full'))).toThrow(/is not empty/);
  expect(readdirSync(join(folder, 'full'))).toEqual(['a']);
  expect(() => createModule(join(folder, 'Odd Name'))).toThrow(/is no name of a package/);
  expect(() => createModule(join(folder, 'x'), '../up')).toThrow(/is no name of a package/);
});
