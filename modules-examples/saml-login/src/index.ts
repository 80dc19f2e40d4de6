import { type CacheProvider, Strategy, ValidateInResponseTo } from '@node-saml/passport-saml';
import { defineModule, mapUsernameToMxidLocalpart } from '@rookery/module-api';
import { keepProfile, passportProvider } from '@rookery/passport';
import { parseConfig } from './config.js';

/** Lets people sign in through SAML, at as many identity providers as the settings name. */
export default defineModule({
  name: 'saml-login',
  parseConfig,
  register(api, instances) {
    for (const instance of instances) {
      const { id, name, entryPoint, certificates, issuer, localpart, displayName, allowExistingUsers } = instance;
      api.registerIdentityProvider(
        passportProvider({
          id,
          name,
          strategy: ({ callbackUrl, purpose, session }) =>
            new Strategy(
              {
                callbackUrl,
                entryPoint,
                issuer,
                audience: issuer,
                idpCert: [...certificates],
                wantAssertionsSigned: false,
                wantAuthnResponseSigned: true,
                disableRequestedAuthnContext: true,
                // Who confirms an operation proves themselves again.
                forceAuthn: purpose === 'uia',
                validateInResponseTo: ValidateInResponseTo.always,
                cacheProvider: keptInBrowser(session),
              },
              keepProfile,
              keepProfile,
            ),
          profile: ({ claims }, failures) => {
            const wanted = first(claims[localpart]);
            const mapped = wanted === undefined ? undefined : mapUsernameToMxidLocalpart(wanted);
            return {
              localpart: mapped === undefined ? undefined : mapped + (failures > 0 ? String(failures) : ''),
              existingLocalpart: allowExistingUsers ? mapped : undefined,
              displayName: first(claims[displayName]) ?? wanted,
            };
          },
        }),
      );
    }
  },
});

/** Requests that are under way, in the browser that made them: nobody else's response counts there. */
function keptInBrowser(session: Record<string, unknown>): CacheProvider {
  return {
    async saveAsync(key, value) {
      session['request'] = [key, value];
      return { value, createdAt: Date.now() };
    },
    async getAsync(key) {
      const [known, value] = (session['request'] ?? []) as [string?, string?];
      return known === key && value !== undefined ? value : null;
    },
    async removeAsync(key) {
      delete session['request'];
      return key;
    },
  };
}

const first = (value: unknown): string | undefined => {
  const one: unknown = Array.isArray(value) ? value[0] : value;
  return typeof one === 'string' && one !== '' ? one : undefined;
};
