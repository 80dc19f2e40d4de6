import { ConfigError } from '@rookery/module-api';

export interface PolicyListsConfig {
  /** Rooms that hold policy lists; somebody of this server has to be in them. */
  readonly rooms: readonly string[];
  /** Users of whom nothing is refused. */
  readonly exempt: readonly string[];
  /** A message that mentions more is refused. */
  readonly maxMentions: number;
  /** The same text of one sender more often within the window is refused. */
  readonly maxRepeats: number;
  readonly windowMs: number;
}

const names = ['rooms', 'exempt', 'max_mentions', 'max_repeats', 'window_seconds'];

/** Checks the module's `config`. @throws ConfigError */
export function parseConfig(raw: unknown): PolicyListsConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with rooms');
  const given = raw as Record<string, unknown>;
  for (const name of Object.keys(given))
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  const texts = (name: string, pattern: RegExp, expected: string): readonly string[] => {
    const list = given[name] ?? [];
    if (!Array.isArray(list) || list.length > 100)
      throw new ConfigError(`expected a list of at most 100 ${expected}`, [name]);
    for (const [i, value] of list.entries())
      if (typeof value !== 'string' || !pattern.test(value)) throw new ConfigError(`expected ${expected}`, [name, i]);
    return list as string[];
  };
  const count = (name: string, otherwise: number): number => {
    const value = given[name] ?? otherwise;
    if (typeof value !== 'number' || !(value >= 1)) throw new ConfigError('expected a number of at least 1', [name]);
    return value;
  };
  return {
    rooms: texts('rooms', /^(?:!|#[^:]*:)./, 'ids or aliases of rooms'),
    exempt: texts('exempt', /^@[^:]+:./, 'user ids'),
    maxMentions: count('max_mentions', 30),
    maxRepeats: count('max_repeats', 10),
    windowMs: count('window_seconds', 60) * 1000,
  };
}
