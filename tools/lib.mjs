// Shared by the tools: the project's folder, its Node, and making sure that packages are installed and built.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const windows = process.platform === 'win32';

/** With `--help`: prints what a tool says of itself at its top, and ends. @param url `import.meta.url` of the tool */
export function helpWhereAsked(url) {
  if (!process.argv.slice(2).some((arg) => arg === '--help' || arg === '-h')) return;
  const lines = readFileSync(fileURLToPath(url), 'utf8').split('\n');
  const end = lines.findIndex((line) => !line.startsWith('//'));
  console.log(
    lines
      .slice(0, end)
      .map((line) => line.slice(3))
      .join('\n'),
  );
  process.exit(0);
}

/** The Node.js that the project brings (node_modules/node), or the one that runs now where it could not be installed. */
export function projectNode() {
  const own = join(root, 'node_modules', 'node', 'bin', windows ? 'node.exe' : 'node');
  return existsSync(own) ? own : process.execPath;
}

/** Runs a program to its end with our output; exits this process with its code when that is not 0. */
export function run(command, args, options = {}) {
  const result = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (result.error) {
    console.error(`${command}: ${result.error.message}`);
    process.exit(1);
  }
  if (result.status !== 0) process.exit(result.status ?? 1);
}

/** Starts a long-running program in our place: signals go through, its exit code is ours. */
export function become(command, args, options = {}) {
  const child = spawn(command, args, { cwd: root, stdio: 'inherit', ...options });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  child.on('exit', (code, signal) => process.exit(code ?? (signal ? 1 : 0)));
}

/** `npm ci` when node_modules is missing or was made from another lock file. What another command installs is waited for. */
export function ensureInstalled() {
  if (!isInstalled()) oneAtATime(() => isInstalled() || install());
}

function isInstalled() {
  const lock = hashOfLock();
  const stamp = installStamp();
  const installed = existsSync(join(root, 'node_modules', '.package-lock.json'));
  if (existsSync(stamp)) return installed && readFileSync(stamp, 'utf8') === lock;
  if (!installed || !newerThan(join(root, 'node_modules', '.package-lock.json'), join(root, 'package-lock.json')))
    return false;
  writeFileSync(stamp, lock);
  return true;
}

function install() {
  console.log('Installing packages (once; about a minute)...');
  run(windows ? 'npm.cmd' : 'npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { shell: windows });
  writeFileSync(installStamp(), hashOfLock());
}

const installStamp = () => join(root, 'node_modules', '.rookery-lock');
const hashOfLock = () =>
  createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');

/** Runs what two commands in this folder must not do to it at once (`npm start` and `npm test` in a fresh clone). */
function oneAtATime(fn) {
  const file = join(root, '.rookery', 'installing');
  mkdirSync(dirname(file), { recursive: true });
  for (let waits = 0; ; waits++) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (waits === 0) console.log('Another command installs or builds here; waiting for it...');
    if (!holderLives(file)) rmSync(file, { force: true });
    else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  }
  // Also where the installation fails, which ends this process.
  const release = () => rmSync(file, { force: true });
  process.once('exit', release);
  fn();
  process.off('exit', release);
  release();
}

function holderLives(file) {
  try {
    process.kill(Number(readFileSync(file, 'utf8')) || process.pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

const newerThan = (a, b) => statSync(a).mtimeMs >= statSync(b).mtimeMs;

function newestSource(folder) {
  let newest = 0;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.name === 'node_modules' || entry.name === 'dist' || entry.name.startsWith('.')) continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) newest = Math.max(newest, newestSource(path));
    else if (/\.(ts|json)$/.test(entry.name)) newest = Math.max(newest, statSync(path).mtimeMs);
  }
  return newest;
}

/** Builds when a source is newer than the last build. What another command builds is waited for. */
export function ensureBuilt() {
  if (!isBuilt()) oneAtATime(() => isBuilt() || build());
}

function isBuilt() {
  const stamp = join(root, 'node_modules', '.rookery-built');
  const newest = Math.max(
    ...['libs', 'apps', 'modules-examples'].map((group) => newestSource(join(root, group))),
    statSync(join(root, 'tsconfig.base.json')).mtimeMs,
    statSync(join(root, 'tools', 'bundle.mjs')).mtimeMs,
  );
  return existsSync(serverProgram) && existsSync(stamp) && statSync(stamp).mtimeMs > newest;
}

/** The server as it is handed out and started: its code in few files. `npm run dev` runs what the compiler writes. */
export const serverProgram = join(root, 'apps', 'homeserver', 'dist', 'bundle', 'main.js');

/** Compiles every package, in the order of their references. */
export function compile() {
  run(projectNode(), [join(root, 'node_modules', 'typescript7', 'bin', 'tsc'), '-b']);
}

/** Compiles every package, and puts the code of the server together. */
export function build() {
  const startedAt = new Date();
  compile();
  run(projectNode(), [join(root, 'tools', 'bundle.mjs')]);
  const stamp = join(root, 'node_modules', '.rookery-built');
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, startedAt.toISOString());
}
