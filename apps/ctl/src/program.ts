import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { ConfigError } from '@rookery/platform';
import { CommandError } from './command-error.js';
import { registerConfigCommands } from './commands/config.js';
import { registerHashPasswordCommand } from './commands/hash-password.js';
import { registerModuleCommands } from './commands/module-commands.js';
import { registerReloadCommand } from './commands/reload.js';
import { registerRegisterUserCommand } from './commands/register-user.js';
import type { Terminal } from './terminal.js';

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

/** The `rookery` program with all its commands. */
export function createProgram(terminal: Terminal): Command {
  const program = new Command('rookery')
    .description('Operates a Rookery homeserver.')
    .version(version)
    .showHelpAfterError('(--help tells more)')
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.note(text.trimEnd()),
    })
    .exitOverride();
  registerConfigCommands(program, terminal);
  registerRegisterUserCommand(program, terminal);
  registerHashPasswordCommand(program, terminal);
  registerModuleCommands(program, terminal);
  registerReloadCommand(program, terminal);
  return program;
}

/**
 * Runs one command.
 * @param args without the names of runtime and script
 * @returns the exit code: 0 done, 1 failed, 2 called wrongly
 */
export async function runProgram(args: readonly string[], terminal: Terminal): Promise<number> {
  const program = createProgram(terminal);
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
    if (error instanceof ConfigError) {
      terminal.note(error.message);
      return 1;
    }
    throw error;
  }
}
