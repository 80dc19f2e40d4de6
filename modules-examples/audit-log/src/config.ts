import { ConfigError } from '@rookery/module-api';

export interface AuditLogConfig {
  /** Key of the seals, so that nobody without it can make a chain that fits. */
  readonly key: string;
  /** Types of state events that are written down. */
  readonly stateTypes: ReadonlySet<string>;
}

const names = ['key', 'state_types'];
const usual = [
  'm.room.power_levels',
  'm.room.join_rules',
  'm.room.server_acl',
  'm.room.tombstone',
  'm.room.encryption',
];

/** Checks the module's `config`. @throws ConfigError */
export function parseConfig(raw: unknown): AuditLogConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with key');
  for (const name of Object.keys(raw))
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  const { key, state_types: stateTypes = usual } = raw as Record<string, unknown>;
  if (typeof key !== 'string' || key.length < 32)
    throw new ConfigError('expected a random text of at least 32 characters', ['key']);
  if (!Array.isArray(stateTypes) || stateTypes.some((type) => typeof type !== 'string'))
    throw new ConfigError('expected a list of types', ['state_types']);
  return { key, stateTypes: new Set(stateTypes as string[]) };
}
