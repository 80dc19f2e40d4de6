import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
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
  const sources = { NODE_OPTIONS: '' };
  node(
    [join(root, 'node_modules/typescript7/bin/tsc'), '-p', '.', '--customConditions', '@rookery/source'],
    place,
    sources,
  );
  expect(readdirSync(join(place, 'dist'))).toContain('index.js');
  const out = node(['--test', 'test/module.test.ts'], place, {});
  expect(out).toMatch(/pass 1/);
}, 60_000);

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
