// The npm packages of this release, each complete, all installed together in an empty folder with nothing else but the registry:
// what is for others loads, and the server runs.
import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { projectNode, root } from '../lib.mjs';
import { command, tryServer } from './trial.mjs';

const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];

/**
 * @param repository where the sources lie
 * @returns the packed files by the names of their packages
 */
export function packAll(out, repository) {
  command(process.execPath, [
    join(root, 'tools', 'pack.mjs'),
    ...(repository ? ['--repository', repository] : []),
    out,
  ]);
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

/** Parts that npm installs only when they are named, with the versions that were tested. */
export async function optionalDependencies() {
  const { optionalParts } = await import(pathToFileURL(join(root, 'apps/homeserver/dist/optional-parts.js')).href);
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return Object.fromEntries(optionalParts.map(({ name }) => [name, dependencies[name]]));
}

/** Installs packages into a folder from their files, everything else from the registry. */
export function installFiles(folder, packages, more = {}) {
  mkdirSync(folder, { recursive: true });
  const dependencies = { ...more, ...Object.fromEntries([...packages].map(([name, file]) => [name, `file:${file}`])) };
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

/** More than a server without optional parts takes; the one that is too large is not handed out. */
const largestMegabytes = 150;

/** The server as `npm install` brings it. @throws Error when it is too large, does not run, or does not say which part it lacks */
export async function tryLean(packages, work) {
  const folder = join(work, 'lean');
  installFiles(folder, packages);
  const files = readdirSync(folder, { recursive: true }).map((name) => lstatSync(join(folder, name)));
  const megabytes = files.filter((status) => status.isFile()).reduce((sum, { size }) => sum + size, 0) / 1e6;
  if (megabytes > largestMegabytes)
    throw new Error(`the server takes ${megabytes.toFixed(0)} MB, more than ${largestMegabytes}`);
  await tryServer(...programsIn(folder));
  const settings = join(folder, 'homeserver.yaml');
  for (const name of Object.keys(await optionalDependencies()))
    if (existsSync(join(folder, 'node_modules', name))) throw new Error(`${name} is installed though nobody named it`);
  writeFileSync(
    settings,
    JSON.stringify({
      server_name: 'release.test',
      report_stats: false,
      database: { name: 'psycopg2', args: { host: '127.0.0.1' } },
    }),
  );
  const [program, ...args] = programsIn(folder)[0];
  const { status, stderr } = spawnSync(program, [...args, '--config', settings], { encoding: 'utf8', cwd: folder });
  if (status !== 1 || !/^PostgreSQL .* needs the package pg: [^\n]*\n$/.test(stderr))
    throw new Error(`without pg the server ended with ${status}:\n${stderr}`);
  rmSync(folder, { recursive: true, force: true });
  return megabytes;
}

/** @throws Error when a package is not complete, does not load, or the server does not run */
export async function tryPackages(packed, work) {
  for (const [name, file] of packed) {
    const files = command('tar', ['tzf', file]).split('\n');
    for (const wanted of ['LICENSE', 'README.md'])
      if (!files.includes(`package/${wanted}`)) throw new Error(`${name} has no ${wanted}`);
  }
  const whole = join(work, 'whole');
  installFiles(whole, packed, await optionalDependencies());
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
