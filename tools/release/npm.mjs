// The npm packages of this release, each complete, all installed together in an empty folder with nothing else but the registry:
// what is for others loads, and the server runs.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectNode, root } from '../lib.mjs';
import { command, tryServer } from './trial.mjs';

const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];

/** @returns the packed files by the names of their packages */
export function packAll(out) {
  command(process.execPath, [join(root, 'tools', 'pack.mjs'), out]);
  const packed = readdirSync(out).filter((name) => name.endsWith('.tgz'));
  return new Map(
    packed.map((file) => [
      JSON.parse(command('tar', ['xzOf', join(out, file), 'package/package.json'])).name,
      join(out, file),
    ]),
  );
}

/** The packages that a server consists of. */
export function serverPackages(packed) {
  const needed = new Set();
  const visit = (name) => {
    if (needed.has(name)) return;
    needed.add(name);
    const manifest = JSON.parse(command('tar', ['xzOf', packed.get(name), 'package/package.json']));
    for (const next of Object.keys(manifest.dependencies ?? {})) {
      if (packed.has(next)) visit(next);
      else if (next.startsWith('@rookery/')) throw new Error(`${name} needs ${next}, which is not published`);
    }
  };
  visit('@rookery/homeserver');
  return new Map([...packed].filter(([name]) => needed.has(name)));
}

/** Installs packages into a folder from their files, everything else from the registry. */
export function installFiles(folder, packages) {
  mkdirSync(folder, { recursive: true });
  const dependencies = Object.fromEntries([...packages].map(([name, file]) => [name, `file:${file}`]));
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ private: true, type: 'module', dependencies }, null, 2) + '\n',
  );
  command('npm', ['install', ...quiet], { cwd: folder });
}

/** The server's programs in a folder where it was installed. */
const programsIn = (folder) => {
  const bin = (path) => [projectNode(), join(folder, 'node_modules', '@rookery', path)];
  return [bin('homeserver/bin/rookery-homeserver.mjs'), bin('homeserver/bin/rookery.mjs')];
};

/** @throws Error when a package is not complete, does not load, or the server does not run */
export async function tryPackages(packed, work) {
  for (const [name, file] of packed) {
    const files = command('tar', ['tzf', file]).split('\n');
    for (const wanted of ['LICENSE', 'README.md'])
      if (!files.includes(`package/${wanted}`)) throw new Error(`${name} has no ${wanted}`);
  }
  const whole = join(work, 'whole');
  installFiles(whole, packed);
  for (const name of packed.keys()) {
    const manifest = JSON.parse(readFileSync(join(whole, 'node_modules', name, 'package.json'), 'utf8'));
    if (manifest.exports?.['.'])
      command(projectNode(), ['--input-type=module', '-e', `await import('${name}'); process.exit()`], { cwd: whole });
    for (const [bin, path] of Object.entries(manifest.bin ?? {}))
      if (!existsSync(join(whole, 'node_modules', name, path))) throw new Error(`${name} has no ${bin}`);
  }
  await tryServer(...programsIn(whole));
  rmSync(whole, { recursive: true, force: true });
}
