import { AsyncLocalStorage } from 'node:async_hooks';

/** What every line logged on behalf of one request or task carries. */
export interface LogContextFields {
  readonly requestId: string;
  readonly [field: string]: unknown;
}

/** What a request or task has cost the database so far. */
export interface DatabaseCost {
  /** Transactions, and reads outside of any. */
  transactions: number;
  /** In transactions and reads, milliseconds. */
  durationMs: number;
  /** Waiting for a connection or the writer, milliseconds. */
  waitMs: number;
  /** In modules, milliseconds; absent for none. */
  modulesMs?: number;
  /** Waiting for other servers and services, milliseconds; what is waited for side by side is added up. */
  serversMs?: number;
}

interface Context {
  readonly fields: LogContextFields;
  readonly cost: DatabaseCost | undefined;
}

const storage = new AsyncLocalStorage<Context>();

/** The request or background task that code runs for. For logs and metrics only: everything else is passed as an argument. */
export const LogContext = {
  /**
   * Runs `fn`; everything logged by it and by what it awaits carries the fields.
   * @param cost where the database's work is added up; that of the outer context unless told
   */
  run<T>(fields: LogContextFields, fn: () => T, cost = storage.getStore()?.cost): T {
    return storage.run({ fields, cost }, fn);
  },
  /** The fields in force. */
  current(): LogContextFields | undefined {
    return storage.getStore()?.fields;
  },
  /** Adds what was spent elsewhere to what the request has cost so far. */
  spent(on: 'modulesMs' | 'serversMs', ms: number): void {
    const cost = storage.getStore()?.cost;
    if (cost !== undefined) cost[on] = (cost[on] ?? 0) + ms;
  },
  /** Where the database's work for the request is added up; `undefined` where nobody asks. */
  cost(): DatabaseCost | undefined {
    return storage.getStore()?.cost;
  },
};
