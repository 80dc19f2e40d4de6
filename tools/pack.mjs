// `node tools/pack.mjs FOLDER`: every package that is for others, packed as it is published: built, complete, and free of what only
// this checkout needs. A tarball each; `npm publish FILE` does the rest. `--repository URL` names the place where the sources lie:
// npm says of a package with it where it was built (provenance).
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { ensureBuilt, ensureInstalled, helpWhereAsked, root, serverProgram } from './lib.mjs';

helpWhereAsked(import.meta.url);
const { values, positionals } = parseArgs({ options: { repository: { type: 'string' } }, allowPositionals: true });
const [target] = positionals;
if (target === undefined) {
  console.error('Usage: node tools/pack.mjs [--repository URL] FOLDER');
  process.exit(2);
}
if (
  values.repository !== undefined &&
  !/^(?:git\+)?(?:https|ssh):$/.test(URL.parse(values.repository)?.protocol ?? '')
) {
  console.error(`${values.repository} is no address of a repository: expected https://, git+https:// or git+ssh://`);
  process.exit(2);
}
const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));
const rootManifest = readJson(join(root, 'package.json'));
const repository = values.repository ? { type: 'git', url: values.repository } : rootManifest.repository;

/** What npm cannot know: what a package is for, among all that belong together. */
const forWhom = {
  '@rookery/homeserver': 'the server itself',
  '@rookery/ctl': 'the command for its operators',
  '@rookery/module-api': 'what modules are written against',
  '@rookery/testing': 'servers for the tests of modules',
  '@rookery/create-module': 'writes the package of a new module',
  '@rookery/passport': 'Passport strategies as sign-in providers',
  '@rookery/nest': 'modules written as Nest modules',
  '@rookery/typeorm': 'entities, repositories and migrations for the tables of modules',
};

ensureInstalled();
ensureBuilt();
const { optionalParts } = await import(pathToFileURL(join(root, 'apps/homeserver/dist/optional-parts.js')).href);

const packages = ['libs', 'apps', 'modules-examples'].flatMap((group) =>
  readdirSync(join(root, group))
    .map((name) => join(root, group, name))
    .filter((folder) => existsSync(join(folder, 'package.json')))
    .map((folder) => ({ folder, manifest: readJson(join(folder, 'package.json')) })),
);
const versions = new Map(packages.map(({ manifest }) => [manifest.name, manifest.version]));

/** The manifest as others see it. */
function published({ private: _, devDependencies: __, ...manifest }, folder) {
  // What the fixtures of this repository use is not for others.
  const { './internal': ___, ...entries } = manifest.exports;
  const { types, default: file, import: module = file } = entries['.'];
  const entry = { types, default: module };
  const isModule = folder.startsWith(join(root, 'modules-examples'));
  return {
    ...manifest,
    // For those who look a package up in the old way.
    main: entry.default,
    types: entry.types,
    exports: { ...entries, '.': entry, './bin/*': './bin/*', './package.json': './package.json' },
    engines: { node: '>=22.19' },
    // `rookery module search` finds modules by theirs.
    keywords: ['matrix', 'homeserver', 'rookery', ...(isModule ? ['rookery-module'] : [])],
    ...(repository && {
      repository: { ...repository, directory: folder.slice(root.length + 1).replaceAll('\\', '/') },
    }),
    publishConfig: { access: 'public', provenance: repository !== undefined },
    dependencies: dependenciesOf(manifest),
    ...optionalOf(manifest),
    // Who installs the server gets the command for its operators.
    ...(manifest.name === '@rookery/homeserver' && { bin: { ...manifest.bin, ...commands } }),
  };
}

const commands = { rookery: './bin/rookery.mjs', synctl: './bin/synctl.mjs' };

/** Own packages with the versions of this release. */
function dependenciesOf({ name, dependencies = {} }) {
  const all = { ...dependencies, ...(name === '@rookery/homeserver' && { '@rookery/ctl': '*' }) };
  const own = optionalIn(name);
  return Object.fromEntries(
    Object.entries(all)
      .filter(([other]) => !own.includes(other))
      .map(([other, range]) => [other, versions.get(other) ?? range]),
  );
}

/** Parts that are installed only when they are named; a server names all that its packages can use. */
const optionalIn = (name) =>
  optionalParts.filter(({ usedBy }) => [usedBy, '@rookery/homeserver'].includes(name)).map((part) => part.name);

function optionalOf({ name, peerDependencies, peerDependenciesMeta }) {
  const parts = optionalIn(name);
  if (parts.length === 0) return {};
  return {
    peerDependencies: {
      ...peerDependencies,
      ...Object.fromEntries(parts.map((part) => [part, `^${rootManifest.dependencies[part]}`])),
    },
    peerDependenciesMeta: {
      ...peerDependenciesMeta,
      ...Object.fromEntries(parts.map((part) => [part, { optional: true }])),
    },
  };
}

function readme({ name, description }) {
  const list = Object.entries(forWhom).map(([other, purpose]) => `- \`${other}\`: ${purpose}`);
  const inner =
    name in forWhom
      ? ''
      : '\nAn inner part of the server: it has no promise of its own, and changes with every version.\n';
  return `# ${name}\n\n${description}. Part of Rookery, a Matrix homeserver that hosts typed modules.\n${inner}\n${list.join('\n')}\n`;
}

/**
 * Whether a built file is for those who use the package: not the records of the build, not maps to sources that are not there. Where
 * an error came by in the bundle nobody can tell without.
 */
const isForOthers = (path) =>
  (!path.endsWith('.map') || isOfBundle(path)) &&
  !path.endsWith('.tsbuildinfo') &&
  !/\.(spec|fixture)\.(js|d\.ts)$/.test(path);

const isOfBundle = (path) => dirname(path) === dirname(serverProgram);

/** Sources of the bundle by the packages that they would lie in where it is installed. */
function placeSources(folder) {
  for (const name of readdirSync(folder).filter((file) => file.endsWith('.map'))) {
    const map = readJson(join(folder, name));
    map.sources = map.sources.map((source) =>
      source.replace('../../../../libs/', '../../../').replace('../../../../node_modules/', '../../../../'),
    );
    writeFileSync(join(folder, name), JSON.stringify(map));
  }
}

function stage({ folder, manifest }, into) {
  mkdirSync(into, { recursive: true });
  for (const name of new Set([...manifest.files.filter((file) => !file.startsWith('!')), 'README.md'])) {
    const from = join(folder, name);
    if (existsSync(from)) cpSync(from, join(into, name), { recursive: true, filter: isForOthers });
  }
  for (const path of readdirSync(into, { recursive: true })) {
    if (!/\.(js|d\.ts)$/.test(path)) continue;
    const file = join(into, path);
    const text = readFileSync(file, 'utf8');
    const bare = text.replace(/\n\/\/# sourceMappingURL=.*\s*$/, '\n');
    if (bare !== text) writeFileSync(file, bare);
  }
  if (!existsSync(join(into, 'README.md'))) writeFileSync(join(into, 'README.md'), readme(manifest));
  if (manifest.name === '@rookery/homeserver') {
    placeSources(join(into, 'dist', 'bundle'));
    for (const path of Object.values(commands))
      writeFileSync(join(into, path), `#!/usr/bin/env node\nawait import('@rookery/ctl/${path.slice(2)}');\n`, {
        mode: 0o755,
      });
  }
  cpSync(join(root, 'LICENSE'), join(into, 'LICENSE'));
  writeFileSync(join(into, 'package.json'), `${JSON.stringify(published(manifest, folder), null, 2)}\n`);
}

const staging = mkdtempSync(join(tmpdir(), 'rookery-pack-'));
try {
  mkdirSync(target, { recursive: true });
  const staged = packages.map((one, i) => {
    const into = join(staging, String(i));
    stage(one, into);
    return into;
  });
  const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', resolve(target), ...staged];
  const { status, stderr } = spawnSync('npm', args, { cwd: staging, encoding: 'utf8' });
  if (status !== 0) {
    console.error(stderr);
    process.exit(1);
  }
} finally {
  rmSync(staging, { recursive: true, force: true });
}
