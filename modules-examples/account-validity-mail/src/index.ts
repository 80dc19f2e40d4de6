import { defineModule, MatrixError } from '@rookery/module-api';
import { Accounts } from './accounts.js';
import { parseConfig } from './config.js';

const path = '/_synapse/client/account-validity/renew';
const adminPath = '/_synapse/client/account-validity/users';

/** Accounts of administrators have no end. */
const answer = (userId: string, expiresAtMs: number): Response =>
  Response.json({ user_id: userId, expiration_ts: Number.isFinite(expiresAtMs) ? expiresAtMs : null });

const page = (status: number, body: string): Response =>
  new Response(`<!doctype html><meta charset="utf-8"><title>Your account</title><p>${body}</p>`, {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    },
  });

/** What the body of a request says; without a body nothing. @throws MatrixError 400 */
async function wishOf(request: Request): Promise<Record<string, unknown>> {
  const text = await request.text();
  if (text.trim() === '') return {};
  let wish: unknown;
  try {
    wish = JSON.parse(text);
  } catch {
    throw new MatrixError(400, 'M_NOT_JSON', 'The body is not JSON');
  }
  if (typeof wish !== 'object' || wish === null || Array.isArray(wish))
    throw new MatrixError(400, 'M_BAD_JSON', 'The body is not an object');
  return wish as Record<string, unknown>;
}

/** Lets accounts run out unless their users renew them by the link in a mail. */
export default defineModule({
  name: 'account-validity-mail',
  parseConfig,
  register(api, { periodMs, renewBeforeMs, subject }) {
    if (api.publicBaseurl === undefined) throw new Error('the setting public_baseurl is needed for links in mails');
    const accounts = new Accounts(api, periodMs);

    api.registerAccountValidityCallbacks({
      isUserExpired: async (userId) => (await accounts.expiryOf(userId)) <= api.getCurrentTimeMsec(),
      onUserRegistration: async (userId) => void (await accounts.begin(userId)),
    });

    // A GET changes nothing, since mail programs follow links by themselves: it shows a button.
    api.registerWebResource(path, async (request) => {
      const token = new URL(request.url).searchParams.get('token') ?? '';
      if (!/^[0-9a-f]{64}$/.test(token)) return page(400, 'This link is not complete.');
      if (request.method === 'GET') {
        return page(200, `<form method="post" action="?token=${token}"><button>Keep my account</button></form>`);
      }
      if (request.method !== 'POST') return page(405, 'This is not possible.');
      return (await accounts.renew(token))
        ? page(200, 'Your account was renewed. You can close this page.')
        : page(404, 'This link was used already or has run out.');
    });

    // For those whom no mail reaches, and for those who have gone.
    api.registerWebResource(`${adminPath}/:userId`, async (request, { params }) => {
      if (!(await api.getUserByReq(request)).isAdmin)
        throw new MatrixError(403, 'M_FORBIDDEN', 'Only for administrators');
      const userId = await api.checkUserExists(params['userId'] ?? '').catch(() => undefined);
      if (userId === undefined) throw new MatrixError(404, 'M_NOT_FOUND', 'There is no such account');
      if (request.method === 'GET') return answer(userId, await accounts.expiryOf(userId));
      if (request.method !== 'PUT') throw new MatrixError(405, 'M_UNRECOGNIZED', 'This is not possible');
      const { expiration_ts: wanted } = await wishOf(request);
      if (wanted !== undefined && !(Number.isSafeInteger(wanted) && (wanted as number) >= 0))
        throw new MatrixError(400, 'M_BAD_JSON', 'expiration_ts is a number of milliseconds');
      await accounts.begin(userId, wanted as number | undefined);
      return answer(userId, await accounts.expiryOf(userId));
    });

    async function mail(userId: string): Promise<void> {
      const addresses = (await api.getThreepidsForUser(userId)).filter(({ medium }) => medium === 'email');
      const token = addresses.length > 0 ? await accounts.newToken(userId) : undefined;
      if (token === undefined) return;
      const link = api.urlOf(path, { token });
      const html = `<p>Your account ${userId.replace(/[&<>"]/g, '')} runs out soon.</p><p><a href="${link}">Keep it</a></p>`;
      const failures: unknown[] = [];
      for (const { address } of addresses) {
        try {
          await api.sendMail(address, subject, html, `Your account ${userId} runs out soon. Keep it: ${link}`);
        } catch (error) {
          failures.push(error);
        }
      }
      // A link that has reached its user somewhere is not taken back.
      if (failures.length === addresses.length) throw failures[0];
      for (const error of failures) api.log.warn('A mail was not sent to one of the addresses', { userId, err: error });
    }

    api.scheduler.every('mail', 3_600_000, async () => {
      for await (const { userId } of accounts.endingBefore(api.getCurrentTimeMsec() + renewBeforeMs)) {
        try {
          await mail(userId);
        } catch (error) {
          // One mail that cannot be sent must not keep the others; it is tried again in an hour.
          api.log.error('A mail was not sent', { userId, err: error });
          await accounts.withdrawToken(userId);
        }
      }
    });
  },
});
