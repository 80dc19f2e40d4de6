import { resolve } from 'node:path';
import type { Config } from '../config/config.js';
import { isSection } from '../config/kinds.js';
import { SettingsError } from '../config/problem.js';
import { readSources } from '../config/source.js';
import { compileLayout, type LineLayout } from './layout.js';
import type { LogLevel } from './logger.js';
import type { LogOutput, Rotation } from './outputs.js';
import type { LoggerOptions, NamedOutputs } from './pino-logger.js';

/** Levels of Python's logging, and ours, by their names. */
const levels: Readonly<Record<string, LogLevel>> = {
  NOTSET: 'trace',
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  WARNING: 'warn',
  ERROR: 'error',
  CRITICAL: 'error',
  FATAL: 'error',
};

/** Handlers that keep lines for another one for a while; lines are gathered here anyway. */
const passingOn: Readonly<Record<string, true>> = { MemoryHandler: true, PeriodicallyFlushingMemoryHandler: true };

/** Units of `when`, milliseconds. */
const periods: Readonly<Record<string, number>> = { S: 1_000, M: 60_000, H: 3_600_000, D: 86_400_000 };

const facilities: Readonly<Record<string, number>> = {
  ...{ kern: 0, user: 1, mail: 2, daemon: 3, auth: 4, syslog: 5, authpriv: 10 },
  ...Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`local${i}`, 16 + i])),
};

/** Loggers that all others of the server are parts of: what a file says of them it says of each line. */
const wholeServer: ReadonlySet<string> = new Set(['synapse', 'rookery']);

/** The name of a logger, as it is here. */
const plainName = (name: string): string => name.replace(/^(synapse|rookery)\./, '');

/**
 * How the settings want the server to log: from `log_config` (the worker's own on a worker) where there is one, else from
 * `log_level` and `log_format`.
 * @throws SettingsError when the file cannot be read or understood
 */
export function loggerOptions(config: Config): LoggerOptions {
  const file =
    (config.get('worker_app') === undefined ? undefined : config.get('worker_log_config')) ?? config.get('log_config');
  const plain = { level: config.get('log_level'), format: config.get('log_format') };
  return file === undefined ? plain : { ...plain, ...readLogConfig(file) };
}

/**
 * Understands of a Python logging file what has a meaning here: the level of `root` and of each entry of `loggers` (with or
 * without `synapse.` in front; `synapse` itself is the whole server), handlers (streams, files that are put aside by size or
 * time, syslog, the journal) of root and of these, whether a formatter writes JSON, and how it arranges text.
 * @throws SettingsError
 */
export function readLogConfig(file: string): Partial<LoggerOptions> {
  const { raw, problems, locate } = readSources([file]);
  const errors = problems.filter((problem) => problem.level === 'error');
  const wrong = (path: (string | number)[], message: string): undefined => {
    errors.push({ level: 'error', where: locate(path) ?? file, setting: path.join('.'), message });
    return undefined;
  };
  const levelAt = (section: unknown, path: string[]): LogLevel | undefined => {
    const value = isSection(section) ? section['level'] : undefined;
    if (value === undefined) return undefined;
    const level = typeof value === 'string' ? levels[value.toUpperCase()] : undefined;
    return level ?? wrong([...path, 'level'], 'expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL');
  };
  for (const name of ['structured', 'drains']) {
    if (raw[name] !== undefined && raw[name] !== false)
      wrong([name], 'removed in 1.54. Use log_format: json, or handlers');
  }
  const root = isSection(raw['root']) ? raw['root'] : {};
  let level = levelAt(root, ['root']);
  const byName: Record<string, LogLevel> = {};
  const loggers = Object.entries(isSection(raw['loggers']) ? raw['loggers'] : {});
  for (const [name, section] of loggers) {
    // A part that sets none has that of what it is a part of.
    if (isSection(section) && section['level'] === 'NOTSET') continue;
    const own = levelAt(section, ['loggers', name]);
    if (own && wholeServer.has(name)) level = own;
    else if (own) byName[plainName(name)] = own;
  }
  const allHandlers = isSection(raw['handlers']) ? raw['handlers'] : {};
  const handlers = reachable(root, ['root']);
  let outputs = handlers.flatMap(outputOf);
  let areNamed = Array.isArray(root['handlers']) && handlers.length > 0;
  const named: Record<string, NamedOutputs> = {};
  for (const [name, section] of loggers) {
    if (!isSection(section) || !Array.isArray(section['handlers'])) continue;
    const own = reachable(section, ['loggers', name]).flatMap(outputOf);
    const propagate = section['propagate'] !== false;
    if (!wholeServer.has(name)) named[plainName(name)] = { outputs: own, propagate };
    else if (own.length > 0) [outputs, areNamed] = [propagate ? [...outputs, ...own] : own, true];
  }
  if (errors.length > 0) throw new SettingsError(errors);
  const file0 = outputs.find((one) => one.file !== undefined)?.file;
  return {
    ...(level ? { level } : {}),
    levels: byName,
    ...(file0 === undefined ? {} : { file: file0 }),
    ...(outputs.some((one) => one.format === 'json') ? { format: 'json' as const } : {}),
    ...(areNamed ? { outputs } : {}),
    ...(Object.keys(named).length === 0 ? {} : { named }),
  };

  /** The handlers that a section names, and those that buffering ones pass lines on to. */
  function reachable(
    section: Readonly<Record<string, unknown>>,
    at: readonly string[],
  ): (readonly [name: string, Record<string, unknown>])[] {
    const found = new Map<string, Record<string, unknown>>();
    const names = Array.isArray(section['handlers']) ? section['handlers'].map(String) : [];
    const waiting = names.map((name) => ({ name, path: [...at, 'handlers'] }));
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const { name, path } = next;
      const handler = Object.hasOwn(allHandlers, name) ? allHandlers[name] : undefined;
      if (!isSection(handler)) {
        wrong(path, `there is no "${name}" among handlers`);
        continue;
      }
      if (found.has(name)) continue;
      found.set(name, handler);
      if (typeof handler['target'] === 'string')
        waiting.push({ name: handler['target'], path: ['handlers', name, 'target'] });
    }
    return [...found];
  }

  function layoutOf(name: string, formatter: Readonly<Record<string, unknown>>): LineLayout | undefined {
    const { format, datefmt, style } = formatter;
    if (typeof format !== 'string') return undefined;
    if (style !== undefined && style !== '%' && style !== '{' && style !== '$')
      return wrong(['formatters', name, 'style'], "expected one of '%', '{', '$'");
    const layout: LineLayout = {
      format,
      ...(typeof datefmt === 'string' && { dateFormat: datefmt }),
      ...(style !== undefined && { style }),
    };
    try {
      compileLayout(layout);
      return layout;
    } catch (error) {
      return wrong(['formatters', name, 'format'], (error as Error).message);
    }
  }

  function outputOf([name, handler]: readonly [string, Record<string, unknown>]): LogOutput[] {
    const at = ['handlers', name];
    const kind = String(handler['class'] ?? '').replace(/^.*\./, '');
    const formatters = isSection(raw['formatters']) ? raw['formatters'] : {};
    const formatter = formatters[String(handler['formatter'])];
    if (formatter === undefined && typeof handler['formatter'] === 'string')
      wrong([...at, 'formatter'], `there is no "${handler['formatter']}" among formatters`);
    const isJson = isSection(formatter) && /json/i.test(String(formatter['class'] ?? formatter['()'] ?? ''));
    const layout = isJson || !isSection(formatter) ? undefined : layoutOf(String(handler['formatter']), formatter);
    const lowest = levelAt(handler, at);
    const common = {
      format: isJson ? ('json' as const) : formatter === undefined ? ('auto' as const) : ('text' as const),
      ...(layout === undefined ? {} : { layout }),
      ...(lowest === undefined ? {} : { level: lowest }),
    };
    const number = (key: string, otherwise: number): number => {
      const value = handler[key] ?? otherwise;
      return typeof value === 'number' && value >= 0
        ? value
        : (wrong([...at, key], 'expected a number, 0 or more') ?? otherwise);
    };
    const inFile = (more: { readonly rotation?: Rotation; readonly watched?: true } = {}): LogOutput[] =>
      typeof handler['filename'] === 'string'
        ? [{ to: 'file', file: resolve(handler['filename']), ...common, ...more }]
        : (wrong([...at, 'filename'], 'expected the path of a file') ?? []);
    if (kind in passingOn)
      return typeof handler['target'] === 'string'
        ? []
        : (wrong([...at, 'target'], 'expected the name of a handler') ?? []);
    switch (kind) {
      case 'NullHandler':
        return [];
      case 'StreamHandler':
        return [{ to: /stdout/.test(String(handler['stream'] ?? '')) ? 'stdout' : 'stderr', ...common }];
      case 'FileHandler':
        return inFile();
      case 'WatchedFileHandler':
        return inFile({ watched: true });
      case 'RotatingFileHandler': {
        const [maxBytes, keep] = [number('maxBytes', 0), number('backupCount', 0)];
        return inFile(maxBytes > 0 && keep > 0 ? { rotation: { maxBytes, keep } } : {});
      }
      case 'TimedRotatingFileHandler': {
        const unit = String(handler['when'] ?? 'h').toUpperCase();
        const everyMs = unit === 'MIDNIGHT' ? 'midnight' : unit.startsWith('W') ? 7 * periods['D']! : periods[unit];
        if (everyMs === undefined) return wrong([...at, 'when'], 'expected S, M, H, D, W0 to W6 or midnight') ?? [];
        const keep = number('backupCount', 0);
        const spanMs = everyMs === 'midnight' ? everyMs : everyMs * (number('interval', 1) || 1);
        return inFile({ rotation: { everyMs: spanMs, keep } });
      }
      case 'SysLogHandler': {
        const address = handler['address'];
        // What goes to a socket of this machine comes into its journal; with a prefix, the standard output does, too.
        if (typeof address === 'string') return [{ to: 'journal', ...common }];
        const [host, port] = Array.isArray(address) ? (address as unknown[]) : ['127.0.0.1', 514];
        const facility = facilities[String(handler['facility'] ?? 'user')] ?? 1;
        return typeof host === 'string' && typeof port === 'number'
          ? [{ to: 'syslog', host, port, facility, ...common }]
          : (wrong([...at, 'address'], 'expected a path, or a list of host and port') ?? []);
      }
      case 'JournalHandler':
      case 'JournaldLogHandler':
        return [{ to: 'journal', ...common }];
      default:
        return (
          wrong(
            [...at, 'class'],
            'not known here: write to the standard output (StreamHandler), a file, syslog or the journal',
          ) ?? []
        );
    }
  }
}
