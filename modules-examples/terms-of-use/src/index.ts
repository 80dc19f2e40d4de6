import { Codes, defineModule, MatrixError, NOT_SPAM, type Refusal } from '@rookery/module-api';
import { Agreements } from './agreements.js';
import { parseConfig } from './config.js';

const path = '/_synapse/client/terms-of-use';
const pageSize = 1000;

const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const page = (status: number, body: string): Response =>
  new Response(
    `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
      `<title>Terms of use</title><body style="font: 1rem sans-serif; max-width: 36rem; margin: 2rem auto">${body}`,
    {
      status,
      headers: {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy':
          "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        'referrer-policy': 'no-referrer',
        'cache-control': 'no-store',
      },
    },
  );

/** Lets people of this server write, join and make rooms once they have agreed to the terms, again for each version of these. */
export default defineModule({
  name: 'terms-of-use',
  parseConfig,
  register(api, { version, documents, message, exempt }) {
    if (api.publicBaseurl === undefined) throw new Error('the setting public_baseurl is needed for links to the terms');
    const agreements = new Agreements(api);
    const mayPass = async (userId: string, appserviceId: string | undefined): Promise<boolean> =>
      appserviceId !== undefined ||
      exempt.has(userId) ||
      !api.isMine(userId) ||
      (await agreements.versionOf(userId)) === version;
    const refusal = async (userId: string): Promise<Refusal> => {
      const uri = api.urlOf(path, { u: userId, h: await agreements.proofOf(userId) });
      return { errcode: Codes.CONSENT_NOT_GIVEN, message, extra: { consent_uri: uri } };
    };
    const ask = async (userId: string, appserviceId: string | undefined) =>
      (await mayPass(userId, appserviceId)) ? NOT_SPAM : refusal(userId);

    api.registerSpamCheckerCallbacks({
      async checkEventForSpam({ sender, type, content }, { appserviceId, source }) {
        // Who does not agree may go, and what administrators do to others is not theirs.
        const isLeaving = type === 'm.room.member' && content['membership'] === 'leave';
        return isLeaving || source !== 'client' ? NOT_SPAM : ask(sender, appserviceId);
      },
      userMayCreateRoom: (userId, _config, { appserviceId }) => ask(userId, appserviceId),
      userMayJoinRoom: (userId, _roomId, _isInvited, { appserviceId, source }) =>
        source === 'client' ? ask(userId, appserviceId) : NOT_SPAM,
    });

    api.registerWebResource(path, async (request, { ip }) => {
      const query = new URL(request.url).searchParams;
      const userId = query.get('u') ?? '';
      if (!(await agreements.isProof(userId, query.get('h') ?? '')))
        return page(403, '<p>This link is not complete. Take the one that your client shows.</p>');
      if (request.method === 'GET') {
        const links = documents.map(
          ({ name, url }) => `<li><a href="${escape(url)}" target="_blank" rel="noreferrer">${escape(name)}</a></li>`,
        );
        const form = `<form method="post"><button name="version" value="${escape(version)}">I agree</button></form>`;
        return page(200, `<h1>Terms of use</h1><p>For ${escape(userId)}:</p><ul>${links.join('')}</ul>${form}`);
      }
      if (request.method !== 'POST') return page(405, '<p>This is not possible.</p>');
      // Who has read the documents of before agrees to those.
      const read = new URLSearchParams(await request.text()).get('version');
      if (read !== version) return page(409, '<p>The terms have changed meanwhile. Please open the link again.</p>');
      await agreements.agree(userId, version, ip);
      return page(200, '<p>Thank you. You can close this page and go on in your client.</p>');
    });

    api.registerWebResource(`${path}/agreements`, async (request) => {
      const { isAdmin } = await api.getUserByReq(request);
      if (!isAdmin) throw new MatrixError(403, 'M_FORBIDDEN', 'Only for administrators');
      const after = new URL(request.url).searchParams.get('from') ?? undefined;
      const { agreements: found, next } = await agreements.list(after, pageSize);
      return Response.json({ version, agreements: found, ...(next === undefined ? {} : { next_batch: next }) });
    });
  },
});
