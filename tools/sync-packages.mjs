// Keeps the packages' declarations equal to what their sources import: `dependencies` in package.json (our own packages
// as "*", others with the root's exact pin), `references` and whether comments are compiled along in tsconfig.json, and the root tsconfig's list of packages.
// `--check` changes nothing and fails when something is out of step.
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join, relative, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const check = process.argv.includes('--check');
const rootPackage = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const pins = { ...rootPackage.devDependencies, ...rootPackage.dependencies };
const builtin = new Set(builtinModules);
const stale = [];

const packages = ['libs', 'apps', 'modules-examples']
  .flatMap((group) =>
    existsSync(join(root, group)) ? readdirSync(join(root, group)).map((name) => join(group, name)) : [],
  )
  .filter((folder) => existsSync(join(root, folder, 'package.json')))
  .map((folder) => ({ folder, manifest: JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) }));
const folderOf = new Map(packages.map(({ folder, manifest }) => [manifest.name, folder]));

function sources(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' || entry.name === 'dist' ? [] : sources(path);
    return entry.name.endsWith('.ts') ? [path] : [];
  });
}

function imports(file) {
  const text = readFileSync(file, 'utf8');
  const found = new Set();
  for (const match of text.matchAll(
    /^\s*(?:import|export)\s[^;]*?\sfrom\s+'([^'.][^']*)'|^\s*import\s+'([^'.][^']*)'|\bimport\('([^'.][^']*)'\)/gm,
  )) {
    const name = match[1] ?? match[2] ?? match[3];
    if (name.startsWith('node:') || builtin.has(name)) continue;
    found.add(
      name
        .split('/')
        .slice(0, name.startsWith('@') ? 2 : 1)
        .join('/'),
    );
  }
  return found;
}

function write(path, value) {
  const text = JSON.stringify(value, null, 2) + '\n';
  if (existsSync(path) && JSON.stringify(JSON.parse(readFileSync(path, 'utf8'))) === JSON.stringify(value)) return;
  if (check) stale.push(relative(root, path));
  else writeFileSync(path, text);
}

for (const { folder, manifest } of packages) {
  if (folder.startsWith('modules-examples')) continue;
  const used = new Set();
  const files = sources(join(root, folder, 'src'));
  for (const file of files.filter((path) => !/\.(spec|fixture)\.ts$/.test(path))) {
    for (const name of imports(file)) if (name !== manifest.name) used.add(name);
  }
  const dependencies = {};
  for (const name of [...used].sort()) {
    // What a package shares with those who use it, they install.
    if (manifest.peerDependencies?.[name]) continue;
    if (folderOf.has(name)) dependencies[name] = manifest.private ? '*' : '0.1.0';
    else if (pins[name]) dependencies[name] = pins[name];
    else stale.push(`${folder}: imports ${name}, which the root package.json does not pin`);
  }
  // A package may also declare what it loads by name at run time.
  for (const name of manifest.rookery?.runtimeDependencies ?? []) dependencies[name] = pins[name] ?? '*';
  write(join(root, folder, 'package.json'), { ...manifest, dependencies });

  const tsconfigPath = join(root, folder, 'tsconfig.json');
  const tsconfig = JSON.parse(readFileSync(tsconfigPath, 'utf8'));
  tsconfig.exclude = ['src/**/*.spec.ts', 'src/**/*.fixture.ts'];
  // The engine keeps the text of what is loaded. Comments are for those who read the sources, or the types of what is published.
  if (manifest.private) tsconfig.compilerOptions.removeComments = true;
  else delete tsconfig.compilerOptions.removeComments;
  tsconfig.references = Object.keys(dependencies)
    .filter((name) => folderOf.has(name))
    .map((name) => ({ path: relative(folder, folderOf.get(name)) }));
  write(tsconfigPath, tsconfig);
}
write(join(root, 'tsconfig.json'), {
  files: [],
  references: packages
    .filter(({ folder }) => existsSync(join(root, folder, 'tsconfig.json')))
    .map(({ folder }) => ({ path: folder })),
});

if (stale.length > 0) {
  console.error(`Out of step:\n  ${stale.join('\n  ')}\nRun: npm run sync-packages && npm install`);
  process.exit(1);
}
