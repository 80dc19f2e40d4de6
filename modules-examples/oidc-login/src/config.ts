import { ConfigError } from '@rookery/module-api';

/** One OpenID Connect provider. */
export interface OidcInstance {
  readonly id: string;
  readonly name: string;
  readonly issuer: URL;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scope: string;
  /** Whether an account of the same name is the same person's. */
  readonly allowExistingUsers: boolean;
}

const known = ['id', 'name', 'issuer', 'client_id', 'client_secret', 'scope', 'allow_existing_users'];

/** Checks the module's `config`: `providers`, a list. @throws ConfigError */
export function parseConfig(raw: unknown): readonly OidcInstance[] {
  const providers = (raw as { providers?: unknown } | undefined)?.providers;
  if (!Array.isArray(providers) || providers.length === 0)
    throw new ConfigError('expected a list of at least one provider', ['providers']);
  return providers.map((provider: unknown, i) => {
    const path = ['providers', i];
    if (typeof provider !== 'object' || provider === null) throw new ConfigError('expected a section', path);
    const values = provider as Record<string, unknown>;
    for (const name of Object.keys(values))
      if (!known.includes(name)) throw new ConfigError(`is unknown; there are ${known.join(', ')}`, [...path, name]);
    const text = (name: string, usual?: string): string => {
      const value = values[name] ?? usual;
      if (typeof value !== 'string' || value === '') throw new ConfigError('expected a text', [...path, name]);
      return value;
    };
    const issuer = URL.parse(text('issuer'));
    if (issuer?.protocol !== 'https:' && issuer?.hostname !== '127.0.0.1')
      throw new ConfigError('expected an https address', [...path, 'issuer']);
    const { allow_existing_users: allowExistingUsers = false } = values;
    if (typeof allowExistingUsers !== 'boolean')
      throw new ConfigError('expected true or false', [...path, 'allow_existing_users']);
    return {
      id: text('id'),
      name: text('name'),
      issuer,
      clientId: text('client_id'),
      clientSecret: text('client_secret'),
      scope: text('scope', 'openid profile email'),
      allowExistingUsers,
    };
  });
}
