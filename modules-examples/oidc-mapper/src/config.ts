import { ConfigError } from '@rookery/module-api';

/** What of a user becomes the localpart. */
export interface OidcMapperConfig {
  /** Claim that names the user for good. */
  readonly subject: string;
  readonly localpart: string;
  readonly displayName: string;
  readonly email: string;
  /** Only users of these groups may log in; `undefined` for all. */
  readonly groups: ReadonlySet<string> | undefined;
  /** Fields of the answer to a login, and the claims they come from. */
  readonly extra: Readonly<Record<string, string>>;
  /** Let users confirm or change their localpart. */
  readonly confirm: boolean;
}

const names = ['subject', 'localpart', 'display_name', 'email', 'groups', 'extra', 'confirm'];

/** Checks the configuration of the mapping: names of claims, `groups`, `extra`, `confirm`. @throws ConfigError */
export function parseConfig(raw: unknown = {}): OidcMapperConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object');
  const given = raw as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  }
  const claim = (name: string, usual: string): string => {
    const value = given[name] ?? usual;
    if (typeof value !== 'string' || value === '') throw new ConfigError('expected the name of a claim', [name]);
    return value;
  };
  const { groups, extra = {}, confirm = false } = given;
  if (groups !== undefined && !(Array.isArray(groups) && groups.every((group) => typeof group === 'string'))) {
    throw new ConfigError('expected a list of names', ['groups']);
  }
  if (
    typeof extra !== 'object' ||
    extra === null ||
    Array.isArray(extra) ||
    !Object.values(extra).every((one) => typeof one === 'string')
  ) {
    throw new ConfigError('expected names of claims by field', ['extra']);
  }
  if (typeof confirm !== 'boolean') throw new ConfigError('expected true or false', ['confirm']);
  return {
    subject: claim('subject', 'sub'),
    localpart: claim('localpart', 'preferred_username'),
    displayName: claim('display_name', 'name'),
    email: claim('email', 'email'),
    groups: groups === undefined ? undefined : new Set(groups as string[]),
    extra: extra as Record<string, string>,
    confirm,
  };
}
