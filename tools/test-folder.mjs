// Where the servers of `npm test` store: in memory, where there is room for it, since thousands of small commits need not wait for a disk.
import { mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';

const memory = '/dev/shm';
const prefix = 'rookery-tests-';
/** With less it may be full before the tests are done. */
const enoughBytes = 2 * 1024 ** 3;

/**
 * Makes a folder in memory, which goes when this process ends, and removes those of runs that were killed.
 * @returns its path; `undefined` where there is not enough memory for that
 */
export function folderInMemory() {
  try {
    for (const name of readdirSync(memory)) if (name.startsWith(prefix) && !isRunning(name)) remove(join(memory, name));
    const { bavail, bsize } = statfsSync(memory);
    if (bavail * bsize < enoughBytes) return undefined;
    const folder = join(memory, `${prefix}${process.pid}`);
    mkdirSync(folder);
    process.on('exit', () => remove(folder));
    return folder;
  } catch {
    // There is no such thing here, or not for this user.
    return undefined;
  }
}

function isRunning(name) {
  try {
    return process.kill(Number(name.slice(prefix.length)), 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function remove(folder) {
  rmSync(folder, { recursive: true, force: true });
}
