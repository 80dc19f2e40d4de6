import { env } from 'node:process';

const options: Readonly<Record<string, number | true>> = {
  // Pages that a collection leaves empty go back to the system; otherwise the process keeps the most that it ever held.
  '--memory-saver-mode': true,
  // MiB. Objects are made in two halves of this size: smaller, and what a request holds for a moment is taken for something
  // lasting (with 4 a sync costs half as much again); larger, and it is memory for a few percent of speed. The engine would go
  // from 1 to over 32 and back.
  '--min-semi-space-size': 6,
  '--max-semi-space-size': 6,
  // How much the rest may grow, in percent, before it is collected; left alone it holds as much garbage again as data.
  '--heap-growing-percent': 20,
};

// The C library would set up an area per thread, each of which keeps the most that it ever held.
const mallocOptions = { MALLOC_ARENA_MAX: '1' };

/**
 * Keeps memory close to what is in use. The options can only be given to a program that starts, so the process becomes one
 * with them: the same process, before anything is loaded. What the command line or the environment names itself stays as it
 * is. Does nothing where the system cannot do it.
 */
export function leanHeap(): void {
  const { execArgv, execPath, argv } = process;
  const missing = Object.entries(options).filter(([name]) => !execArgv.some((given) => given.startsWith(name)));
  // A parent that talks to the process by way of `process.send` would lose it.
  if (missing.length === 0 || process.send !== undefined) return;
  if (process.platform === 'win32' || typeof process.execve !== 'function') return;
  process.execve(
    execPath,
    [
      execPath,
      ...missing.map(([name, value]) => (value === true ? name : `${name}=${value}`)),
      ...execArgv,
      ...argv.slice(1),
    ],
    // Handed on, not read.
    { ...mallocOptions, ...env },
  );
}
