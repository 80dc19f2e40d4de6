// Shared by the tools: the project's folder, its Node, and making sure that packages are installed and built.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const windows = process.platform === 'win32';

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

/** `npm ci` when node_modules is missing or was made from another lock file. */
export function ensureInstalled() {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = join(root, 'node_modules', '.rookery-lock');
  const installed = existsSync(join(root, 'node_modules', '.package-lock.json'));
  if (installed && existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  if (
    installed &&
    !existsSync(stamp) &&
    newerThan(join(root, 'node_modules', '.package-lock.json'), join(root, 'package-lock.json'))
  ) {
    writeFileSync(stamp, lock);
    return;
  }
  console.log('Installing packages (once; about a minute)...');
  run(windows ? 'npm.cmd' : 'npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { shell: windows });
  writeFileSync(stamp, lock);
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

/** Compiles every package when a source is newer than the last build. */
export function ensureBuilt() {
  const stamp = join(root, 'node_modules', '.rookery-built');
  const newest = Math.max(
    ...['libs', 'apps', 'modules-examples'].map((group) => newestSource(join(root, group))),
    statSync(join(root, 'tsconfig.base.json')).mtimeMs,
  );
  const entry = join(root, 'apps', 'homeserver', 'dist', 'main.js');
  if (existsSync(entry) && existsSync(stamp) && statSync(stamp).mtimeMs > newest) return;
  build();
}

/** Compiles every package, in the order of their references. */
export function build() {
  const startedAt = new Date();
  run(projectNode(), [join(root, 'node_modules', 'typescript7', 'bin', 'tsc'), '-b']);
  const stamp = join(root, 'node_modules', '.rookery-built');
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, startedAt.toISOString());
}
