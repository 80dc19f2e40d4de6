import { ConfigError } from '@rookery/module-api';

const kinds = ['direct', 'encrypted', 'public', 'private', 'any'] as const;
export type RoomKind = (typeof kinds)[number];

/** How long messages of some rooms live. */
export interface Policy {
  readonly kind: RoomKind;
  /** `undefined`: for ever. */
  readonly maxLifetimeMs: number | undefined;
}

export interface RetentionPolicyConfig {
  /** The first that fits a new room decides. */
  readonly rooms: readonly Policy[];
  /** Whether people who run a room may say something else. */
  readonly changes: 'allow' | 'deny';
  /** Rooms and users that are held, whatever administrators say. */
  readonly holds: readonly string[];
}

const names = ['rooms', 'changes', 'holds'];
const dayMs = 86_400_000;
const maxHolds = 1_000;

/** Whether a text is the id of a room or a user. */
export const canBeHeld = (id: string): boolean => /^(?:![^\s]{1,254}|@[^:\s]*:[^\s]{1,250})$/.test(id);

/** Checks the module's `config`: `rooms`, `changes`, `holds`. @throws ConfigError */
export function parseConfig(raw: unknown = {}): RetentionPolicyConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object');
  const { rooms = [], changes = 'deny', holds = [], ...others } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  if (!Array.isArray(rooms)) throw new ConfigError('expected a list', ['rooms']);
  if (changes !== 'allow' && changes !== 'deny') throw new ConfigError('expected allow or deny', ['changes']);
  if (!Array.isArray(holds) || holds.length > maxHolds)
    throw new ConfigError(`expected a list of at most ${maxHolds}`, ['holds']);
  for (const [i, id] of holds.entries())
    if (typeof id !== 'string' || !canBeHeld(id))
      throw new ConfigError('expected the id of a room or a user', ['holds', i]);
  return {
    rooms: rooms.map((policy: unknown, i) => policyAt(policy, ['rooms', i])),
    changes,
    holds: holds as string[],
  };
}

function policyAt(raw: unknown, path: readonly (string | number)[]): Policy {
  const {
    kind,
    max_lifetime_days: days,
    ...others
  } = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>;
  for (const name of Object.keys(others))
    throw new ConfigError('is unknown; there are kind, max_lifetime_days', [...path, name]);
  const known = kinds.find((one) => one === kind);
  if (known === undefined) throw new ConfigError(`expected ${kinds.join(', ')}`, [...path, 'kind']);
  if (days !== null && !(typeof days === 'number' && days > 0 && days <= 36_500))
    throw new ConfigError('expected a number of days up to 36500, or null for ever', [...path, 'max_lifetime_days']);
  return { kind: known, maxLifetimeMs: days === null ? undefined : Math.round(days * dayMs) };
}
