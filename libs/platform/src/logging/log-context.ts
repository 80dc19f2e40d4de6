import { AsyncLocalStorage } from 'node:async_hooks';

/** What every line logged on behalf of one request or task carries. */
export interface LogContextFields {
  readonly requestId: string;
  readonly [field: string]: unknown;
}

const storage = new AsyncLocalStorage<LogContextFields>();

/** The request or background task that code runs for. For logs only: everything else is passed as an argument. */
export const LogContext = {
  /** Runs `fn`; everything logged by it and by what it awaits carries the fields. */
  run<T>(fields: LogContextFields, fn: () => T): T {
    return storage.run(fields, fn);
  },
  /** The fields in force. */
  current(): LogContextFields | undefined {
    return storage.getStore();
  },
};
