// The npm packages: the server, and every package of this repository that is not private. Each is installed in an empty
// folder, with nothing but the registry and the other packages of this release, and loaded there.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectNode, root } from '../lib.mjs';
import { layOutPackage } from './package.mjs';
import { command, tryServer } from './trial.mjs';

/** Packs a folder, with the licence where it has none of its own. @returns the path of the package */
function pack(folder, out) {
  const licence = join(folder, 'LICENSE');
  const isBorrowed = !existsSync(licence);
  if (isBorrowed) cpSync(join(root, 'LICENSE'), licence);
  try {
    return packed(folder, out);
  } finally {
    if (isBorrowed) rmSync(licence);
  }
}

function packed(folder, out) {
  const [{ filename }] = JSON.parse(command('npm', ['pack', '--json', '--pack-destination', out], { cwd: folder }));
  return join(out, filename);
}

/** @returns the path of the server's package */
export async function makeNpmPackages({ out, work }) {
  layOutPackage(join(work, 'server'));
  const server = pack(join(work, 'server'), out);
  const others = ['libs', 'apps', 'packages']
    .filter((group) => existsSync(join(root, group)))
    .flatMap((group) => readdirSync(join(root, group)).map((name) => join(root, group, name)))
    .filter((folder) => existsSync(join(folder, 'package.json')))
    .map((folder) => ({ folder, manifest: JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) }))
    .filter(({ manifest }) => !manifest.private)
    .map((one) => ({ ...one, packed: pack(one.folder, out) }));
  await installServer(server, join(work, 'empty-server'));
  const packedOf = new Map([
    ...others.map(({ manifest, packed }) => [manifest.name, packed]),
    ['@rookery/homeserver', server],
  ]);
  for (const { manifest, packed } of others) tryPackage(manifest, packed, packedOf, join(work, 'empty', manifest.name));
  return server;
}

async function installServer(packed, prefix) {
  mkdirSync(prefix, { recursive: true });
  command('npm', ['install', '-g', '--prefix', prefix, '--no-audit', '--no-fund', '--ignore-scripts', packed]);
  const bin = (name) => [
    projectNode(),
    join(prefix, 'lib', 'node_modules', '@rookery', 'homeserver', 'bin', `${name}.mjs`),
  ];
  await tryServer(bin('rookery-homeserver'), bin('rookery'));
  // Optional libraries may be left out: a server on SQLite does not miss them.
  const lean = `${prefix}-lean`;
  mkdirSync(lean, { recursive: true });
  const options = ['--omit=optional', '--no-audit', '--no-fund', '--ignore-scripts'];
  command('npm', ['install', '-g', '--prefix', lean, ...options, packed]);
  const leanBin = (name) => [
    projectNode(),
    join(lean, 'lib', 'node_modules', '@rookery', 'homeserver', 'bin', `${name}.mjs`),
  ];
  await tryServer(leanBin('rookery-homeserver'), leanBin('rookery'));
}

function tryPackage(manifest, packed, packedOf, folder) {
  mkdirSync(folder, { recursive: true });
  const needed = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies }).filter((name) =>
    name.startsWith('@rookery/'),
  );
  const missing = needed.filter((name) => !packedOf.has(name));
  if (missing.length > 0) throw new Error(`${manifest.name} needs ${missing.join(', ')}, which is not published`);
  for (const name of ['LICENSE', 'README.md']) {
    const listed = command('tar', ['tzf', packed]).split('\n');
    if (!listed.includes(`package/${name}`)) throw new Error(`${manifest.name} has no ${name}`);
  }
  const closure = new Set();
  const visit = (name) => {
    if (closure.has(name)) return;
    closure.add(name);
    const text = command('tar', ['xzOf', packedOf.get(name), 'package/package.json']);
    for (const next of Object.keys(JSON.parse(text).dependencies ?? {})) if (packedOf.has(next)) visit(next);
  };
  visit(manifest.name);
  const dependencies = Object.fromEntries([...closure].map((name) => [name, `file:${packedOf.get(name)}`]));
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ private: true, type: 'module', dependencies, overrides: dependencies }),
  );
  command('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'], { cwd: folder });
  if (manifest.exports?.['.']) command(projectNode(), ['-e', `import('${manifest.name}')`], { cwd: folder });
  for (const path of Object.values(manifest.bin ?? {})) {
    command(projectNode(), [join(folder, 'node_modules', manifest.name, path), '--help'], { cwd: folder });
  }
}
