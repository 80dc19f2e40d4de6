import { defineModule, type ProviderLogout } from '@rookery/module-api';
import { passportProvider, profileOf } from '@rookery/passport';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import * as client from 'openid-client';
import { Strategy, type VerifyFunction } from 'openid-client/passport';
import { parseConfig, type OidcInstance } from './config.js';

/** How far the clocks of a provider and of this server may differ, seconds. */
const clockTolerance = 120;
const logoutEvent = 'http://schemas.openid.net/event/backchannel-logout';

/** Lets people sign in with OpenID Connect: refresh tokens and back-channel logouts included. */
export default defineModule({
  name: 'oidc-login',
  parseConfig,
  register(api, instances) {
    for (const instance of instances) {
      const { id, name, scope, clientId, allowExistingUsers } = instance;
      const configuration = discovery(instance);
      const keySet = remoteKeys();
      api.registerIdentityProvider(
        passportProvider<client.TokenEndpointResponse & client.TokenEndpointResponseHelpers>({
          id,
          name,
          strategy: async ({ callbackUrl }) => {
            const config = await configuration();
            const verify: VerifyFunction = (tokens, done) => done(null, tokens as unknown as Express.User);
            return new Strategy({ config, callbackURL: callbackUrl, scope }, verify);
          },
          // Who confirms an operation proves themselves again.
          authenticateOptions: ({ purpose }) => (purpose === 'uia' ? { prompt: 'login' } : {}),
          async identify(tokens) {
            const claims = tokens.claims();
            if (!claims) throw new Error('The provider sent no ID token');
            const config = await configuration();
            const more = config.serverMetadata().userinfo_endpoint
              ? await client.fetchUserInfo(config, tokens.access_token, claims.sub)
              : {};
            return {
              remoteId: claims.sub,
              sessionId: typeof claims['sid'] === 'string' ? claims['sid'] : undefined,
              claims: { ...claims, ...more },
              ...(tokens.refresh_token === undefined ? {} : { tokens: tokens.refresh_token }),
            };
          },
          profile: (person, failures) => ({
            ...profileOf(person, failures),
            existingLocalpart: allowExistingUsers ? profileOf(person, 0).localpart : undefined,
          }),
          async refresh(token) {
            try {
              const tokens = await client.refreshTokenGrant(await configuration(), String(token));
              return { tokens: tokens.refresh_token ?? token };
            } catch (error) {
              if (error instanceof client.ResponseBodyError && error.error === 'invalid_grant') return undefined;
              throw error;
            }
          },
          async logout(request): Promise<ProviderLogout | undefined> {
            const { issuer, jwks_uri: keys } = (await configuration()).serverMetadata();
            const token = new URLSearchParams(await request.text()).get('logout_token');
            if (token === null || keys === undefined) return undefined;
            try {
              const { payload } = await jwtVerify(token, keySet(keys), {
                issuer,
                audience: clientId,
                maxTokenAge: '10m',
                clockTolerance,
                requiredClaims: ['jti', 'events'],
              });
              const event = (payload['events'] as Record<string, unknown> | null)?.[logoutEvent];
              if (typeof event !== 'object' || event === null || 'nonce' in payload) return undefined;
              return { id: payload.jti, sessionId: payload['sid'] as string | undefined, remoteId: payload.sub };
            } catch (error) {
              api.log.info('A logout token was not valid', { provider: id, reason: String(error) });
              return undefined;
            }
          },
        }),
      );
    }
  },
});

/** The keys of a provider, which are kept: whoever sends rubbish does not have them asked for each time. */
function remoteKeys(): (address: string) => ReturnType<typeof createRemoteJWKSet> {
  const known = new Map<string, ReturnType<typeof createRemoteJWKSet>>();
  return (address) => {
    const set = known.get(address) ?? createRemoteJWKSet(new URL(address));
    known.set(address, set);
    return set;
  };
}

/** The provider's own description of itself, asked for once it is needed, and again while it cannot be had. */
function discovery({ issuer, clientId, clientSecret }: OidcInstance): () => Promise<client.Configuration> {
  let known: Promise<client.Configuration> | undefined;
  // On this machine nobody sits in between.
  const execute = issuer.protocol === 'http:' ? [client.allowInsecureRequests] : [];
  return () =>
    (known ??= client.discovery(issuer, clientId, clientSecret, undefined, { execute }).catch((error: unknown) => {
      known = undefined;
      throw error;
    }));
}
