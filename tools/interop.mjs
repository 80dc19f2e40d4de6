// `npm run test:interop`: one federation with a live Synapse, which is installed from PyPI into a virtual environment of its own.
// Arguments go to Jest. Where there is no Python 3 that could make one, it says so and ends well.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { become, ensureInstalled, root, run } from './lib.mjs';

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

function ensurePeer() {
  if (existsSync(stamp)) return true;
  const system = findPython();
  if (system === undefined) return false;
  console.log(`Installing ${release} from PyPI (once; about a minute)...`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place, { recursive: true });
  run(system, ['-m', 'venv', place]);
  run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', release]);
  writeFileSync(stamp, '');
  return true;
}

ensureInstalled();
if (!ensurePeer()) {
  console.log(
    'Not run: a live peer needs Python 3.10 or newer with venv (Debian: python3-venv), and there is none here.',
  );
  process.exit(0);
}
become(process.execPath, [join(root, 'tools', 'test.mjs'), '--lane=interop', '-i', ...process.argv.slice(2)], {
  env: { ...process.env, INTEROP_PYTHON: python },
});
