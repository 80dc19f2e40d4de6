import { resolve } from 'node:path';
import type { ConfigParts } from './parts.js';
import { SettingsError, type ConfigProblem } from './problem.js';
import { readSettings } from './read.js';
import { rowOf, type SettingName, settingNames, type SettingValue } from './table.js';

/** For {@link Config.fromObject}. */
export interface FromObjectOptions {
  /** Where relative paths start. Default: the current folder. */
  readonly configDir?: string;
  /** Environment variables that stand in for settings. Default: none. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/**
 * The settings in force. Injected by its class. `get` is a look-up in a map; services that ask often keep the value.
 *
 * Settings marked for reload change in place on SIGHUP: ask again, or listen with {@link onReload}.
 */
export class Config {
  readonly #values: Map<SettingName, unknown>;
  #given: ReadonlySet<string>;
  #locate: ConfigParts['locate'];
  readonly #listeners = new Set<(changed: ReadonlySet<SettingName>) => void>();
  /** Folder of the first settings file; relative paths start there, packages of modules are looked for there. */
  readonly configDir: string;
  /** Settings files and folders, as they were given; none for settings from an object. */
  readonly paths: readonly string[];
  /** The domain part of this server's ids. */
  readonly serverName: string;
  /** What the operator should know about the files; also about settings that have no effect. */
  readonly warnings: readonly ConfigProblem[];

  constructor(parts: ConfigParts) {
    this.#values = new Map(parts.values);
    this.#given = parts.given;
    this.#locate = parts.locate;
    this.configDir = parts.configDir;
    this.paths = parts.paths;
    this.warnings = parts.warnings;
    this.serverName = this.get('server_name');
  }

  /**
   * Settings from a plain object shaped like the file: nested sections (`{ email: { smtp_host: … } }`) or names with dots
   * (`{ 'email.smtp_host': … }`). Defaults and every check apply; `report_stats` need not be there, `server_name` is
   * `localhost` unless given.
   * @throws SettingsError
   */
  static fromObject(object: Readonly<Record<string, unknown>> = {}, options: FromObjectOptions = {}): Config {
    const raw: Record<string, unknown> = { server_name: 'localhost', report_stats: false };
    for (const [name, value] of Object.entries(object)) setDeep(raw, name.split('.'), value);
    const result = readSettings({
      raw,
      baseDir: resolve(options.configDir ?? '.'),
      env: options.env ?? {},
      locate: () => undefined,
    });
    if (result.errors.length > 0) throw new SettingsError(result.errors);
    return new Config(result.parts);
  }

  /** A setting's value: durations in milliseconds, sizes in bytes, paths absolute, defaults applied. */
  get<K extends SettingName>(name: K): SettingValue<K> {
    return this.#values.get(name) as SettingValue<K>;
  }

  /** Whether the files name the setting themselves (also with the value of the default). */
  isGiven(name: SettingName): boolean {
    return this.#given.has(name);
  }

  /** Where a setting stands, for messages: `homeserver.yaml:12`; the file alone for one that is in none. */
  where(name: SettingName, ...path: (string | number)[]): string {
    return this.#locate([...name.split('.'), ...path]) ?? name;
  }

  /** Calls `fn` with the names that changed after every reload that changed something. The result stops that. */
  onReload(fn: (changed: ReadonlySet<SettingName>) => void): () => void {
    this.#listeners.add(fn);
    return () => this.#listeners.delete(fn);
  }

  /**
   * Takes over what may change while the server runs.
   * @returns what changed, and what would change after a restart only
   */
  reload(next: Config): { readonly changed: ReadonlySet<SettingName>; readonly needRestart: readonly SettingName[] } {
    const changed = new Set<SettingName>();
    const needRestart: SettingName[] = [];
    for (const name of settingNames) {
      const reloadable = rowOf(name).reload === true;
      if (JSON.stringify(this.#values.get(name)) === JSON.stringify(next.#values.get(name))) continue;
      if (reloadable) {
        this.#values.set(name, next.#values.get(name));
        changed.add(name);
      } else needRestart.push(name);
    }
    this.#given = next.#given;
    this.#locate = next.#locate;
    if (changed.size > 0) for (const fn of this.#listeners) fn(changed);
    return { changed, needRestart };
  }
}

function setDeep(target: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [key = '', ...rest] = path;
  if (rest.length === 0) {
    const old = target[key];
    const both = isPlain(old) && isPlain(value);
    target[key] = both ? { ...old, ...value } : value;
    return;
  }
  const inner = target[key];
  const next = isPlain(inner) ? { ...inner } : {};
  target[key] = next;
  setDeep(next, rest, value);
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
