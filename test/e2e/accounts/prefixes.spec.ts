import { createTestHomeserver, eventually, FakeClock, type TestHomeserver } from '@rookery/testing';
import { RenewalMails, ThreepidService } from '@rookery/users';
import { createRoom, join, ok, say } from '../rooms/rooms-client.js';
import { type Json, linkOf, type Mail, type MailServer, startMailServer, startNumberServer } from './support.js';

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

  it('hands out links that it serves in mails and for phone numbers', async () => {
    const clock = new FakeClock(Date.now());
    const numbers = await startNumberServer();
    const server = await createTestHomeserver({
      database: kind,
      clock,
      fetch: (url, init) => fetch(String(url).replace('/_matrix/', '/_proto/'), init),
      settings: {
        ...prefixes,
        public_baseurl: 'https://chat.example/',
        email: {
          ...{ smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
          ...{ enable_notifs: true, notif_delay_before_mail: '1m' },
        },
        account_threepid_delegates: { msisdn: numbers.url },
        account_validity: { enabled: true, period: '30d', renew_at: '30d' },
      },
    });
    try {
      const opened = async (link: string, path: string, body?: object): Promise<Response> => {
        expect(link).toMatch(new RegExp(`^https://chat\\.example${path}(\\?|$)`));
        const url = link.replace('https://chat.example', server.baseUrl);
        return fetch(url, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) });
      };
      const [ann, ben] = [await server.registerUser('ann'), await server.registerUser('ben')];
      const address = `ben.${kind}@example.com`;
      await server.server.service(ThreepidService).add(ben.userId, 'email', address, clock.nowMs(), {});
      const linkTo = (letter: Mail): string => linkOf(letter).href;

      const wish = { client_secret: 's', send_attempt: 1 };
      await ok(ben, 'POST', '/account/password/email/requestToken', { ...wish, email: address });
      const reset = linkTo(await mail.next(address));
      expect((await opened(reset, '/_svc/client/password_reset/email/submit_token')).status).toBe(200);

      const number = { ...wish, country: 'GB', phone_number: '07700900123' };
      const text = await ok<Json>(ben, 'POST', '/account/3pid/msisdn/requestToken', number);
      const sid = String(text['sid']);
      const submit = '/_proto/client/unstable/add_threepid/msisdn/submit_token';
      const code = { sid, client_secret: 's', token: numbers.codeOf(sid) };
      const proved = await opened(String(text['submit_url']), submit, code);
      expect([proved.status, await proved.json()]).toEqual([200, { success: true }]);

      await server.server.service(RenewalMails).tellExpiring();
      const renewal = linkTo(await mail.next(address));
      expect((await opened(renewal, '/_proto/client/unstable/account_validity/renew')).status).toBe(200);

      await ok(ben, 'POST', '/pushers/set', {
        ...{ kind: 'email', app_id: 'm.email', pushkey: address, app_display_name: 'Mail', lang: 'en', data: {} },
        device_display_name: address,
      });
      const roomId = await createRoom(ann, { preset: 'public_chat' });
      await join(ben, roomId);
      await say(ann, roomId, 'are you there?');
      const before = mail.mails.length;
      // Other mails may come meanwhile.
      const unsubscribe = await eventually(async () => {
        await clock.advance(60_000);
        const headers = mail.mails.slice(before).flatMap((one) => one.headers);
        return headers.find(({ key }) => key === 'list-unsubscribe')?.value.slice(1, -1);
      });
      expect((await opened(unsubscribe, '/_svc/client/unsubscribe')).status).toBe(200);
    } finally {
      await server.stop();
      await numbers.stop();
    }
  });

  it('has a page for administrators that asks where it answers', async () => {
    const page = await open('https://chat.example/_svc/admin/pages');
    expect(page.status).toBe(200);
    const html = await page.text();
    expect(html).toContain('"/_proto/client/v3/login"');
    expect(html).not.toMatch(/\/_(?:matrix|synapse)\//);
  });
});
