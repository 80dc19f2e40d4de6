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

/** What a span is about. */
export type SpanKind = 'internal' | 'server' | 'client';

/** What is told about a span: numbers, names, states; never content. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** Where a request or task that is traced notes what was done for it. */
export interface Spans {
  /** Notes something that has ended just now. */
  record(name: string, kind: SpanKind, durationMs: number, attributes?: SpanAttributes): void;
  /** What a request to another server says about the trace; nothing where that server is not trusted with it. */
  headersFor(serverName: string): Readonly<Record<string, string>>;
}

interface Context {
  readonly spans: Spans | undefined;
  readonly fields: LogContextFields;
  readonly cost: DatabaseCost | undefined;
}

const storage = new AsyncLocalStorage<Context>();

/** The request or background task that code runs for. For logs and metrics only: everything else is passed as an argument. */
export const LogContext = {
  /**
   * Runs `fn`; everything logged by it and by what it awaits carries the fields.
   * @param cost where the database's work is added up; that of the outer context unless told
   * @param spans where it is traced; those of the outer context unless told
   */
  run<T>(fields: LogContextFields, fn: () => T, cost = storage.getStore()?.cost, spans = storage.getStore()?.spans): T {
    return storage.run({ fields, cost, spans }, fn);
  },
  /** The fields in force. */
  current(): LogContextFields | undefined {
    return storage.getStore()?.fields;
  },
  /**
   * Adds what was spent elsewhere to what the request has cost so far.
   * @param what its name in a trace
   */
  spent(on: 'modulesMs' | 'serversMs', ms: number, what: () => string): void {
    const context = storage.getStore();
    if (context === undefined) return;
    const { cost, spans } = context;
    if (cost !== undefined) cost[on] = (cost[on] ?? 0) + ms;
    spans?.record(what(), on === 'serversMs' ? 'client' : 'internal', ms);
  },
  /** Where the request or task is traced; `undefined` where it is not. */
  spans(): Spans | undefined {
    return storage.getStore()?.spans;
  },
  /** Where the database's work for the request is added up; `undefined` where nobody asks. */
  cost(): DatabaseCost | undefined {
    return storage.getStore()?.cost;
  },
};
