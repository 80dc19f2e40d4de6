import { createHmac, timingSafeEqual } from 'node:crypto';
import { type AuthChecker, defineModule } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** The login type of its own, which bridges and bots use elsewhere, too. */
const loginType = 'com.devture.shared_secret_auth';

/** Lets a trusted service log in as any existing user: the proof is the HMAC-SHA512 of the full user id, in hexadecimal. */
export default defineModule({
  name: 'shared-secret-auth',
  parseConfig,
  register(api, { secret, asPassword }) {
    const checker = (type: string, field: string): AuthChecker => ({
      loginType: type,
      fields: [field],
      async check(username, _type, proofs) {
        const proof = proofs[field];
        if (typeof proof !== 'string') return undefined;
        const userId = api.getQualifiedUserId(username);
        const expected = createHmac('sha512', secret).update(userId).digest();
        const given = Buffer.from(proof, 'hex');
        if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
        // Only who exists already: a secret for logging in is none for making accounts.
        const existing = api.isMine(userId) ? await api.checkUserExists(userId) : undefined;
        if (existing === undefined) return undefined;
        api.log.info('Logged in by shared secret', { userId: existing });
        return { userId: existing };
      },
    });
    api.registerPasswordAuthProviderCallbacks({
      authCheckers: [checker(loginType, 'token'), ...(asPassword ? [checker('m.login.password', 'password')] : [])],
    });
  },
});
