import type { Command } from 'commander';
import { Config, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { askTwice, collect } from './common.js';

interface HashOptions {
  readonly password?: string;
  readonly rounds?: string;
  readonly config?: string[];
}

/** `rookery hash-password` */
export function registerHashPasswordCommand(program: Command, terminal: Terminal): void {
  program
    .command('hash-password')
    .description('Prints the hash of a password as the server stores it.')
    .option(
      '-p, --password <password>',
      'the password; asked for when it is not given, which keeps it out of the list of processes',
    )
    .option(
      '-r, --rounds <number>',
      'work per password, 4 to 31; each step doubles it. Default: of the settings, else 12',
    )
    .option(
      '-c, --config <file>',
      'settings file with bcrypt_rounds and password_config.pepper; may be given several times',
      collect,
    )
    .action((options: HashOptions) => hashPassword(options, terminal));
}

async function hashPassword(options: HashOptions, terminal: Terminal): Promise<void> {
  const file = options.config === undefined ? undefined : loadConfig(options.config);
  const rounds = options.rounds === undefined ? file?.get('bcrypt_rounds') : Number(options.rounds);
  if (rounds !== undefined && (!Number.isInteger(rounds) || rounds < 4 || rounds > 31)) {
    throw new CommandError('--rounds: expected a whole number from 4 to 31', 2);
  }
  const password = options.password ?? (await askTwice(terminal));
  if (password === '') throw new CommandError('A password must not be empty', 2);
  // The accounts bring half the server with them: only loaded when there is something to hash.
  const { PasswordService } = await import('@rookery/users');
  const settings = Config.fromObject({
    'password_config.pepper': file?.get('password_config.pepper') ?? '',
    ...(rounds === undefined ? {} : { bcrypt_rounds: rounds }),
  });
  terminal.out(await new PasswordService(settings).hash(password));
}
