import { defineModule } from '@rookery/module-api';
import { Accounts } from './accounts.js';
import { parseConfig } from './config.js';

const path = '/_synapse/client/account-validity/renew';

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

/** Lets accounts run out unless their users renew them by the link in a mail. */
export default defineModule({
  name: 'account-validity-mail',
  parseConfig,
  register(api, { periodMs, renewBeforeMs, subject }) {
    const { publicBaseurl } = api;
    if (publicBaseurl === undefined) throw new Error('the setting public_baseurl is needed for links in mails');
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

    async function mail(userId: string): Promise<void> {
      const addresses = (await api.getThreepidsForUser(userId)).filter(({ medium }) => medium === 'email');
      const token = addresses.length > 0 ? await accounts.newToken(userId) : undefined;
      if (token === undefined) return;
      const link = `${publicBaseurl}${path.slice(1)}?token=${token}`;
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
