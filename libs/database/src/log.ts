/** Where this lib reports to: the part of the platform's logger that it needs. */
export interface DatabaseLog {
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

/** A log that says nothing. */
export const silentLog: DatabaseLog = { info: () => {}, warn: () => {}, error: () => {} };

/** Told about each finished transaction, for metrics. */
export interface TransactionReport {
  readonly name: string;
  /** Time from the call until its first statement could run. */
  readonly waitMs: number;
  /** Time from then until it was durable or rolled back. */
  readonly durationMs: number;
  readonly committed: boolean;
}
