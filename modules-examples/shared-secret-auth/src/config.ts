import { ConfigError } from '@rookery/module-api';

export interface SharedSecretConfig {
  readonly secret: string;
  /** Whether the proof may stand in for a password, too. */
  readonly asPassword: boolean;
}

const minSecretLength = 32;

/** Checks the module's `config`: `shared_secret`, `as_password`. @throws ConfigError */
export function parseConfig(raw: unknown): SharedSecretConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with shared_secret');
  const { shared_secret: secret, as_password: asPassword = false, ...others } = raw as Record<string, unknown>;
  for (const name of Object.keys(others))
    throw new ConfigError('is unknown; there are shared_secret, as_password', [name]);
  if (typeof secret !== 'string' || secret.length < minSecretLength) {
    throw new ConfigError(`expected a random text of at least ${minSecretLength} characters`, ['shared_secret']);
  }
  if (typeof asPassword !== 'boolean') throw new ConfigError('expected true or false', ['as_password']);
  return { secret, asPassword };
}
