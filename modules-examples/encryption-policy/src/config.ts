import { ConfigError } from '@rookery/module-api';

export interface EncryptionPolicyConfig {
  /** Which new rooms get encryption. */
  readonly newRooms: 'all' | 'private' | 'none';
  /** Refuse to switch encryption on in a room that anybody may join, and to let anybody join an encrypted room. */
  readonly forbidInPublic: boolean;
  /** Refuse plain messages in encrypted rooms. */
  readonly refusePlain: boolean;
}

/** Checks the module's `config`: `new_rooms`, `forbid_in_public`, `refuse_plain`. @throws ConfigError */
export function parseConfig(raw: unknown = {}): EncryptionPolicyConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object');
  const {
    new_rooms: newRooms = 'private',
    forbid_in_public: forbidInPublic = false,
    refuse_plain: refusePlain = true,
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) {
    throw new ConfigError('is unknown; there are new_rooms, forbid_in_public, refuse_plain', [name]);
  }
  if (newRooms !== 'all' && newRooms !== 'private' && newRooms !== 'none') {
    throw new ConfigError('expected all, private or none', ['new_rooms']);
  }
  if (typeof forbidInPublic !== 'boolean') throw new ConfigError('expected true or false', ['forbid_in_public']);
  if (forbidInPublic && newRooms === 'all')
    throw new ConfigError('contradicts new_rooms: all, since no public room could be made', ['forbid_in_public']);
  if (typeof refusePlain !== 'boolean') throw new ConfigError('expected true or false', ['refuse_plain']);
  return { newRooms, forbidInPublic, refusePlain };
}
