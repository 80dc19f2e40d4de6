import type { Database, Tx } from '@rookery/database';
import { eventually } from './eventually.js';

type WriteOptions = Parameters<Database['write']>[1];

/**
 * Stops the first write of a name before the end of its transaction, until another is as far as it gets beside that.
 * @returns resolves once it has stopped
 */
export function holdUp(database: Database, name: string, other: string): Promise<void> {
  const { write } = database;
  let isDone = database.dialect.name === 'sqlite';
  let isBegun = false;
  const isWaiting = async (): Promise<boolean> => {
    if (database.dialect.name !== 'postgres') return false;
    // The locks are those of the whole cluster: other databases wait for their own.
    const waiting = await database.query(
      `SELECT 1 AS found FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
       WHERE NOT l.granted AND a.datname = current_database()`,
    );
    return waiting.length > 0;
  };
  return new Promise((reached) => {
    const held = async <T>(work: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T> => {
      if (options?.name === other) {
        database.write = write;
        isBegun = true;
        return write.call(
          database,
          async (tx) => {
            const result = await work(tx);
            isDone = true;
            return result;
          },
          options,
        ) as Promise<T>;
      }
      if (options?.name !== name) return write.call(database, work, options) as Promise<T>;
      return write.call(
        database,
        async (tx) => {
          const result = await work(tx);
          reached();
          // One writer at a time, or one that waits for a row, or one that has overlooked what is held up.
          await eventually(async () => isBegun && (isDone || (await isWaiting())));
          return result;
        },
        options,
      ) as Promise<T>;
    };
    database.write = held as typeof write;
  });
}
