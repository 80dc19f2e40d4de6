import type { DialectName } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestHomeserverOptions, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import type { Json } from '../accounts/support.js';
import { Browser, type Shown } from './browser.js';

/** The homeserver's public address; {@link World.browser} knows where that is. */
export const base = 'https://matrix.rookery.test';
/** A client that is trusted without a question. */
export const trusted = 'https://trusted.example/';

/** A server with single sign-on, and browsers that find it. */
export interface World {
  readonly homeserver: TestHomeserver;
  browser(): Browser;
  /** Begins a sign-on at a provider, in a browser, and goes on until a page or the client comes. */
  begin(browser: Browser, idp?: string, query?: Readonly<Record<string, string>>): Promise<Shown>;
  /** Logs in with the token that a client got. */
  logIn(shown: Shown): Promise<TestUser & { readonly answer: Json }>;
  stop(): Promise<void>;
}

export async function startWorld(
  database: DialectName,
  settings: Readonly<Record<string, unknown>>,
  more: Omit<TestHomeserverOptions, 'settings' | 'database'> = {},
): Promise<World> {
  const homeserver = await createTestHomeserver({
    database,
    fetch: validatedFetch,
    ...more,
    settings: {
      public_baseurl: `${base}/`,
      enable_registration: true,
      sso: { client_whitelist: [trusted] },
      ...settings,
    },
  });
  return {
    homeserver,
    browser: () => new Browser({ [base]: homeserver.baseUrl }),
    begin(browser, idp, query = {}) {
      const search = new URLSearchParams({ redirectUrl: trusted, ...query }).toString();
      const path = idp === undefined ? '' : `/${idp}`;
      return browser.follow(`${base}/_matrix/client/v3/login/sso/redirect${path}?${search}`);
    },
    async logIn(shown) {
      const token = shown.location?.searchParams.get('loginToken') ?? '';
      const { status, body } = await homeserver.request<Json>('POST', '/login', { type: 'm.login.token', token });
      expect({ status, body, shown: shown.html }).toMatchObject({ status: 200 });
      const accessToken = String(body['access_token']);
      return {
        userId: String(body['user_id']),
        deviceId: String(body['device_id']),
        accessToken,
        request: (method, path, content) => homeserver.request(method, path, content, accessToken),
        answer: body,
      };
    },
    stop: () => homeserver.stop(),
  };
}
