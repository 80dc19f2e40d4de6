import { createRequire } from 'node:module';
import type { RE2JS } from 're2js';

let engine: typeof RE2JS | undefined;

/** Loaded with the first pattern: a server without application services starts without it. */
function regularExpressions(): typeof RE2JS {
  engine ??= (createRequire(import.meta.url)('re2js') as { readonly RE2JS: typeof RE2JS }).RE2JS;
  return engine;
}

/** Longest pattern that a registration file may have, characters. */
export const longestPattern = 10_000;

/**
 * A pattern of a namespace. It has to match from the beginning of a name and may end before its end, as services of the
 * field expect. Matching takes time in proportion to the name, whatever the pattern.
 */
export class NamespacePattern {
  readonly #prefix: string;
  /** Absent where the prefix says everything. */
  readonly #rest: RE2JS | undefined;

  /** @throws Error in plain words when the pattern is not one */
  constructor(readonly source: string) {
    if (source.length > longestPattern) throw new Error(`longer than ${longestPattern} characters`);
    const compiled = compile(source);
    const { prefix, isWhole } = literalPrefix(source);
    this.#prefix = prefix;
    this.#rest = isWhole ? undefined : compiled;
  }

  matches(name: string): boolean {
    return name.startsWith(this.#prefix) && (this.#rest === undefined || this.#rest.matcher(name).lookingAt());
  }
}

/** A range of user ids, aliases or room ids. */
export interface Namespace {
  readonly pattern: NamespacePattern;
  /** Nobody else may make what lies in it. */
  readonly exclusive: boolean;
}

/** What an application service is interested in. */
export interface Namespaces {
  readonly users: readonly Namespace[];
  readonly aliases: readonly Namespace[];
  readonly rooms: readonly Namespace[];
}

/** The kinds of {@link Namespaces}. */
export const namespaceKinds = ['users', 'aliases', 'rooms'] as const;

/** Whether one of some namespaces has a name. */
export const liesIn = (name: string, namespaces: readonly Namespace[]): boolean =>
  namespaces.some(({ pattern }) => pattern.matches(name));

/** Whether one of some exclusive namespaces has a name. */
export const liesInExclusive = (name: string, namespaces: readonly Namespace[]): boolean =>
  namespaces.some(({ exclusive, pattern }) => exclusive && pattern.matches(name));

function compile(source: string): RE2JS {
  try {
    return regularExpressions().compile(source);
  } catch (error) {
    if (/\(\?(?:[=!]|<[=!])/.test(source))
      throw new Error('look-ahead and look-behind are not supported: list what is wanted instead', { cause: error });
    throw new Error(String((error as Error).message).replace(/^error parsing regexp: /, ''), { cause: error });
  }
}

const special = /[.^$*+?()[\]{}|\\]/;

/** The text with which every match of a pattern begins, and whether that is all that the pattern asks for. */
function literalPrefix(source: string): { prefix: string; isWhole: boolean } {
  if (source.includes('|')) return { prefix: '', isWhole: false };
  let at = source.startsWith('^') ? 1 : 0;
  let prefix = '';
  while (at < source.length) {
    const escaped = source[at] === '\\';
    const character = source[escaped ? at + 1 : at];
    if (character === undefined || (escaped ? /\w/.test(character) && character !== '_' : special.test(character)))
      break;
    const next = at + (escaped ? 2 : 1);
    if (/[*+?{]/.test(source[next] ?? '')) break;
    prefix += character;
    at = next;
  }
  const rest = source.slice(at);
  return { prefix, isWhole: rest === '' || rest === '.*' };
}
