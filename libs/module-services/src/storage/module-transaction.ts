import type { Database, Tx } from '@rookery/database';
import { type Clock, KeyedSemaphore } from '@rookery/platform';
import { AsyncLocalStorage } from 'node:async_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** How long a module may keep a transaction open in all, milliseconds. On SQLite every other write waits for it. */
const limitMs = 5_000;
/** One that asks nothing of the database for this many looks in a row waits for something else. */
const maxIdleLooks = 4;
const lookEveryMs = 250;
/** SQLite answers without a turn of the event loop: after so long others, and the limits here, have theirs. */
const turnMs = 10;

/** Transactions of one module at a time, in this process: however many it begins, others come in between. */
const atOnce = { sqlite: 1, postgres: 4 } as const;
/** More of one module do not wait: it begins them faster than the database can end them. */
const maxWaiting = 1_000;
const permits = new WeakMap<Database, KeyedSemaphore>();
/** Whoever is in a transaction does not wait for its turn: it would be its own. The database says what is wrong with it. */
const inside = new AsyncLocalStorage<true>();

async function inTurn<T>(database: Database, module: string, work: () => Promise<T>): Promise<T> {
  if (inside.getStore()) return work();
  let ofModules = permits.get(database);
  if (!ofModules) {
    const refuse = (): Error => new Error(`${maxWaiting} transactions of this module wait already`);
    permits.set(database, (ofModules = new KeyedSemaphore(atOnce[database.dialect.name], { maxWaiting, refuse })));
  }
  return ofModules.run(module, () => inside.run(true, work));
}

/**
 * Runs a module's work in a transaction, in whichever process, once it is the module's turn there. Work that waits for anything but
 * the database is cut off after a second: on SQLite nobody else could write meanwhile.
 * @throws Error when too many of the module's transactions wait already
 */
export const inModuleTransaction = <T>(
  database: Database,
  clock: Clock,
  module: string,
  name: string,
  work: (tx: Tx) => Promise<T>,
): Promise<T> => {
  const options = { name, limitMs, anyProcess: true };
  return inTurn(database, module, () => database.write((tx) => watchedWork(clock, tx, work), options));
};

async function watchedWork<T>(clock: Clock, tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T> {
  let running = 0;
  let idleLooks = 0;
  let turnAtMs = clock.monotonicMs();
  const watched = async <R>(statement: Promise<R>): Promise<R> => {
    running++;
    try {
      const result = await statement;
      if (clock.monotonicMs() - turnAtMs > turnMs) {
        await nextTurn();
        turnAtMs = clock.monotonicMs();
      }
      return result;
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
