import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { linkOf, type MailServer, startMailServer } from './support.js';

const prefixes = { protocol_prefix: '_proto', service_prefix: '_svc' };

describe.each(['sqlite', 'postgres'] as const)('a server with prefixes of its own (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let mail: MailServer;

  beforeAll(async () => {
    mail = await startMailServer();
    homeserver = await createTestHomeserver({
      database: kind,
      settings: {
        ...prefixes,
        public_baseurl: 'https://chat.example/',
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
        account_validity: { enabled: true, period: '30d' },
        user_consent: { version: '1.0', template_dir: 'libs/templates/templates', require_at_registration: true },
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await mail?.stop();
  });

  const open = (url: string, init?: RequestInit): Promise<Response> =>
    fetch(url.replace('https://chat.example', homeserver.baseUrl), init);
  const post = (path: string, body: object): Promise<Response> =>
    open(`https://chat.example/_proto/client/v3${path}`, { method: 'POST', body: JSON.stringify(body) });

  it('hands out links that it serves', async () => {
    // What is agreed to, and the page on which that is done.
    const begun = (await (await post('/register', { username: 'ann', password: 'wonderland' })).json()) as {
      session: string;
      params: { 'm.login.terms': { policies: { privacy_policy: { en: { url: string } } } } };
    };
    const { url } = begun.params['m.login.terms'].policies.privacy_policy.en;
    expect(url).toBe('https://chat.example/_proto/consent?v=1.0');
    expect((await open(url)).status).toBe(200);
    const page = await open(
      `https://chat.example/_proto/client/v3/auth/m.login.terms/fallback/web?session=${begun.session}`,
    );
    const form = /action="([^"]+)"/.exec(await page.text())?.[1] ?? '';
    expect(form).toBe('/_proto/client/v3/auth/m.login.terms/fallback/web');
    const agreed = await open(`https://chat.example${form}`, {
      method: 'POST',
      body: new URLSearchParams({ session: begun.session }),
    });
    expect(agreed.status).toBe(200);

    // A mail with a link to an address, which is then the account's.
    const proof = { client_secret: 'secret', email: 'ann@example.org', send_attempt: 1 };
    const { sid } = (await (await post('/register/email/requestToken', proof)).json()) as { sid: string };
    expect(sid).toMatch(/./);
    const link = linkOf(await mail.next('ann@example.org')).href;
    expect(link).toMatch(/^https:\/\/chat\.example\/_proto\/client\/unstable\/registration\/email\/submit_token\?/);
    expect((await open(link)).status).toBe(200);
    expect((await open(link.replace('_proto', '_matrix'))).status).toBe(404);
  });

  it('has a page for administrators that asks where it answers', async () => {
    const page = await open('https://chat.example/_svc/admin/pages');
    expect(page.status).toBe(200);
    const html = await page.text();
    expect(html).toContain('"/_proto/client/v3/login"');
    expect(html).not.toMatch(/\/_(?:matrix|synapse)\//);
  });
});
