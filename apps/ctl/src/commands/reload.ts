import { existsSync, readFileSync, rmSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Command } from 'commander';
import type { ReloadOutcome } from '@rookery/homeserver';
import { type Config, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { runningPid } from '../process-control/control.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp, oddEntries } from './common.js';

/** Modules have 30 seconds to be imported, and as long to register. */
const limitMs = 120_000;
const lookEveryMs = 100;

interface ReloadOptions {
  readonly config?: readonly string[];
}

/** `rookery reload` */
export function registerReloadCommand(program: Command, terminal: Terminal): void {
  program
    .command('reload')
    .description('Lets the running server take over changed settings, modules and certificates, and says what it took.')
    .option('-c, --config <file>', configHelp, collect)
    .action(({ config = ['homeserver.yaml'] }: ReloadOptions) => reload(config, terminal));
}

/** The server has been told to reload, and has not said what became of it. */
export class ReloadUnanswered extends CommandError {}

/** Where the process of these settings leaves its id, by which setting. */
function pidFileOf(config: Config): { readonly setting: string; readonly file: string | undefined } {
  const setting = config.get('worker_app') === undefined ? 'pid_file' : 'worker_pid_file';
  return { setting, file: config.get(setting) };
}

/** Whether the server of these settings runs and can be found. */
export function isRunning(files: readonly string[]): boolean {
  const { file } = pidFileOf(loadConfig(files));
  return file !== undefined && runningPid(file) !== undefined;
}

/**
 * Has the running server take over what changed, and says what it took.
 * @throws CommandError when it took nothing, ReloadUnanswered when it does not say
 */
export async function reload(files: readonly string[], terminal: Terminal): Promise<void> {
  // What is wrong with the settings is said here, where somebody reads it, and nothing is sent.
  const config = loadConfig(files);
  const { setting, file } = pidFileOf(config);
  if (file === undefined) {
    throw new CommandError(
      `Set ${setting} in the settings and restart the server, so that it can be found; or send it SIGHUP`,
    );
  }
  const pid = existsSync(file) ? Number(readFileSync(file, 'utf8').trim()) : Number.NaN;
  if (!Number.isSafeInteger(pid) || pid <= 0)
    throw new CommandError(`${file} names no process: the server does not run`);
  // As the server calls it: reloadOutcomeFile. The server is too large to be loaded for a name.
  const outcomeFile = `${file}.reload`;
  rmSync(outcomeFile, { force: true });
  try {
    process.kill(pid, 'SIGHUP');
  } catch (error) {
    const isGone = (error as NodeJS.ErrnoException).code === 'ESRCH';
    throw new CommandError(
      isGone ? `The process ${pid} of ${file} does not run any more` : `The process ${pid} cannot be told: not allowed`,
    );
  }
  const outcome = await outcomeOf(outcomeFile, pid);
  if ('problem' in outcome) {
    const taken = outcome.partly === true ? 'Some processes of the server took nothing over' : 'Nothing was reloaded';
    throw new CommandError(`${taken}. ${outcome.problem}`);
  }
  const { changed, modules, left } = outcome.report;
  terminal.note(`The server (process ${pid}) has taken over the settings.`);
  const parts = { 'changed settings': changed, 'modules added': modules.added, 'modules changed': modules.changed };
  for (const [what, names] of Object.entries({ ...parts, 'modules removed': modules.removed })) {
    if (names.length > 0) terminal.note(`${what}: ${names.join(', ')}`);
  }
  for (const line of left) terminal.note(`not taken over: ${line}`);
  for (const warning of oddEntries(config)) terminal.note(`warning: ${warning}`);
}

/** What the server says became of the reload. @throws CommandError when it has ended, ReloadUnanswered when it says nothing */
async function outcomeOf(file: string, pid: number): Promise<ReloadOutcome> {
  for (let waitedMs = 0; waitedMs < limitMs; waitedMs += lookEveryMs) {
    if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as ReloadOutcome;
    try {
      process.kill(pid, 0);
    } catch {
      throw new CommandError(`The server (process ${pid}) has ended; its log says why`);
    }
    await pause(lookEveryMs);
  }
  throw new ReloadUnanswered(
    `The server (process ${pid}) was told to reload and did not say what became of it; its log may`,
  );
}
