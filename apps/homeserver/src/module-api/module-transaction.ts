import type { Database, Tx } from '@rookery/database';
import type { Clock } from '@rookery/platform';

/** How long a module may keep a transaction open in all, milliseconds. On SQLite every other write waits for it. */
const limitMs = 5_000;
/** One that asks nothing of the database for this many looks in a row waits for something else. */
const maxIdleLooks = 4;
const lookEveryMs = 250;

/**
 * Runs a module's work in a transaction. Work that waits for anything but the database is cut off after a second: on SQLite
 * nobody else could write meanwhile.
 */
export function inModuleTransaction<T>(
  database: Database,
  clock: Clock,
  name: string,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  return database.write(
    async (tx) => {
      let running = 0;
      let idleLooks = 0;
      const watched = async <R>(statement: Promise<R>): Promise<R> => {
        running++;
        try {
          return await statement;
        } finally {
          running--;
          idleLooks = 0;
        }
      };
      let cut = (_: Error): void => {};
      const idle = new Promise<never>((_, reject) => (cut = reject));
      // Counted in looks, not in time: a process that was busy elsewhere is no fault of the module.
      const watch = clock.every(lookEveryMs, () => {
        if (running > 0) return;
        if (++idleLooks < maxIdleLooks) return;
        cut(new Error('A module waited for something else in a transaction; only the database may be waited for'));
      });
      try {
        return await Promise.race([work(watchedTx(tx, watched)), idle]);
      } finally {
        watch.cancel();
      }
    },
    { name, limitMs },
  );
}

const watchedTx = (tx: Tx, watched: <R>(statement: Promise<R>) => Promise<R>): Tx => ({
  dialect: tx.dialect,
  query: (sql, params) => watched(tx.query(sql, params)),
  get: (sql, params) => watched(tx.get(sql, params)),
  run: (sql, params) => watched(tx.run(sql, params)),
  exec: (sql, params) => watched(tx.exec(sql, params)),
  insertMany: (table, columns, rows, suffix) => watched(tx.insertMany(table, columns, rows, suffix)),
  afterCommit: (fn) => tx.afterCommit(fn),
  unlessRolledBack: (fn) => tx.unlessRolledBack(fn),
  afterRollback: (fn) => tx.afterRollback(fn),
});
