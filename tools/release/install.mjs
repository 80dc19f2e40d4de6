// Installs the server into a folder together with the Node.js that it was tested on: what archive and Debian package carry.
import { chmodSync, cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectNode } from '../lib.mjs';
import { installFiles, optionalDependencies } from './npm.mjs';
import { command, tryServer } from './trial.mjs';

/** The programs of an installed tree, and the packages that they lie in. */
const programs = { rookery: 'ctl', synctl: 'ctl', 'rookery-homeserver': 'homeserver' };

/** What `rookery module add` works with; a server that brings its own Node.js brings this one along. */
const npmVersion = '11.19.1';

/** The path of a program of an installed tree. */
export const programIn = (tree, name) => join(tree, 'bin', name);

/** @param packages of the server, by name @returns the folder, with the programs and their Node.js in `bin` */
export async function installInto(tree, packages) {
  rmSync(tree, { recursive: true, force: true });
  mkdirSync(join(tree, 'bin'), { recursive: true });
  installFiles(tree, packages, { ...(await optionalDependencies()), npm: npmVersion });
  for (const name of ['package.json', 'package-lock.json']) rmSync(join(tree, name), { force: true });
  cpSync(projectNode(), join(tree, 'bin', 'node'), { dereference: true });
  chmodSync(join(tree, 'bin', 'node'), 0o755);
  for (const [name, folder] of Object.entries(programs)) {
    const script = `#!/bin/sh
# Finds its own folder through links, so that it can be linked to from /usr/local/bin.
here=$(dirname "$(readlink -f "$0")")
exec "$here/node" "$here/../node_modules/@rookery/${folder}/bin/${name}.mjs" "$@"
`;
    writeFileSync(programIn(tree, name), script, { mode: 0o755 });
  }
  const npm = `#!/bin/sh
# For modules. Scripts of packages run on the Node.js of the server.
here=$(dirname "$(readlink -f "$0")")
PATH="$here:$PATH" exec "$here/node" "$here/../node_modules/npm/bin/npm-cli.js" "$@"
`;
  writeFileSync(programIn(tree, 'npm'), npm, { mode: 0o755 });
  const found = command(programIn(tree, 'npm'), ['--version']).trim();
  if (found !== npmVersion) throw new Error(`npm ${found} is in the tree instead of ${npmVersion}`);
  await tryServer([programIn(tree, 'rookery-homeserver')], [programIn(tree, 'rookery')]);
  return tree;
}
