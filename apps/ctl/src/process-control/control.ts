import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import type { ManagedProcess } from './managed-processes.js';

const lookEveryMs = 50;
/** A stop takes five seconds at most; a machine that is busy, longer. */
const stopLimitMs = 60_000;
const ownerOnly = 0o600;

/** The process that a pid file names, if it runs. */
export function runningPid(pidFile: string): number | undefined {
  const pid = existsSync(pidFile) ? Number(readFileSync(pidFile, 'utf8').trim()) : Number.NaN;
  return Number.isSafeInteger(pid) && pid > 0 && isAlive(pid) ? pid : undefined;
}

/**
 * Starts a process, and returns once it answers requests, however long an upgrade of the database takes before.
 * @param inBackground otherwise it returns when the process ends
 * @throws CommandError when it runs already, or ends instead
 */
export async function startProcess(
  { name, files, pidFile }: ManagedProcess,
  inBackground: boolean,
  terminal: Terminal,
): Promise<void> {
  const runs = runningPid(pidFile);
  if (runs !== undefined) throw new CommandError(`${name} runs already (process ${runs})`);
  rmSync(pidFile, { force: true });
  if (!inBackground) {
    const child = launch(files, 'inherit');
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
    const code = await endOf(child);
    if (code !== 0) throw new CommandError(`${name} ended with ${code}`);
    return;
  }
  const outputFile = `${pidFile}.out`;
  const output = openOutput(outputFile);
  const child = launch(files, output);
  closeSync(output);
  let ended: number | string | undefined;
  void endOf(child).then((code) => (ended = code));
  // The server writes it when it has come to listen.
  while (runningPid(pidFile) !== child.pid) {
    if (ended !== undefined) {
      const said = readFileSync(outputFile, 'utf8').trimEnd();
      throw new CommandError(`${name} did not start (it ended with ${ended}):\n${said}`);
    }
    await pause(lookEveryMs);
  }
  child.unref();
  terminal.out(`${name} started (process ${child.pid}); what it prints is in ${outputFile}`);
}

/** Ends a process and waits until it is gone. One that does not run is none to end. @throws CommandError when it stays */
export async function stopProcess({ name, pidFile }: ManagedProcess, terminal: Terminal): Promise<void> {
  const pid = runningPid(pidFile);
  if (pid === undefined) return terminal.out(`${name} does not run`);
  try {
    process.kill(pid, 'SIGTERM');
  } catch {
    throw new CommandError(`${name} (process ${pid}) cannot be stopped: not allowed`);
  }
  for (let waitedMs = 0; isAlive(pid); waitedMs += lookEveryMs) {
    if (waitedMs > stopLimitMs) throw new CommandError(`${name} (process ${pid}) does not end`);
    await pause(lookEveryMs);
  }
  rmSync(pidFile, { force: true });
  terminal.out(`${name} stopped`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // It is there and belongs to somebody else.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function launch(files: readonly string[], output: number | 'inherit'): ChildProcess {
  return spawn(process.execPath, [serverProgram(), '--config', ...files], {
    detached: output !== 'inherit',
    stdio: ['ignore', output, output],
  });
}

function openOutput(file: string): number {
  try {
    mkdirSync(dirname(file), { recursive: true });
    return openSync(file, 'w', ownerOnly);
  } catch (error) {
    throw new CommandError(`${file} cannot be written: ${fileProblem(error)}`);
  }
}

const endOf = (child: ChildProcess): Promise<number | string> =>
  new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('exit', (code, signal) => resolve(code ?? signal ?? 1));
  });

/** The server's package lies beside this one, or wherever npm has put it. */
function serverProgram(): string {
  const beside = fileURLToPath(new URL('../../../homeserver/dist/bundle/main.js', import.meta.url));
  return existsSync(beside)
    ? beside
    : join(dirname(fileURLToPath(import.meta.resolve('@rookery/homeserver'))), 'bundle', 'main.js');
}
