const option = '--max-semi-space-size';
const sizeMib = 8;

/**
 * Bounds the part of the heap in which JavaScript makes its objects. Without this the engine lets it grow to over 100 MiB
 * under load, for a few percent of speed. The option can only be given to a program that starts, so the process becomes
 * one with it: the same process, before anything is loaded. Does nothing where the command line names a size already, and
 * where the system cannot do it.
 */
export function limitYoungGeneration(): void {
  const { execArgv, execPath, argv } = process;
  // A parent that talks to the process by way of `process.send` would lose it.
  if (execArgv.some((given) => given.startsWith(option)) || process.send !== undefined) return;
  if (process.platform === 'win32' || typeof process.execve !== 'function') return;
  process.execve(execPath, [execPath, `${option}=${sizeMib}`, ...execArgv, ...argv.slice(1)]);
}
