/** What goes into a log line beside the message: plain values, and `err` for an error. */
export type LogFields = Readonly<Record<string, unknown>>;

/** How important a line is. */
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error';

/**
 * Writes structured lines. Messages are fixed English sentences; what varies goes into fields. Never log secrets, tokens
 * or message contents. Lines carry the fields of the current {@link LogContext}.
 */
export abstract class Logger {
  /** Details for developers, off by default. */
  abstract debug(message: string, fields?: LogFields): void;
  /** What an operator wants to see. */
  abstract info(message: string, fields?: LogFields): void;
  /** Something is not as it should be; the server carries on. */
  abstract warn(message: string, fields?: LogFields): void;
  /** Something failed that should not; put the error into `err`. */
  abstract error(message: string, fields?: LogFields): void;
  /** Whether lines of that level are written; ask before costly preparations. */
  abstract isEnabled(level: LogLevel): boolean;
  /** A logger for a part of the server. Levels can be set by `name` in `log_config`, parts of it separated by dots. */
  abstract child(name: string, fields?: LogFields): Logger;
}

/** Swallows everything: for tests. */
export class SilentLogger extends Logger {
  debug(): void {}
  info(): void {}
  warn(): void {}
  error(): void {}
  isEnabled(): boolean {
    return false;
  }
  child(): Logger {
    return this;
  }
}
