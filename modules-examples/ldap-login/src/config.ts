import { ConfigError } from '@rookery/module-api';
import { type Filter, FilterParser } from 'ldapts';

/** A directory, and what is taken from it. */
export interface LdapInstance {
  readonly id: string;
  readonly name: string;
  readonly url: string;
  readonly startTls: boolean;
  /** Where people are looked for. */
  readonly base: string;
  /** Who looks for them; without it anybody may. */
  readonly bindDn: string | undefined;
  readonly bindPassword: string;
  /** Attributes. */
  readonly uid: string;
  readonly displayName: string;
  readonly mail: string;
  /** A group that people have to be in: its distinguished name, as their `memberOf` has it. */
  readonly group: string | undefined;
  /** What people have to be, beside having the name. */
  readonly filter: Filter | undefined;
  /** Whether an account of the same name is the same person's. */
  readonly allowExistingUsers: boolean;
}

const known = [
  ...['id', 'name', 'url', 'start_tls', 'base', 'bind_dn', 'bind_password', 'uid', 'display_name', 'mail', 'group'],
  ...['filter', 'allow_existing_users'],
];

/** Checks the module's `config`: `directories`, a list. @throws ConfigError */
export function parseConfig(raw: unknown): readonly LdapInstance[] {
  const directories = (raw as { directories?: unknown } | undefined)?.directories;
  if (!Array.isArray(directories) || directories.length === 0)
    throw new ConfigError('expected a list of at least one directory', ['directories']);
  return directories.map((directory: unknown, i) => {
    const path = ['directories', i];
    if (typeof directory !== 'object' || directory === null) throw new ConfigError('expected a section', path);
    const values = directory as Record<string, unknown>;
    for (const name of Object.keys(values))
      if (!known.includes(name)) throw new ConfigError(`is unknown; there are ${known.join(', ')}`, [...path, name]);
    const optional = (name: string): string | undefined => {
      const value = values[name];
      if (value !== undefined && (typeof value !== 'string' || value === ''))
        throw new ConfigError('expected a text', [...path, name]);
      return value as string | undefined;
    };
    const text = (name: string, usual?: string): string => {
      const value = optional(name) ?? usual;
      if (value === undefined) throw new ConfigError('expected a text', [...path, name]);
      return value;
    };
    const url = text('url');
    const flag = (name: string): boolean => {
      const value = values[name] ?? false;
      if (typeof value !== 'boolean') throw new ConfigError('expected true or false', [...path, name]);
      return value;
    };
    const startTls = flag('start_tls');
    const isLocal = /^ldap:\/\/(127\.0\.0\.1|localhost|\[::1\])(:|\/|$)/.test(url);
    // Passwords travel there.
    if (!url.startsWith('ldaps://') && !(url.startsWith('ldap://') && (startTls || isLocal)))
      throw new ConfigError('expected an ldaps address, or ldap with start_tls', [...path, 'url']);
    return {
      id: text('id', 'ldap'),
      name: text('name', 'Directory'),
      url,
      startTls,
      base: text('base'),
      bindDn: optional('bind_dn'),
      bindPassword: optional('bind_password') ?? '',
      uid: text('uid', 'uid'),
      displayName: text('display_name', 'cn'),
      mail: text('mail', 'mail'),
      group: optional('group'),
      filter: filterOf(optional('filter'), [...path, 'filter']),
      allowExistingUsers: flag('allow_existing_users'),
    };
  });
}

/** @spec RFC 4515 */
function filterOf(text: string | undefined, path: readonly (string | number)[]): Filter | undefined {
  if (text === undefined) return undefined;
  try {
    return FilterParser.parseString(text);
  } catch {
    throw new ConfigError('is no filter, such as (objectClass=person)', path);
  }
}
