import type { Command } from 'commander';
import {
  claimDatabase,
  copyDatabase,
  type Database,
  type DatabaseOptions,
  migrate,
  openDatabase,
  queueBackgroundUpdate,
} from '@rookery/database';
import { loadConfig, SystemClock } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { runningPid } from '../process-control/control.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp, inTime, many } from './common.js';
import { placeOf, withDatabaseErrors } from './database-at.js';

interface Options {
  readonly config?: readonly string[];
  readonly to: string;
}

/** Indexes of words, which differ from database to database, and the background updates that make them. */
const derived = { event_search: 'event_search', user_directory: 'populate_user_directory' } as const;
const reportEveryMs = 5_000;

/** `rookery move-database` */
export function registerMoveDatabaseCommand(program: Command, terminal: Terminal): void {
  program
    .command('move-database')
    .description(
      'Copies everything into another, empty database: from SQLite to PostgreSQL, or back. The server must be stopped. What was interrupted goes on when it is called again. At the end counts and hashes are compared. The old database stays as it is.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .requiredOption('--to <file>', 'settings file with the section "database" of the new database')
    .action((options: Options) => move(options, terminal));
}

async function move({ config: files = ['homeserver.yaml'], to }: Options, terminal: Terminal): Promise<void> {
  const { databaseOptions, migrations } = await import('@rookery/homeserver');
  const { moveSequence } = await import('@rookery/appservices');
  const [from, next] = [loadConfig(files), loadConfig([...files, to])];
  const pidFile = from.get('pid_file');
  const pid = pidFile === undefined ? undefined : runningPid(pidFile);
  if (pid !== undefined) throw new CommandError(`The server runs (process ${pid} of ${pidFile}): stop it first`);
  const clock = new SystemClock();
  const startedAtMs = clock.monotonicMs();
  let reportedAtMs = startedAtMs;
  await withDatabaseErrors(async () => {
    const [source, target] = [databaseOptions(from), databaseOptions(next)];
    if (placeOf(source) === placeOf(target)) throw new CommandError(`${to} names the same database`, 2);
    terminal.note(`From ${placeOf(source)} to ${placeOf(target)}`);
    const copied = await alone(source, (old) =>
      alone(target, async (fresh) => {
        await migrate(fresh, migrations);
        return copyDatabase(old, fresh, {
          derived: new Set(Object.keys(derived)),
          targetOptions: target,
          onProgress: (table, rows) => {
            if (clock.monotonicMs() - reportedAtMs < reportEveryMs) return;
            reportedAtMs = clock.monotonicMs();
            terminal.note(`${table}: ${many(rows, 'row')}`);
          },
          finish: async (db, tx) => {
            await moveSequence(db, tx);
            for (const update of Object.values(derived)) {
              await tx.run('DELETE FROM background_updates WHERE update_name = ?', [update]);
              await queueBackgroundUpdate(tx, update);
            }
          },
        });
      }),
    );
    const rows = copied.reduce((total, table) => total + table.rows, 0);
    const events = copied.find(({ table }) => table === 'events')?.rows ?? 0;
    const seconds = (clock.monotonicMs() - startedAtMs) / 1000;
    terminal.out(
      `Moved ${many(rows, 'row')} of ${many(copied.length, 'table')} in ${inTime(seconds)} (${many(Math.round(events / Math.max(seconds, 0.001)), 'event')} a second); counts and hashes agree.`,
    );
    terminal.out(
      `Put the section "database" of ${to} into your settings and start the server. It makes the indexes for searches anew, in the background.`,
    );
  });
}

/** Calls a function with a database that nobody else has. @throws DatabaseError when a server has it */
async function alone<T>(options: DatabaseOptions, fn: (database: Database) => Promise<T>): Promise<T> {
  const database = await openDatabase(options, new SystemClock());
  try {
    const claim = await claimDatabase(options, { waitMs: 0 });
    try {
      return await fn(database);
    } finally {
      await claim.release();
    }
  } finally {
    await database.close();
  }
}
