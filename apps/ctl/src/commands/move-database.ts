import type { Command } from 'commander';
import {
  claimDatabase,
  copyDatabase,
  finishCopy,
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
import { assertThere, placeOf, withDatabaseErrors } from './database-at.js';

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
      'Copies everything into another, empty database: from SQLite to PostgreSQL, or back; or what lies elsewhere afterwards, where state gets a database of its own or gives it up. The server must be stopped. What was interrupted goes on when it is called again. At the end counts and hashes are compared. The old database stays as it is.',
    )
    .option('-c, --config <file>', configHelp, collect)
    .requiredOption('--to <file>', 'settings file with the section "database" or "databases" as it is to be')
    .action((options: Options) => move(options, terminal));
}

async function move({ config: files = ['homeserver.yaml'], to }: Options, terminal: Terminal): Promise<void> {
  const { databaseOptions, migrations, stateDatabaseOptions, stateMigrations } = await import('@rookery/homeserver');
  const { tables: stateTables } = (await import('@rookery/rooms')).stateStore;
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
    const [sourceState, targetState] = [stateDatabaseOptions(from), stateDatabaseOptions(next)];
    const [oldState, newState] = [sourceState ?? source, targetState ?? target];
    const isSame = (one: DatabaseOptions, other: DatabaseOptions): boolean => placeOf(one) === placeOf(other);
    const [mainStays, stateStays] = [isSame(source, target), isSame(oldState, newState)];
    if (mainStays && stateStays) throw new CommandError(`${to} names the same database`, 2);
    await assertThere(source);
    if (sourceState !== undefined) await assertThere(sourceState, true);
    if (!mainStays) terminal.note(`From ${placeOf(source)} to ${placeOf(target)}`);
    if (!stateStays && (mainStays || targetState !== undefined))
      terminal.note(`State from ${placeOf(oldState)} to ${placeOf(newState)}`);
    const onProgress = (table: string, rows: number): void => {
      if (clock.monotonicMs() - reportedAtMs < reportEveryMs) return;
      reportedAtMs = clock.monotonicMs();
      terminal.note(`${table}: ${many(rows, 'row')}`);
    };
    const copyState = (old: Database, fresh: Database, options: DatabaseOptions, isPart: boolean) =>
      copyDatabase(old, fresh, { only: stateTables, targetOptions: options, onProgress, isPart });
    const copied = await alone(source, async (old) => {
      const opened = new Map([[placeOf(source), old]]);
      const others: Database[] = [];
      /** Nobody claims a database of state: who has the main one has it, too. */
      const at = async (options: DatabaseOptions): Promise<Database> => {
        const known = opened.get(placeOf(options));
        if (known !== undefined) return known;
        const database = await openDatabase(options, clock);
        opened.set(placeOf(options), database);
        others.push(database);
        return database;
      };
      try {
        const groups = await at(oldState);
        if (mainStays) {
          const fresh = await at(newState);
          if (targetState !== undefined) await migrate(fresh, stateMigrations);
          return await copyState(groups, fresh, newState, false);
        }
        return await alone(target, async (fresh) => {
          await migrate(fresh, migrations);
          const parts = [];
          const ownState = stateStays || targetState === undefined ? undefined : await at(targetState);
          if (ownState !== undefined) {
            await migrate(ownState, stateMigrations);
            parts.push(...(await copyState(groups, ownState, newState, true)));
          }
          parts.push(
            ...(await copyDatabase(old, fresh, {
              derived: new Set(Object.keys(derived)),
              ...(targetState === undefined
                ? { from: { database: groups, tables: stateTables } }
                : { except: new Set(stateTables) }),
              targetOptions: target,
              onProgress,
              finish: async (db, tx) => {
                await moveSequence(db, tx);
                for (const update of Object.values(derived)) {
                  await tx.run('DELETE FROM background_updates WHERE update_name = ?', [update]);
                  await queueBackgroundUpdate(tx, update);
                }
              },
            })),
          );
          if (ownState !== undefined) await finishCopy(ownState);
          return parts;
        });
      } finally {
        for (const database of others) await database.close();
      }
    });
    const rows = copied.reduce((total, table) => total + table.rows, 0);
    const events = copied.find(({ table }) => table === 'events')?.rows;
    const seconds = (clock.monotonicMs() - startedAtMs) / 1000;
    const pace = Math.round((events ?? rows) / Math.max(seconds, 0.001));
    terminal.out(
      `Moved ${many(rows, 'row')} of ${many(copied.length, 'table')} in ${inTime(seconds)} (${many(pace, events === undefined ? 'row' : 'event')} a second); counts and hashes agree.`,
    );
    const left = `What was copied is still in ${placeOf(oldState)} as well`;
    const then =
      targetState === undefined
        ? `${left}: once the server runs, nobody needs that database.`
        : `${left}: once the server runs, empty ${stateTables.join(', ')} there.`;
    terminal.out(
      mainStays
        ? `Put the section of ${to} into your settings in place of the one that is there, and start the server. ${then}`
        : `Put the section of ${to} into your settings and start the server. It makes the indexes for searches anew, in the background.`,
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
