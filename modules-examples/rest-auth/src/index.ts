import { type AuthSuccess, defineModule, MatrixError } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** Checks passwords at a remote service, for logins by user name and by address. */
export default defineModule({
  name: 'rest-auth',
  parseConfig,
  register(api, { url, token, createAccounts, timeoutMs }) {
    /** The full id of the user that the service lets in. */
    async function ask(body: Readonly<Record<string, string>>): Promise<AuthSuccess | undefined> {
      const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
      let answer: unknown;
      try {
        answer = await api.httpClient.postJsonGetJson(url, body, { headers, timeoutMs });
      } catch (error) {
        api.log.error('The service did not answer', { err: error });
        // Another module or the server's own passwords must not decide in its place.
        throw new MatrixError(403, 'M_FORBIDDEN', 'Passwords cannot be checked right now; try again later');
      }
      const { success, localpart } = (typeof answer === 'object' && answer !== null ? answer : {}) as Record<
        string,
        unknown
      >;
      if (success !== true) return undefined;
      if (typeof localpart !== 'string' || !/^[a-z0-9._=/+-]{1,200}$/.test(localpart)) {
        api.log.error('The service named no valid localpart', { localpart: String(localpart).slice(0, 100) });
        return undefined;
      }
      const userId = api.getQualifiedUserId(localpart);
      const existing = await api.checkUserExists(userId);
      if (existing !== undefined) return { userId: existing };
      return createAccounts ? { userId } : undefined;
    }

    api.registerPasswordAuthProviderCallbacks({
      authCheckers: [
        {
          loginType: 'm.login.password',
          fields: ['password'],
          async check(username, _type, { password }) {
            const userId = api.getQualifiedUserId(username.toLowerCase());
            if (!api.isMine(userId) || typeof password !== 'string') return undefined;
            const found = await ask({ user_id: userId, password });
            // The service may know people by other names, but must not log one in as somebody else.
            return found?.userId.toLowerCase() === userId ? found : undefined;
          },
        },
      ],
      check3pidAuth: (medium, address, password) => ask({ medium, address, password }),
    });
  },
});
