import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../command-error.js';

/** Segments and checkpoints of the write-ahead log of a Prometheus. */
const part = /^(?:\d{8}|checkpoint\.\d+(?:\.tmp)?)$/;

/** What lies in the write-ahead log of a metrics collector. */
export interface CollectorLog {
  readonly folder: string;
  readonly parts: readonly string[];
  readonly bytes: number;
}

/**
 * Looks at the write-ahead log in the data folder of a Prometheus.
 * @throws CommandError when it is none, or the collector runs on it
 */
export function collectorLog(data: string): CollectorLog {
  const folder = join(data, 'wal');
  if (!existsSync(folder)) throw new CommandError(`${data} has no folder "wal": it is not the data of a Prometheus`);
  const parts = readdirSync(folder).sort();
  const strange = parts.find((name) => !part.test(name));
  if (strange !== undefined)
    throw new CommandError(`${join(folder, strange)} belongs to no write-ahead log; nothing was removed`);
  if (isLocked(join(data, 'lock'))) throw new CommandError(`The collector of ${data} runs: stop it first`);
  return { folder, parts, bytes: parts.reduce((bytes, name) => bytes + sizeOf(join(folder, name)), 0) };
}

/** Removes what {@link collectorLog} found. The collector makes a new one when it starts. */
export function removeCollectorLog({ folder, parts }: CollectorLog): void {
  for (const name of parts) rmSync(join(folder, name), { recursive: true, force: true });
}

function sizeOf(path: string): number {
  const found = statSync(path);
  return found.isDirectory()
    ? readdirSync(path).reduce((bytes, name) => bytes + sizeOf(join(path, name)), 0)
    : found.size;
}

/** Whether a process holds a lock on a file; where the system does not tell, nobody does. */
function isLocked(file: string): boolean {
  if (!existsSync(file) || !existsSync('/proc/locks')) return false;
  const { ino } = statSync(file);
  return readFileSync('/proc/locks', 'utf8')
    .split('\n')
    .some((line) => line.includes(`:${ino} `));
}
