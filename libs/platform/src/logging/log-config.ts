import { resolve } from 'node:path';
import type { Config } from '../config/config.js';
import { isSection } from '../config/kinds.js';
import { ConfigError } from '../config/problem.js';
import { readSources } from '../config/source.js';
import type { LogLevel } from './logger.js';
import type { LoggerOptions } from './pino-logger.js';

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

/**
 * How the settings want the server to log: from `log_config` (the worker's own on a worker) where there is one, else from
 * `log_level` and `log_format`.
 * @throws ConfigError when the file cannot be read or understood
 */
export function loggerOptions(config: Config): LoggerOptions {
  const file =
    (config.get('worker_app') === undefined ? undefined : config.get('worker_log_config')) ?? config.get('log_config');
  const plain = { level: config.get('log_level'), format: config.get('log_format') };
  return file === undefined ? plain : { ...plain, ...readLogConfig(file) };
}

/**
 * Understands of a Python logging file what has a meaning here: the level of `root` and of each entry of `loggers` (with or
 * without `synapse.` in front), the file of a handler that root uses, and JSON formatters. The rest is left alone.
 * @throws ConfigError
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
  const level = levelAt(root, ['root']);
  const byName: Record<string, LogLevel> = {};
  for (const [name, section] of Object.entries(isSection(raw['loggers']) ? raw['loggers'] : {})) {
    const own = levelAt(section, ['loggers', name]);
    if (own) byName[name.replace(/^(synapse|rookery)\./, '')] = own;
  }
  const allHandlers = isSection(raw['handlers']) ? raw['handlers'] : {};
  const handlers = reachable(Array.isArray(root['handlers']) ? root['handlers'] : [], allHandlers);
  const filename = handlers.map((handler) => handler['filename']).find((name) => typeof name === 'string');
  const formatters = isSection(raw['formatters']) ? raw['formatters'] : {};
  const json = handlers.some((handler) => {
    const formatter = formatters[String(handler['formatter'])];
    return isSection(formatter) && /json/i.test(String(formatter['class'] ?? formatter['()'] ?? ''));
  });
  if (errors.length > 0) throw new ConfigError(errors);
  return {
    ...(level ? { level } : {}),
    levels: byName,
    ...(filename === undefined ? {} : { file: resolve(String(filename)) }),
    ...(json ? { format: 'json' as const } : {}),
  };
}

/** The handlers with these names, and those that buffering ones pass lines on to. */
function reachable(names: readonly unknown[], all: Readonly<Record<string, unknown>>): Record<string, unknown>[] {
  const seen = new Set<string>();
  const waiting = names.map(String);
  const found: Record<string, unknown>[] = [];
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
    const handler = all[name];
    if (seen.has(name) || !isSection(handler)) continue;
    seen.add(name);
    found.push(handler);
    if (typeof handler['target'] === 'string') waiting.push(handler['target']);
  }
  return found;
}
