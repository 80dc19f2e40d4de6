import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { SettingsError } from '@rookery/platform';
import { CommandError } from './command-error.js';
import { registerBackupCommands } from './commands/backup.js';
import { registerConfigCommands } from './commands/config.js';
import { registerDoctorCommand } from './commands/doctor.js';
import { registerFederationCommands } from './commands/federation.js';
import { registerHashPasswordCommand } from './commands/hash-password.js';
import { registerModuleCommands } from './commands/module-commands.js';
import { registerMoveDatabaseCommand } from './commands/move-database.js';
import { registerReportStatsCommand } from './commands/report-stats.js';
import { registerReloadCommand } from './commands/reload.js';
import { registerReleasesCommand } from './commands/releases.js';
import { registerRegisterUserCommand } from './commands/register-user.js';
import { registerRestoreCommands } from './commands/restore.js';
import { registerRollbackCommands } from './commands/rollback.js';
import { registerUpgradeCommands } from './commands/upgrade.js';
import type { Terminal } from './terminal.js';

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

/** A program of this package that speaks through a terminal. */
export function createCommand(name: string, terminal: Terminal): Command {
  return new Command(name)
    .version(version)
    .showHelpAfterError('(--help tells more)')
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.note(text.trimEnd()),
    })
    .exitOverride();
}

/** The `rookery` program with all its commands. */
export function createProgram(terminal: Terminal): Command {
  const program = createCommand('rookery', terminal).description('Operates a Rookery homeserver.');
  registerConfigCommands(program, terminal);
  registerRegisterUserCommand(program, terminal);
  registerHashPasswordCommand(program, terminal);
  registerModuleCommands(program, terminal);
  registerReloadCommand(program, terminal);
  registerReportStatsCommand(program, terminal);
  registerReleasesCommand(program, terminal);
  registerUpgradeCommands(program, terminal, version);
  registerRollbackCommands(program, terminal);
  registerDoctorCommand(program, terminal);
  registerFederationCommands(program, terminal);
  registerBackupCommands(program, terminal, version);
  registerRestoreCommands(program, terminal);
  registerMoveDatabaseCommand(program, terminal);
  return program;
}

/**
 * Runs one command of `rookery`.
 * @param args without the names of runtime and script
 * @returns the exit code: 0 done, 1 failed, 2 called wrongly
 */
export const runProgram = (args: readonly string[], terminal: Terminal): Promise<number> =>
  runCommands(createProgram(terminal), args, terminal);

/** Runs one command of a program. @returns the exit code, as {@link runProgram} */
export async function runCommands(program: Command, args: readonly string[], terminal: Terminal): Promise<number> {
  try {
    if (args.length === 0) {
      program.outputHelp();
      return 2;
    }
    await program.parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof CommandError) {
      terminal.note(error.message);
      return error.exitCode;
    }
    if (error instanceof SettingsError || isOfSystem(error)) {
      terminal.note(error.message);
      return 1;
    }
    const { missingPartOf } = await import('@rookery/homeserver');
    const missing = missingPartOf(error);
    if (missing === undefined) throw error;
    terminal.note(missing);
    return 1;
  }
}

/** Whether the system refused something: a file that may not be read, a full disk. Its message says what and where. */
const isOfSystem = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && 'code' in error && 'syscall' in error;
