import { existsSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect } from './common.js';

interface ReloadOptions {
  readonly config?: readonly string[];
}

/** `rookery reload` */
export function registerReloadCommand(program: Command, terminal: Terminal): void {
  program
    .command('reload')
    .description(
      'Lets the running server take over changed settings, modules and certificates. Its log says what it took.',
    )
    .option('-c, --config <file>', 'settings file or folder; may be given several times', collect)
    .action(({ config = ['homeserver.yaml'] }: ReloadOptions) => reload(config, terminal));
}

function reload(files: readonly string[], terminal: Terminal): void {
  // What is wrong with the settings is said here, where somebody reads it, and nothing is sent.
  const config = loadConfig(files);
  const file = config.get('pid_file');
  if (file === undefined) {
    throw new CommandError(
      'Set pid_file in the settings and restart the server, so that it can be found; or send it SIGHUP',
    );
  }
  const pid = existsSync(file) ? Number(readFileSync(file, 'utf8').trim()) : Number.NaN;
  if (!Number.isSafeInteger(pid) || pid <= 0)
    throw new CommandError(`${file} names no process: the server does not run`);
  try {
    process.kill(pid, 'SIGHUP');
  } catch (error) {
    const isGone = (error as NodeJS.ErrnoException).code === 'ESRCH';
    throw new CommandError(
      isGone ? `The process ${pid} of ${file} does not run any more` : `The process ${pid} cannot be told: not allowed`,
    );
  }
  terminal.note(`The server (process ${pid}) was told to reload.`);
}
