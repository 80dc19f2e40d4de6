import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Provider } from 'oidc-provider';

/** A certified OpenID Connect provider on the loopback address; whoever logs in there is believed. */
export interface RealProvider {
  readonly issuer: string;
  /** Claims by login. */
  readonly people: Map<string, Record<string, unknown>>;
  /** Parameters of the authorization requests that came. */
  readonly requests: URLSearchParams[];
  stop(): Promise<void>;
}

/** @param server address of the homeserver as browsers and the provider see it */
export async function startRealProvider(
  callback: string,
  more: Readonly<Record<string, unknown>> = {},
): Promise<RealProvider> {
  const people = new Map<string, Record<string, unknown>>();
  const requests: URLSearchParams[] = [];
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'rookery',
        client_secret: 'a secret of the provider',
        redirect_uris: [callback],
        response_types: ['code'],
        grant_types: ['authorization_code'],
        ...more,
      },
    ],
    claims: { profile: ['name', 'preferred_username', 'picture'], email: ['email'], groups: ['groups'] },
    scopes: ['openid', 'profile', 'email', 'groups'],
    conformIdTokenClaims: false,
    cookies: { keys: ['keys of the provider'] },
    // Its own does not reach this machine.
    fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined } as RequestInit),
    features: { devInteractions: { enabled: true }, backchannelLogout: { enabled: true } },
    pkce: { required: () => true },
    findAccount: (_context, sub) => ({
      accountId: sub,
      claims: () => Promise.resolve({ sub, ...people.get(sub) }),
    }),
  });
  const answer = provider.callback();
  server.on('request', (request, response) => {
    const url = new URL(request.url ?? '/', issuer);
    if (url.pathname === '/auth') requests.push(url.searchParams);
    void answer(request, response);
  });
  return {
    issuer,
    people,
    requests,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
