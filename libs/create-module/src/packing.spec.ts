import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../../', import.meta.url));

interface Packed {
  readonly name: string;
  readonly files: readonly { readonly path: string }[];
}

const filesBelow = (folder: string): string[] =>
  (readdirSync(folder, { recursive: true }) as string[]).filter((path) => statSync(join(folder, path)).isFile());

let packages: readonly Packed[];
beforeAll(() => {
  const { stdout, stderr } = spawnSync('npm', ['pack', '--workspaces', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    env: { ...process.env, NODE_OPTIONS: '' },
  });
  const answer: unknown = JSON.parse(stdout || `"${stderr}"`);
  packages = Object.values(answer as Record<string, Packed>);
});

it('no package for everybody holds what only its build needs', () => {
  const needless = packages
    .filter(({ name }) => /^@rookery(?:-examples\/|\/(?:module-api|matrix-types|testing|create-module)$)/.test(name))
    .map(({ name, files }) => [name, files.filter(({ path }) => path.includes('tsbuildinfo'))]);
  expect(needless.length).toBeGreaterThan(10);
  for (const [name, files] of needless) expect([name, files]).toEqual([name, []]);
});

it('each package holds what it needs where it is installed alone: a new module’s test starts a server from packages', () => {
  for (const group of ['libs', 'apps']) {
    for (const folder of readdirSync(join(root, group))) {
      const manifestPath = join(root, group, folder, 'package.json');
      if (!existsSync(manifestPath)) continue;
      const manifest = JSON.parse(readFileSync(manifestPath, 'utf8')) as {
        name: string;
        exports: { '.': { default: string } };
        bin?: Record<string, string>;
      };
      const packed = packages.find(({ name }) => name === manifest.name);
      const held = new Set(packed?.files.map(({ path }) => path));
      const wanted = [manifest.exports['.'].default, ...Object.values(manifest.bin ?? {})];
      const pages = join(root, group, folder, 'templates');
      if (existsSync(pages)) wanted.push(...filesBelow(pages).map((path) => `templates/${path}`));
      const missing = wanted.map((path) => path.replace('./', '')).filter((path) => !held.has(path));
      expect([manifest.name, missing]).toEqual([manifest.name, []]);
      // npm links commands when it installs a checkout, before anything is built: they must be there, and be programs.
      for (const command of Object.values(manifest.bin ?? {})) {
        const path = join(root, group, folder, command);
        expect([command, command.includes('dist'), statSync(path).mode & 0o111]).toEqual([command, false, 0o111]);
      }
    }
  }
});

it('each example says how it is installed, and shows the entry of the package that this installs', () => {
  const examples = packages.filter(({ name }) => name.startsWith('@rookery-examples/'));
  expect(examples.length).toBeGreaterThan(10);
  for (const { name } of examples) {
    const readme = readFileSync(join(root, 'modules-examples', name.split('/')[1]!, 'README.md'), 'utf8');
    expect([name, readme.indexOf(`rookery module add ${name}\n`) > 0]).toEqual([name, true]);
    expect([name, readme.includes(`- module: '${name}'`)]).toEqual([name, true]);
  }
});
