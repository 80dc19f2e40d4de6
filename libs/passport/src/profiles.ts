import { mapUsernameToMxidLocalpart, type SignedOn, type SignOnProfile } from '@rookery/module-api';

type Claims = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Claims =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);
const items = (value: unknown): readonly Claims[] => (Array.isArray(value) ? value.filter(isObject) : []);

/**
 * A `verify` function for strategies that takes the profile as it is: what stands last before `done`. For strategies that look at
 * how many parameters a `verify` function has, it has none.
 */
export function keepProfile(...args: unknown[]): void {
  const done = args.at(-1) as (error: unknown, user?: unknown) => void;
  done(null, args.slice(0, -1).findLast(isObject));
}

/**
 * Whom a Passport profile is about: `id`, else `nameID` (SAML), else `sub`; the session of the provider, where it has one.
 * @throws TypeError when it says none of them
 */
export function identifyProfile(user: unknown): SignedOn {
  const profile = isObject(user) ? user : {};
  const [id] = [profile['id'], profile['nameID'], profile['sub']].filter((one) => one !== undefined && one !== null);
  if (typeof id !== 'string' && typeof id !== 'number')
    throw new TypeError('The profile has no id: give the provider an identify() of its own');
  return {
    remoteId: String(id),
    sessionId: text(profile['sessionIndex']) ?? text(profile['sid']),
    claims: profile,
  };
}

/**
 * An account from a Passport profile: the name is suggested and may be changed. Of the addresses only those that the provider calls
 * verified are taken.
 */
export function profileOf({ claims }: SignedOn, failures: number): SignOnProfile {
  const { username, preferred_username: preferred, displayName, name, photos, picture, emails } = claims;
  const wanted = text(username) ?? text(preferred);
  const parts = isObject(name) ? [name['givenName'], name['familyName']].filter((part) => text(part)).join(' ') : name;
  return {
    localpart:
      wanted === undefined ? undefined : mapUsernameToMxidLocalpart(wanted) + (failures > 0 ? String(failures) : ''),
    confirmLocalpart: true,
    displayName: text(displayName) ?? text(parts) ?? wanted,
    picture: text(items(photos)[0]?.['value']) ?? text(picture),
    emails: items(emails)
      .filter(({ verified }) => verified === true)
      .flatMap(({ value }) => text(value) ?? []),
  };
}
