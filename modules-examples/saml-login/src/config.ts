import { ConfigError } from '@rookery/module-api';
import { X509Certificate } from 'node:crypto';

/** One SAML identity provider. */
export interface SamlInstance {
  readonly id: string;
  readonly name: string;
  /** Where browsers sign on, by redirect. */
  readonly entryPoint: string;
  /** What the provider signs with, PEM. */
  readonly certificates: readonly string[];
  readonly issuer: string;
  readonly localpart: string;
  readonly displayName: string;
  /** Whether an account of the same name is the same person's. */
  readonly allowExistingUsers: boolean;
}

const known = [
  'id',
  'name',
  'entry_point',
  'certificates',
  'issuer',
  'localpart',
  'display_name',
  'allow_existing_users',
];

/** Checks the module's `config`: `providers`, a list. @throws ConfigError */
export function parseConfig(raw: unknown): readonly SamlInstance[] {
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
    const entryPoint = text('entry_point');
    if (!/^https?:/.test(entryPoint) || !URL.canParse(entryPoint))
      throw new ConfigError('expected an address', [...path, 'entry_point']);
    const { certificates } = values;
    if (!Array.isArray(certificates) || certificates.length === 0)
      throw new ConfigError('expected a list of certificates, PEM', [...path, 'certificates']);
    certificates.forEach((certificate: unknown, at) => {
      try {
        new X509Certificate(String(certificate));
      } catch {
        throw new ConfigError('is no certificate', [...path, 'certificates', at]);
      }
    });
    const { allow_existing_users: allowExistingUsers = false } = values;
    if (typeof allowExistingUsers !== 'boolean')
      throw new ConfigError('expected true or false', [...path, 'allow_existing_users']);
    const id = text('id');
    return {
      id,
      name: text('name'),
      entryPoint,
      certificates: certificates as string[],
      issuer: text('issuer', `urn:rookery:${id}`),
      localpart: text('localpart', 'uid'),
      displayName: text('display_name', 'displayName'),
      allowExistingUsers,
    };
  });
}
