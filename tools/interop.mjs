// `npm run test:interop`: one federation with a live Synapse, which is installed from PyPI into a virtual environment of its own.
// Arguments go to Jest. Where there is no Python 3 that could make one, it says so and ends well.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { become, ensureInstalled, helpWhereAsked, root } from './lib.mjs';

helpWhereAsked(import.meta.url);
const release = 'matrix-synapse==1.163.2';
const place = join(root, 'node_modules', '.cache', 'interop');
const python = join(place, 'bin', 'python');
/** There once the environment is whole; another release makes it anew. */
const stamp = join(place, release);

function findPython() {
  for (const name of ['python3', 'python']) {
    const asked = spawnSync(name, ['-c', 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))']);
    if (asked.status === 0) return name;
  }
  return undefined;
}

/** Why there is no peer; `undefined` when there is one. */
function ensurePeer() {
  if (existsSync(stamp)) return undefined;
  const system = findPython();
  if (system === undefined) return 'a live peer needs Python 3.10 or newer with venv (Debian: python3-venv)';
  console.log(`Installing ${release} from PyPI (once; about a minute)...`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place, { recursive: true });
  for (const [command, ...args] of [
    [system, '-m', 'venv', place],
    [python, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', release],
  ]) {
    if (spawnSync(command, args, { cwd: root, stdio: 'inherit' }).status !== 0) return `${release} cannot be installed`;
  }
  writeFileSync(stamp, '');
  return undefined;
}

ensureInstalled();
const missing = ensurePeer();
if (missing !== undefined) {
  console.log(`Not run: ${missing}.`);
  process.exit(0);
}
become(process.execPath, [join(root, 'tools', 'test.mjs'), '--lane=interop', ...process.argv.slice(2)], {
  env: { ...process.env, INTEROP_PYTHON: python },
});
