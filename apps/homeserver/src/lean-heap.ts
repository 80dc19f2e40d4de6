import { env } from 'node:process';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';

const savingMode = 'memory-saver-mode';

const options: Readonly<Record<string, number | true>> = {
  // Pages that a collection leaves empty go back to the system; otherwise the process keeps the most that it ever held.
  [`--${savingMode}`]: true,
  // MiB. Objects are made in two halves of this size: smaller, and what a request holds for a moment is taken for something
  // lasting; larger, and it is memory for a few percent of speed. The engine would go from 1 to over 32 and back.
  '--min-semi-space-size': 4,
  '--max-semi-space-size': 4,
  // The engine may conclude from a burst that what some line makes lasts, and make it among what lasts from then on. Where that
  // is wrong, every request leaves garbage that only the costly collection finds: some starts answered at a third of the speed.
  '--no-allocation-site-pretenuring': true,
  // How much the rest may grow, in percent, before it is collected; left alone it holds as much garbage again as data.
  '--heap-growing-percent': 20,
  // MiB. What a start loads stays: until there is as much, a collection finds next to nothing. There were eight of them, and four
  // at 56. At 80 there is nearly none, but what only the start needed is kept for longer than the seconds behind it.
  '--initial-heap-size': 72,
};

// The C library would set up an area per thread, each of which keeps the most that it ever held. Pieces of at least so many
// bytes are given back one by one, rather than leave holes among those that stay.
const mallocOptions = { MALLOC_ARENA_MAX: '1', MALLOC_MMAP_THRESHOLD_: '32768' };

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

/** Bytes in use from which on a heap is large, and below which it is no longer; and how often that is looked at, milliseconds. */
const largeBytes = 144 * 1_048_576;
const smallAgainBytes = 120 * 1_048_576;
const lookEveryMs = 500;

/**
 * Lets a large heap be collected as it is where memory is plenty. The saving mode moves what is left together each time, and begins
 * a collection late: with 200 MiB in use nothing else had a turn for up to 57 ms, without it 17, and there were more collections.
 */
export function relaxLargeHeap(): void {
  // Whoever names it has chosen.
  if (process.execArgv.filter((given) => given.includes(savingMode)).join() !== `--${savingMode}`) return;
  let isLarge = false;
  setInterval(() => {
    const { used_heap_size: usedBytes } = getHeapStatistics();
    if (isLarge ? usedBytes >= smallAgainBytes : usedBytes <= largeBytes) return;
    isLarge = !isLarge;
    setFlagsFromString(`--${isLarge ? 'no-' : ''}${savingMode}`);
  }, lookEveryMs).unref();
}
