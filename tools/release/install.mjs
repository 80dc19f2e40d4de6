// Installs the server's package into a folder together with the Node.js that it was tested on: what archive and Debian
// package carry.
import { chmodSync, copyFileSync, cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { projectNode } from '../lib.mjs';
import { command, tryServer } from './trial.mjs';

/** The path of a program of an installed tree. */
export const programIn = (tree, name) => join(tree, 'bin', name);

/** @param archive the server's npm package @returns the folder, with `bin/rookery`, `bin/rookery-homeserver` and `bin/node` */
export async function installInto(tree, archive) {
  rmSync(tree, { recursive: true, force: true });
  mkdirSync(join(tree, 'bin'), { recursive: true });
  writeFileSync(join(tree, 'package.json'), '{ "private": true }\n');
  copyFileSync(archive, join(tree, basename(archive)));
  command(
    'npm',
    ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error', `./${basename(archive)}`],
    {
      cwd: tree,
    },
  );
  rmSync(join(tree, basename(archive)));
  rmSync(join(tree, 'package.json'));
  rmSync(join(tree, 'package-lock.json'), { force: true });
  cpSync(projectNode(), join(tree, 'bin', 'node'), { dereference: true });
  chmodSync(join(tree, 'bin', 'node'), 0o755);
  for (const name of ['rookery', 'rookery-homeserver']) {
    const script = `#!/bin/sh
# Finds its own folder through links, so that it can be linked to from /usr/local/bin.
here=$(dirname "$(readlink -f "$0")")
exec "$here/node" "$here/../node_modules/@rookery/homeserver/bin/${name}.mjs" "$@"
`;
    writeFileSync(programIn(tree, name), script, { mode: 0o755 });
  }
  await tryServer([programIn(tree, 'rookery-homeserver')], [programIn(tree, 'rookery')]);
  return tree;
}
