import { type LogFields, Logger, type LogLevel } from '@rookery/platform';

/** Keeps what is logged, for tests to look at. */
export class RecordingLogger extends Logger {
  readonly lines: { readonly level: LogLevel; readonly message: string; readonly fields: LogFields }[] = [];

  debug(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'debug', message, fields });
  }
  info(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'info', message, fields });
  }
  warn(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'warn', message, fields });
  }
  error(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'error', message, fields });
  }
  isEnabled(): boolean {
    return true;
  }
  child(): Logger {
    return this;
  }
  /** The messages of one level, in order. */
  messages(level: LogLevel): string[] {
    return this.lines.filter((line) => line.level === level).map((line) => line.message);
  }
}
