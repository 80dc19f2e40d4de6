import { pino, type DestinationStream, type Logger as Pino } from 'pino';
import { LineWriter } from './line-writer.js';
import { LogContext } from './log-context.js';
import { type LogFields, Logger, type LogLevel } from './logger.js';
import { readableLine } from './readable.js';

/** How to log. */
export interface LoggerOptions {
  /** Least important lines written. */
  readonly level: LogLevel;
  /** Levels of parts by name; `rooms` also holds for `rooms.sending`. */
  readonly levels?: Readonly<Record<string, LogLevel>>;
  /** `auto`: text when the destination is a terminal. */
  readonly format?: 'auto' | 'text' | 'json';
  /** File to append to instead of the standard output. */
  readonly file?: string | undefined;
  /** Somewhere else to write to; takes one line at a time. Wins over `file`. */
  readonly write?: (line: string) => void;
}

/** What the loggers of one server share, so that levels can change while it runs. */
interface Levels {
  level: LogLevel;
  byName: Readonly<Record<string, LogLevel>>;
}

/** Whether lines are written for persons to read, not as JSON. */
export const isReadable = ({ format, file, write }: LoggerOptions): boolean =>
  format === 'text' || (format !== 'json' && !file && !write && process.stdout.isTTY === true);

const hide = (): string => '[hidden]';

/** Fields of a line that hold what must not be in a log, whoever passes them. Serializers cost less than pino's redaction. */
const serializers = {
  err: pino.stdSerializers.err,
  password: hide,
  secret: hide,
  token: hide,
  access_token: hide,
  refresh_token: hide,
  login_token: hide,
  authorization: hide,
  headers: (headers: unknown) =>
    typeof headers === 'object' && headers !== null
      ? { ...headers, authorization: undefined, cookie: undefined }
      : undefined,
};

/** A {@link Logger} over pino. Children share its destination. */
export class PinoLogger extends Logger {
  private constructor(
    /** The logger underneath, for libraries that take a pino logger. */
    readonly pino: Pino,
    private readonly name: string,
    private readonly levels: Levels,
    private readonly family: Set<WeakRef<PinoLogger>>,
  ) {
    super();
    pino.level = levelOf(name, levels);
    family.add(new WeakRef(this));
  }

  /** Opens the destination. @throws Error when the file cannot be opened */
  static create(options: LoggerOptions): PinoLogger {
    const readable = isReadable(options);
    const target: DestinationStream = options.write ? { write: options.write } : new LineWriter(options.file, readable);
    const color =
      readable && !options.file && !options.write && process.stdout.isTTY === true && !process.env['NO_COLOR'];
    const stream: DestinationStream = readable ? { write: (line) => target.write(readableLine(line, color)) } : target;
    const root = pino(
      {
        base: null,
        messageKey: 'msg',
        timestamp: pino.stdTimeFunctions.isoTime,
        formatters: { level: (label) => ({ level: label }) },
        serializers,
        // A copy: the logger writes the fields of the line into what it gets.
        mixin: () => ({ ...LogContext.current() }),
      },
      stream,
    );
    return new PinoLogger(root, '', { level: options.level, byName: options.levels ?? {} }, new Set());
  }

  debug(message: string, fields?: LogFields): void {
    this.pino.debug(fields ?? none, message);
  }
  info(message: string, fields?: LogFields): void {
    this.pino.info(fields ?? none, message);
  }
  warn(message: string, fields?: LogFields): void {
    this.pino.warn(fields ?? none, message);
  }
  error(message: string, fields?: LogFields): void {
    this.pino.error(fields ?? none, message);
  }
  isEnabled(level: LogLevel): boolean {
    return this.pino.isLevelEnabled(level);
  }
  child(name: string, fields: LogFields = none): PinoLogger {
    const full = this.name === '' ? name : `${this.name}.${name}`;
    return new PinoLogger(this.pino.child({ ...fields, logger: full }), full, this.levels, this.family);
  }

  /** Changes the levels of this logger and of all that share its destination. */
  setLevels(level: LogLevel, byName: Readonly<Record<string, LogLevel>> = {}): void {
    this.levels.level = level;
    this.levels.byName = byName;
    for (const reference of this.family) {
      const logger = reference.deref();
      if (logger) logger.pino.level = levelOf(logger.name, this.levels);
      else this.family.delete(reference);
    }
  }
}

const none: LogFields = Object.freeze({});

/** The level of the longest part of the name that has one. */
function levelOf(name: string, levels: Levels): LogLevel {
  for (let part = name; part !== ''; part = part.slice(0, Math.max(0, part.lastIndexOf('.')))) {
    const level = Object.hasOwn(levels.byName, part) ? levels.byName[part] : undefined;
    if (level !== undefined) return level;
  }
  return levels.level;
}
