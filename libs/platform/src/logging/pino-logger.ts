import { pino, type DestinationStream, type Logger as Pino } from 'pino';
import { LineWriter } from './line-writer.js';
import { LogContext } from './log-context.js';
import { type LogFields, Logger, type LogLevel } from './logger.js';
import { type LogOutput, openOutput } from './outputs.js';
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
  /** Where lines go, in place of `format` and `file`. */
  readonly outputs?: readonly LogOutput[];
  /** Places of parts by name, which also hold for what is below them. */
  readonly named?: Readonly<Record<string, NamedOutputs>>;
  /** Somewhere else to write to; takes one line at a time. Wins over `file`. */
  readonly write?: (line: string) => void;
}

/** Where the lines of a part go. */
export interface NamedOutputs {
  readonly outputs: readonly LogOutput[];
  /** Besides, they go where all lines go. */
  readonly propagate: boolean;
}

/** What the loggers of one server share, so that levels can change while it runs. */
interface Levels {
  level: LogLevel;
  byName: Readonly<Record<string, LogLevel>>;
  /** Where lines go and how they look, as text. */
  readonly places: string;
}

/** Whether lines are written for persons to read, not as JSON. */
export const isReadable = ({ format, file, write }: LoggerOptions): boolean =>
  format === 'text' || (format !== 'json' && !file && !write && process.stdout.isTTY === true);

const placesOf = ({ format, file, outputs, named }: LoggerOptions): string =>
  JSON.stringify({ format, file, outputs, named });

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

const none: LogFields = Object.freeze({});

/** A {@link Logger} over pino. Children share its destination. */
export class PinoLogger extends Logger {
  private constructor(
    /** The logger underneath, for libraries that take a pino logger. */
    readonly pino: Pino,
    private readonly name: string,
    private readonly levels: Levels,
    private readonly family: Set<WeakRef<PinoLogger>>,
    /** What {@link child} starts from: the library would write a field of a child's child twice. */
    private readonly root: Pino = pino,
    private readonly fields: LogFields = none,
  ) {
    super();
    pino.level = levelOf(name, levels);
    family.add(new WeakRef(this));
  }

  /** Opens the destination. @throws Error when the file cannot be opened */
  static create(options: LoggerOptions): PinoLogger {
    const readable = isReadable(options);
    const { outputs, named } = options;
    if (options.write === undefined && (outputs !== undefined || named !== undefined))
      return PinoLogger.#over(destinationOf(outputs ?? [standardOf(options)], named ?? {}), options);
    const target: DestinationStream = options.write ? { write: options.write } : new LineWriter(options.file, readable);
    const color =
      readable && !options.file && !options.write && process.stdout.isTTY === true && !process.env['NO_COLOR'];
    const stream: DestinationStream = readable ? { write: (line) => target.write(readableLine(line, color)) } : target;
    return PinoLogger.#over(stream, options);
  }

  static #over(stream: DestinationStream, options: LoggerOptions): PinoLogger {
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
    const { level, levels: byName = {} } = options;
    return new PinoLogger(root, '', { level, byName, places: placesOf(options) }, new Set());
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
    const all = { ...this.fields, ...fields };
    return new PinoLogger(this.root.child({ ...all, logger: full }), full, this.levels, this.family, this.root, all);
  }

  /**
   * Changes the levels of this logger and of all that share its destination.
   * @returns whether that is all: `false` where the options want lines elsewhere, or otherwise than when it was opened
   */
  setLevels(options: LoggerOptions): boolean {
    this.levels.level = options.level;
    this.levels.byName = options.levels ?? {};
    for (const reference of this.family) {
      const logger = reference.deref();
      if (logger) logger.pino.level = levelOf(logger.name, this.levels);
      else this.family.delete(reference);
    }
    return placesOf(options) === this.levels.places;
  }
}

/** The level of the longest part of the name that has one. */
function levelOf(name: string, levels: Levels): LogLevel {
  for (let part = name; part !== ''; part = part.slice(0, Math.max(0, part.lastIndexOf('.')))) {
    const level = Object.hasOwn(levels.byName, part) ? levels.byName[part] : undefined;
    if (level !== undefined) return level;
  }
  return levels.level;
}

const standardOf = ({ format = 'auto', file }: LoggerOptions): LogOutput =>
  file === undefined ? { to: 'stdout', format } : { to: 'file', file, format };

/** Names of levels by their numbers in the library. */
const levelNames: Readonly<Record<number, LogLevel>> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
};

/** Gives each line to all the places that want it. */
function destinationOf(
  outputs: readonly LogOutput[],
  named: Readonly<Record<string, NamedOutputs>>,
): DestinationStream & { lastLevel: number } {
  const opened = new Map<LogOutput, ReturnType<typeof openOutput>>();
  // Two parts may name the same handler: one file is opened once.
  const byText = new Map<string, ReturnType<typeof openOutput>>();
  for (const output of [...outputs, ...Object.values(named).flatMap((one) => one.outputs)]) {
    const text = JSON.stringify(output);
    const known = byText.get(text) ?? openOutput(output);
    byText.set(text, known);
    opened.set(output, known);
  }
  const names = Object.keys(named);
  return {
    // The library then says of which level a line is.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 30,
    write(line) {
      const level = levelNames[this.lastLevel] ?? 'error';
      const logger = names.length === 0 ? undefined : /"logger":"([^"]*)"/.exec(line)?.[1];
      let goesOn = true;
      for (let part = logger ?? ''; part !== '' && goesOn; part = part.slice(0, Math.max(0, part.lastIndexOf('.')))) {
        const own = Object.hasOwn(named, part) ? named[part] : undefined;
        for (const output of own?.outputs ?? []) opened.get(output)?.(line, level);
        goesOn = own?.propagate ?? true;
      }
      if (goesOn) for (const output of outputs) opened.get(output)?.(line, level);
    },
  };
}
