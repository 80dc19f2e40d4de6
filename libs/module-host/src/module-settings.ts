import { ConfigError } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { parseConfig, problemsOf } from './definition.js';
import type { LoadedModule } from './loader.js';
import { runAs } from './owner.js';

type Path = readonly (string | number)[];

/** What is known of a module's settings. */
export interface ModuleSettings {
  /** JSON Schema of its `config`; `undefined` when it does not say. */
  readonly schema: Readonly<Record<string, unknown>> | undefined;
  /** Its `config`, without the texts whose names, or names above them, say that they are secret; of lists of such nothing. */
  readonly config: unknown;
  /** Where those stand in it. */
  readonly withheld: readonly string[];
  /**
   * Everything that is wrong with another `config`; secrets that it leaves out are those in force. `undefined` for a module in a thread of
   * its own, whose code does not run here.
   */
  check(config: unknown): readonly string[] | undefined;
}

/** Names of settings that nobody is shown. */
const secret = /secret|token|pass(?:word|phrase|wd|$)|key(?!word)|credential|authorization/i;
const maxDepth = 20;

/** What is known of the settings of a module. */
export function settingsOf({ entry, definition, owner, thread }: LoadedModule): ModuleSettings {
  const found: { readonly path: Path; readonly value: unknown }[] = [];
  const shown = withoutSecrets(entry.config, [], found);
  return {
    schema: definition.configJsonSchema,
    config: shown,
    withheld: found.map(({ path }) => path.join('.')),
    check(given) {
      if (thread) return undefined;
      const whole: unknown = given === undefined ? undefined : structuredClone(given);
      for (const { path, value } of found) putBack(whole, path, value);
      try {
        runAs(owner, () => parseConfig(definition, whole));
        return [];
      } catch (error) {
        const cause: unknown = error instanceof Error ? error.cause : undefined;
        if (ConfigError.is(cause)) return problemsOf(cause).map(({ problem }) => problem);
        return [error instanceof Error ? error.message : String(error)];
      }
    },
  };
}

/** @param isSecret whether a name above says so */
function withoutSecrets(
  value: unknown,
  path: Path,
  found: { path: Path; value: unknown }[],
  isSecret = false,
): unknown {
  if (path.length > maxDepth) return undefined;
  if (Array.isArray(value)) return value.map((one: unknown, i) => withoutSecrets(one, [...path, i], found));
  if (!isJsonObject(value)) return value;
  const shown: Record<string, unknown> = {};
  for (const [name, one] of Object.entries(value)) {
    const isOne = isSecret || secret.test(name);
    const isWhole = typeof one === 'string' || (Array.isArray(one) && hasText(one));
    if (isOne && isWhole) found.push({ path: [...path, name], value: one });
    else shown[name] = withoutSecrets(one, [...path, name], found, isOne);
  }
  return shown;
}

/** What is too deep to be looked at counts as one. */
const hasText = (value: unknown, depth = 0): boolean =>
  typeof value === 'string' ||
  (typeof value === 'object' &&
    value !== null &&
    (depth > maxDepth || Object.values(value).some((one) => hasText(one, depth + 1))));

/** Puts a value where there is none, if there is a place for it. */
function putBack(whole: unknown, path: Path, value: unknown): void {
  let at: unknown = whole;
  for (const name of path.slice(0, -1)) at = (at as Record<string | number, unknown> | null | undefined)?.[name];
  const name = String(path.at(-1));
  if (isJsonObject(at) && !Object.hasOwn(at, name)) Object.assign(at, { [name]: value });
}
