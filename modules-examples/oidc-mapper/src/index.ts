import { defineModule, mapUsernameToMxidLocalpart, MatrixError, type OidcMappingProvider } from '@rookery/module-api';
import { parseConfig } from './config.js';

type Claims = Readonly<Record<string, unknown>>;

const textOf = (claims: Claims, name: string): string | undefined => {
  const value = claims[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
};

/** The mapping itself, for one provider of the settings. */
function createMapping(raw: unknown): OidcMappingProvider {
  const { subject, localpart, displayName, email, groups, extra, confirm } = parseConfig(raw);
  const checkGroups = (userinfo: Claims): void => {
    if (!groups) return;
    const member: unknown = userinfo.groups;
    if (!Array.isArray(member) || !member.some((group) => groups.has(group as string))) {
      throw new MatrixError(403, 'M_FORBIDDEN', 'You may not use this server');
    }
  };
  return {
    getRemoteUserId(userinfo) {
      const value = userinfo[subject];
      // A number is as good as a text, an empty text as bad as none: everybody would be the same user.
      if (typeof value === 'number' || (typeof value === 'string' && value !== '')) return String(value);
      throw new MatrixError(403, 'M_FORBIDDEN', 'The sign-in provider did not say who you are');
    },
    mapUserAttributes(userinfo, _token, failures) {
      checkGroups(userinfo);
      const name = textOf(userinfo, localpart);
      // Some providers say it as a text.
      const unverified = userinfo.email_verified === false || userinfo.email_verified === 'false';
      const address = unverified ? undefined : textOf(userinfo, email);
      return {
        localpart: name && mapUsernameToMxidLocalpart(name) + (failures > 0 ? String(failures) : ''),
        confirmLocalpart: confirm,
        displayName: textOf(userinfo, displayName),
        picture: textOf(userinfo, 'picture'),
        emails: address === undefined ? [] : [address],
      };
    },
    // Asked at every login, also for those whose account is there already.
    getExtraAttributes(userinfo) {
      checkGroups(userinfo);
      const known = Object.entries(extra).filter(([, claim]) => userinfo[claim] !== undefined);
      return Object.fromEntries(known.map(([field, claim]) => [field, userinfo[claim]]));
    },
  };
}

/** Maps users of an OpenID Connect provider to accounts, by claims and groups. */
export default defineModule({
  name: 'oidc-mapper',
  register(api) {
    api.registerOidcMappingProvider('oidc-mapper', createMapping);
  },
});
