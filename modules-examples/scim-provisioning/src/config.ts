import { ConfigError } from '@rookery/module-api';

export interface ScimConfig {
  /** What the directory authenticates with. */
  readonly token: string;
  /** The sign-in provider to which `externalId` ties accounts; `undefined` ties none. */
  readonly authProvider: string | undefined;
  /** Accounts that are here already are taken over by the name; otherwise the name is taken. */
  readonly adopt: boolean;
}

const names = ['token', 'auth_provider', 'adopt'];
const shortestToken = 32;

/** Checks the module's `config`: `token`, `auth_provider`, `adopt`. @throws ConfigError */
export function parseConfig(raw: unknown): ScimConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with token');
  const { token, auth_provider: authProvider, adopt = false, ...others } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  if (typeof token !== 'string' || token.length < shortestToken)
    throw new ConfigError(`expected a text of at least ${shortestToken} characters`, ['token']);
  if (authProvider !== undefined && (typeof authProvider !== 'string' || authProvider === ''))
    throw new ConfigError('expected the id of a sign-in provider', ['auth_provider']);
  if (typeof adopt !== 'boolean') throw new ConfigError('expected true or false', ['adopt']);
  return { token, authProvider, adopt };
}
