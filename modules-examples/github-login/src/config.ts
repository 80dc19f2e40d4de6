import { ConfigError } from '@rookery/module-api';

/** One place where people sign in: GitHub, or a GitHub Enterprise Server. */
export interface GitHubInstance {
  readonly id: string;
  readonly name: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Without a slash at its end. */
  readonly baseUrl: string;
  /** Whether an account of the same name is the same person's. */
  readonly allowExistingUsers: boolean;
}

const known = ['id', 'name', 'client_id', 'client_secret', 'base_url', 'allow_existing_users'];

/** Checks the module's `config`: `providers`, a list. @throws ConfigError */
export function parseConfig(raw: unknown): readonly GitHubInstance[] {
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
    const baseUrl = text('base_url', 'https://github.com').replace(/\/+$/, '');
    const url = URL.parse(baseUrl);
    const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && url.hostname === '127.0.0.1');
    if (!isSafe || url.username !== '' || url.search !== '')
      throw new ConfigError('expected an https address', [...path, 'base_url']);
    const { allow_existing_users: allowExistingUsers = false } = values;
    if (typeof allowExistingUsers !== 'boolean')
      throw new ConfigError('expected true or false', [...path, 'allow_existing_users']);
    // Whoever comes first has a name there.
    if (allowExistingUsers && url.hostname === 'github.com')
      throw new ConfigError('would give accounts of this server to whoever takes their names at github.com', [
        ...path,
        'allow_existing_users',
      ]);
    return {
      id: text('id', 'github'),
      name: text('name', 'GitHub'),
      clientId: text('client_id'),
      clientSecret: text('client_secret'),
      baseUrl,
      allowExistingUsers,
    };
  });
}
