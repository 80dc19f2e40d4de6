import { existsSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileProblem } from '../file-problem.js';
import type { Ids } from '../ids.js';
import { Config } from './config.js';
import { SettingsError, type ConfigProblem } from './problem.js';
import { readSettings } from './read.js';
import { readSources } from './source.js';

/** For {@link loadConfig}. */
export interface LoadOptions {
  /** Environment variables that stand in for settings. Default: the process's. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** When given, the file of `registration_shared_secret_path` is written with a random secret if it does not exist. */
  readonly createSecrets?: Ids;
  /** Refuse secrets that stand in the files themselves instead of in files of their own. */
  readonly noSecretsInConfig?: boolean;
}

/**
 * Reads settings files and folders of `*.yaml` files; later top-level keys replace earlier ones.
 * @throws SettingsError with a line per error, naming file, line, setting and what was expected
 */
export function loadConfig(paths: readonly string[], options: LoadOptions = {}): Config {
  const { config, problems } = checkConfig(paths, options);
  if (!config) throw new SettingsError(problems);
  return config;
}

/** As {@link loadConfig}, but hands out what is wrong instead of throwing: errors first, then warnings. */
export function checkConfig(
  paths: readonly string[],
  options: LoadOptions = {},
): { readonly config: Config | undefined; readonly problems: readonly ConfigProblem[] } {
  const sources = readSources(paths);
  const sourceErrors = sources.problems.filter((problem) => problem.level === 'error');
  if (sourceErrors.length > 0) return { config: undefined, problems: sources.problems };
  const first = resolve(paths[0] ?? '.');
  const baseDir = existsSync(first) && statSync(first).isDirectory() ? first : dirname(first);
  const created = options.createSecrets ? createSharedSecret(sources.raw, baseDir, options.createSecrets) : undefined;
  if (created) return { config: undefined, problems: [{ ...created, where: sources.locate([created.setting]) }] };
  const { parts, errors } = readSettings({
    raw: sources.raw,
    baseDir,
    paths,
    env: options.env ?? process.env,
    locate: sources.locate,
    written: sources.written,
    noSecretsInConfig: options.noSecretsInConfig ?? false,
  });
  const warnings = [...sources.problems, ...parts.warnings];
  return {
    config: errors.length === 0 ? new Config({ ...parts, warnings }) : undefined,
    problems: [...errors, ...warnings],
  };
}

const isUnset = (secret: unknown): boolean => secret === undefined || secret === null || secret === '';

function createSharedSecret(
  raw: Readonly<Record<string, unknown>>,
  baseDir: string,
  ids: Ids,
): ConfigProblem | undefined {
  const setting = 'registration_shared_secret_path';
  const name = raw[setting];
  if (typeof name !== 'string' || name === '' || !isUnset(raw['registration_shared_secret'])) return undefined;
  const file = resolve(baseDir, name);
  try {
    if (!existsSync(file)) writeFileSync(file, `${ids.letters(50)}\n`, { mode: 0o600, flag: 'wx' });
    return undefined;
  } catch (error) {
    return {
      level: 'error',
      where: undefined,
      setting,
      message: `cannot write ${file}: ${fileProblem(error)}`,
    };
  }
}
