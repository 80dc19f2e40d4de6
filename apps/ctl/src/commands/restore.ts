import type { Command } from 'commander';
import { claimDatabase, markRestored, openDatabase } from '@rookery/database';
import { loadConfig, SystemClock } from '@rookery/platform';
import { restoreBackup, restoreSettings } from '../backup/restore-backup.js';
import { CommandError } from '../command-error.js';
import { runningPid } from '../process-control/control.js';
import type { Terminal } from '../terminal.js';
import { openFolder, reporter } from './backup.js';
import { collect, configHelp, inTime } from './common.js';
import { assertThere, placeOf, withDatabaseErrors } from './database-at.js';

interface Options {
  readonly config?: readonly string[];
  readonly from: string;
  readonly passwordFile?: string;
}

/** `rookery restore` */
export function registerRestoreCommands(program: Command, terminal: Terminal): void {
  const restore = program
    .command('restore')
    .description('Brings a server back from a backup, into empty places. Without a command: backup.');
  restore
    .command('backup', { isDefault: true })
    .description(
      'Puts settings, keys, media and database back. Nothing that is there is written over; what was interrupted goes on when it is called again.',
    )
    .argument('[backup]', 'as "rookery backup list" has it. Default: the newest')
    .requiredOption('--from <folder>', 'folder with the backups')
    .option(
      '-c, --config <file>',
      'settings that hold now, instead of those of the backup; may be given several times',
      collect,
    )
    .option('--password-file <file>', 'file with the password, instead of asking for it')
    .action((id: string | undefined, options: Options) => bringBack(id, options, terminal));
  restore
    .command('adopt')
    .description(
      'After a database was put back by other means than this command: the next start makes it fit to go on, so that clients and other servers miss nothing. The server must be stopped.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .action((options: Pick<Options, 'config'>) => adopt(options, terminal));
}

async function bringBack(id: string | undefined, options: Options, terminal: Terminal): Promise<void> {
  const { databaseOptions, stateDatabaseOptions } = await import('@rookery/homeserver');
  const clock = new SystemClock();
  const startedAtMs = clock.monotonicMs();
  const folder = await openFolder(options.from, options, terminal);
  const chosen = id ?? (await folder.backups()).at(-1);
  if (chosen === undefined) throw new CommandError(`There are no backups in ${options.from}`);
  const manifest = await folder.manifest(chosen);
  terminal.note(`Backup ${chosen} of ${manifest.serverName}, made by Rookery ${manifest.madeBy}`);
  if (options.config === undefined) {
    const written = await restoreSettings({ folder, manifest });
    terminal.note(
      `Settings: ${manifest.settings.paths.join(', ')} (${written} of ${manifest.settings.files.length} files were missing)`,
    );
  }
  const config = loadConfig(options.config ?? manifest.settings.paths);
  const pidFile = config.get('pid_file');
  const pid = pidFile === undefined ? undefined : runningPid(pidFile);
  if (pid !== undefined) throw new CommandError(`The server runs (process ${pid} of ${pidFile}): stop it first`);
  await withDatabaseErrors(async () => {
    const [database, state] = [databaseOptions(config), stateDatabaseOptions(config)];
    // A file of SQLite is not there yet: nobody can have it.
    const claim = database.name === 'sqlite3' ? undefined : await claimDatabase(database, { waitMs: 0 });
    try {
      await restoreBackup({
        ...{ folder, manifest, config, clock, options: database, state },
        onProgress: reporter(terminal, clock),
        onNote: (text) => terminal.note(text),
      });
    } finally {
      await claim?.release();
    }
    const places = [database, ...(state === undefined ? [] : [state])].map(placeOf);
    terminal.out(
      `Restored into ${[...places, config.get('media_store_path')].join(' and ')} in ${inTime((clock.monotonicMs() - startedAtMs) / 1000)}. Everything since ${new Date(manifest.madeAtMs).toISOString()} is lost.`,
    );
    terminal.out(
      'Start the server. Only if the old one will never run again: two that take themselves for the same destroy each other.',
    );
  });
}

async function adopt(
  { config: files = ['homeserver.yaml'] }: Pick<Options, 'config'>,
  terminal: Terminal,
): Promise<void> {
  const config = loadConfig(files);
  const { databaseOptions } = await import('@rookery/homeserver');
  await withDatabaseErrors(async () => {
    const options = databaseOptions(config);
    const clock = new SystemClock();
    await assertThere(options);
    const database = await openDatabase(options, clock);
    try {
      const claim = await claimDatabase(options, { waitMs: 0 });
      try {
        await database.write((tx) => markRestored(tx, clock.nowMs()));
      } finally {
        await claim.release();
      }
    } finally {
      await database.close();
    }
    terminal.out(`${placeOf(options)}: the next start takes it for restored.`);
  });
}
