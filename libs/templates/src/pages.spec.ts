import { mkdtempSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Config, SystemIds } from '@rookery/platform';
import { RecordingLogger } from '@rookery/testing';
import { compileText, Pages, pagesOptionsOf, TemplateError } from './index.js';
import { type PagesOptions } from './pages.js';
import { strftime } from './strftime.js';

const message = {
  event_type: 'm.room.message',
  is_historical: false,
  id: '$1',
  ts: 1_700_000_000_000,
  sender_name: 'Bob <b>',
  sender_avatar_url: 'mxc://example.org/abc',
  sender_hash: 1,
  msgtype: 'm.text',
  body_text_html: '<em>hi</em>',
  body_text_plain: 'hi & bye',
};
const notifMail = {
  user_display_name: 'Alice',
  unsubscribe_link: 'https://example.org/unsubscribe?a=1&b=2',
  summary_text: 'You have messages',
  rooms: [
    {
      title: 'Room <1>',
      hash: 1,
      invite: false,
      avatar_url: null,
      link: 'https://matrix.to/#/!r',
      notifs: [
        {
          link: 'https://matrix.to/#/!r/$1',
          ts: 1,
          messages: [
            { ...message, is_historical: true },
            message,
            { ...message, sender_name: 'Carol', msgtype: 'm.emote' },
          ],
        },
      ],
    },
    { title: 'Invited', hash: 2, invite: true, link: 'https://matrix.to/#/!s', notifs: [] },
  ],
  reason: {
    room_id: '!r',
    room_name: 'Room <1>',
    now: 1,
    received_at: 1,
    delay_before_mail_ms: 1,
    last_sent_ts: 1,
    throttle_ms: 1,
  },
};
const evil = '"><script>alert(1)</script>';
const idp = { idp_id: 'oidc-x', idp_name: `Idp ${evil}`, idp_icon: 'mxc://example.org/icon', idp_brand: 'x' };
const hostile = {
  ...notifMail,
  link: `https://example.org/?${evil}`,
  url: evil,
  display_name: evil,
  expiration_ts: 1_700_000_000_000,
  sid: evil,
  token: evil,
  client_secret: evil,
  failure_reason: evil,
  session: evil,
  myurl: evil,
  sitekey: evil,
  error: evil,
  error_description: evil,
  terms_url: evil,
  redirect_url: evil,
  display_url: evil,
  description: evil,
  providers: [idp, { ...idp, idp_icon: null }],
  idp,
  user_attributes: { display_name: evil, emails: [evil], localpart: evil, avatar_url: evil },
  user_id: `@${evil}`,
  user_id_to_verify: evil,
  user_profile: { display_name: evil, avatar_url: evil },
  new_user: true,
  consent_version: evil,
  user: evil,
  userhmac: evil,
  version: evil,
  has_consented: false,
  public_version: false,
};

describe('Pages', () => {
  let folder: string;
  let logger: RecordingLogger;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-pages-'));
    logger = new RecordingLogger();
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const make = (options: Partial<PagesOptions> = {}): Pages =>
    new Pages(
      {
        serverName: 'example.org',
        appName: 'Matrix',
        publicBaseUrl: 'https://hs.example.org/',
        folders: [],
        timeZone: 'UTC',
        ...options,
      },
      new SystemIds(),
      logger,
    );
  const files = readdirSync(fileURLToPath(new URL('../templates', import.meta.url)), { recursive: true })
    .map(String)
    .filter((name) => name.includes('.'));

  it('has every template of the field', () => {
    const expected =
      'notif_mail.html notif_mail.txt room.html room.txt notif.html notif.txt password_reset.html password_reset.txt registration.html registration.txt add_threepid.html add_threepid.txt already_in_use.html already_in_use.txt notice_expiry.html notice_expiry.txt password_reset_confirmation.html password_reset_success.html password_reset_failure.html registration_success.html registration_failure.html add_threepid_success.html add_threepid_failure.html account_renewed.html account_previously_renewed.html invalid_token.html recaptcha.html terms.html registration_token.html auth_success.html sso_login_idp_picker.html sso_auth_account_details.html sso_new_user_consent.html sso_redirect_confirm.html sso_auth_confirm.html sso_auth_success.html sso_auth_bad_user.html sso_account_deactivated.html sso_error.html sso_partial_profile.html sso_footer.html _base.html style.css sso.css mail.css mail-expiry.css mail-Element.css mail-Vector.css sso_auth_account_details.js media_upload_limit_exceeded.html';
    const pages = make();
    expect(expected.split(' ').filter((name) => !pages.has(name))).toEqual([]);
  });

  it.each(files.filter((name) => name.endsWith('.html') && name !== 'room.html' && name !== 'notif.html'))(
    '%s renders, and escapes what it is given',
    (name) => {
      const { html, nonce } = make().page(name, hostile);
      expect(html).not.toContain('<script>alert');
      expect(html).not.toMatch(/\bundefined\b|\bnone<|\{\{|\{%/);
      // Every script of ours carries the nonce, so that no other can run.
      for (const [tag] of html.matchAll(/<script\b[^>]*>/g)) expect(tag).toContain(`nonce="${nonce}"`);
      expect(html).not.toMatch(/\son\w+=/);
      if (!['sso_partial_profile.html', 'sso_footer.html'].includes(name)) {
        expect(html).toMatch(/^<!DOCTYPE html>/);
        expect(html).toContain('name="viewport"');
        expect(html.match(/<(div|p|form|table|main|tr|td|h1)\b/g)?.length).toBe(
          html.match(/<\/(div|p|form|table|main|tr|td|h1)>/g)?.length,
        );
      }
    },
  );

  it.each(files.filter((name) => /\.(?:html|txt)$/.test(name)))(
    '%s lets no name turn lines around or begin one',
    (name) => {
      const turned = 'Bob\u202e\u2066gpj.exe\r\nBcc: eve@evil.org\u2028Pay here:\x1b[2J\u2069\0';
      const turn = (value: unknown, key = ''): unknown => {
        if (typeof value === 'string') return key === 'msgtype' ? value : turned;
        if (Array.isArray(value)) return value.map((one) => turn(one));
        if (typeof value !== 'object' || value === null) return value;
        return Object.fromEntries(Object.entries(value).map(([inner, one]) => [inner, turn(one, inner)]));
      };
      const room = turn(notifMail.rooms[0]);
      const values = { ...(turn(hostile) as object), room, notif: turn(notifMail.rooms[0]?.notifs[0]) };
      const text = make().text(name, values);
      expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u2028\r\0\x1b]/);
      // Only what is said may begin a line of its own.
      const lines = text.split('\n').filter((line) => /^(?:Bcc|Pay)/.test(line));
      const isConversation = /^(?:notif|room|notif_mail)\./.test(name);
      if (!isConversation) expect(lines).toEqual([]);
    },
  );

  it('writes mails as text without escaping', () => {
    const pages = make();
    const text = pages.text('notif_mail.txt', notifMail);
    expect(text).toContain('Bob <b>: hi & bye');
    expect(text).toContain('22:13');
    expect(text).toContain('* Carol hi & bye');
    expect(text).toContain('You are invited: https://matrix.to/#/!s');
    expect(pages.text('password_reset.txt', { link: 'https://x/?a=1&b=2' })).toContain('\nhttps://x/?a=1&b=2\n');
  });

  it('shows messages in mails as HTML that was sanitised, and nothing else so', () => {
    const html = make().text('notif_mail.html', notifMail);
    expect(html).toContain('<em>hi</em>');
    expect(html).toContain('Bob &lt;b&gt;');
    expect(html).toContain('Room &lt;1&gt;');
    expect(html).toContain('https://hs.example.org/_matrix/media/v3/thumbnail/example.org/abc?width=64');
    expect(html.match(/class="sender_avatar"><img/g)).toHaveLength(2);
  });

  it('dresses mails by the name of the app', () => {
    expect(make({ appName: 'Element' }).text('password_reset.html', { link: 'x' })).toContain('#0dbd8b');
    expect(make({ appName: '../../etc' }).text('password_reset.html', { link: 'x' })).not.toContain('#0dbd8b');
  });

  it('keeps the contract of the confirmation page: a form that carries the link back', () => {
    const { html } = make().page('password_reset_confirmation.html', { sid: 's1', token: 't1', client_secret: 'c1' });
    expect(html).toMatch(
      /<form method="post" action="submit_token">[\s\S]*name="sid" value="s1"[\s\S]*name="token" value="t1"[\s\S]*name="client_secret" value="c1"/,
    );
  });

  it("prefers the operator's files, one by one", () => {
    writeFileSync(
      join(folder, 'terms.html'),
      '{% extends "_base.html" %}{% block body %}{{ server_name }}: {{ session }}{% endblock %}',
    );
    mkdirSync(join(folder, 'en'));
    writeFileSync(join(folder, 'en', '2.0.html'), 'consent {{ user }}');
    const pages = make({ folders: [folder] });
    const { html, custom, nonce } = pages.page('terms.html', { session: '<1>' });
    expect([custom, nonce, html.includes('example.org: &lt;1&gt;'), html.includes('<style>')]).toEqual([
      true,
      undefined,
      true,
      true,
    ]);
    expect(pages.page('invalid_token.html').custom).toBe(false);
    expect(pages.text('en/2.0.html', { user: 'u' })).toBe('consent u');
  });

  it('shows the pictures of ways to sign in, and a sign of its own for those without', () => {
    const picker = (...icons: (string | null)[]): string =>
      make({ protocolPrefix: '_proto' }).text('sso_login_idp_picker.html', {
        providers: icons.map((idp_icon) => ({ idp_id: 'oidc-x', idp_name: 'X', idp_icon })),
      });
    const src = 'https://hs.example.org/_proto/media/v3/thumbnail/example.org/icon?';
    expect(picker('mxc://example.org/icon')).toContain(`<img class="icon" src="${src}`);
    expect(picker('mxc://example.org/icon')).not.toContain('<svg class="icon"');
    expect(picker(null)).toContain('<svg class="icon"');
    expect(picker(null)).not.toContain('<img class="icon"');
  });

  it('understands templates written for the field', () => {
    writeFileSync(
      join(folder, 'notif_mail.html'),
      [
        "{% include 'mail-%s.css' % app_name ignore missing without context %}",
        "{% include 'none-%s.css' % app_name ignore missing without context %}",
        '{%- for room in rooms %}{% for notif in room.notifs %}{% for message in notif.messages %}{{ message.body_text_html }}{% endfor %}{% endfor %}{% endfor %}',
        "{{ 'a b/c&'|urlencode }} {{ 1700000000000|format_ts('%d-%m-%Y %H:%M') }} {{ 'a@b@c'|localpart_from_email }} {{ '%s-%d'|format('x', 3) }}",
        "{{ 'mxc://h/m'|mxc_to_http(1, 2, resize_method='scale') }}|{{ 'http://no'|mxc_to_http(1, 2) }}|{{ 'see http://x.y/<z>'|urlize }}",
        "{{ rooms[0].title.split('<')[0]|trim }} {{ 'x'.startswith('x') }}",
      ].join('\n'),
    );
    const text = make({ folders: [folder], appName: 'Vector' }).text('notif_mail.html', notifMail);
    expect(text).toContain('#45824b');
    expect(text).toContain('<em>hi</em>');
    expect(text).toContain('a%20b/c%26 14-11-2023 22:13 a@b x-3');
    expect(text).toContain(
      'https://hs.example.org/_matrix/media/v3/thumbnail/h/m?width=1&amp;height=2&amp;method=scale||see <a href="http://x.y/" rel="noopener">http://x.y/</a>&lt;z&gt;',
    );
    expect(text).toContain('Room true');
  });

  it('refuses to start with a template of wrong syntax, in one line', () => {
    writeFileSync(join(folder, 'terms.html'), 'fine\n{% if %}');
    expect(() => make({ folders: [folder] })).toThrow(TemplateError);
    expect(() => make({ folders: [folder] })).toThrow(/^\S+: syntax error: .* \(in terms\.html:2\)$/);
    expect(() => make({ folders: [join(folder, 'missing')] })).toThrow('Cannot read templates in');
  });

  it('leaves out what a filter cannot make sense of', () => {
    writeFileSync(
      join(folder, 'odd.txt'),
      "[{{ 'x'|format_ts('%d') }}{{ 1|mxc_to_http }}{{ missing|localpart_from_email }}]{{ 'x'|center('y') }}",
    );
    expect(make({ folders: [folder] }).text('odd.txt')).toBe('[]x');
  });

  it("puts ours in for one of the operator's that fails, and survives it", () => {
    writeFileSync(join(folder, 'terms.html'), '{{ session|no_such_filter }}');
    writeFileSync(
      join(folder, 'own.html'),
      '{% for i in range(9999) %}{% for j in range(9999) %}x{% endfor %}{% endfor %}',
    );
    const pages = make({ folders: [folder] });
    for (let i = 0; i < 3; i++) {
      expect(pages.page('terms.html', { session: 's' })).toMatchObject({
        custom: false,
        html: expect.stringContaining('value="s"') as string,
      });
      expect(() => pages.text('own.html')).toThrow('fuel');
      expect(() => pages.text('nothing.html')).toThrow(TemplateError);
    }
    expect(pages.page('invalid_token.html').html).toContain('not valid');
  });

  it('goes on after a value that destroys the state of the engine', () => {
    const pages = make();
    const get = (): never => {
      throw new Error('trap');
    };
    // Plain values are looked at before the engine sees them; others reach it as they are.
    const plain = Object.defineProperty({}, 'name', { enumerable: true, get });
    const strange = Object.defineProperty(Object.create({ a: 1 }) as object, 'name', { enumerable: true, get });
    for (const trap of [plain, strange])
      expect(() => pages.text('sso_error.html', { error: trap })).toThrow(TemplateError);
    expect(pages.text('sso_error.html', { error: 'bad_session' })).toContain('bad_session');
  });

  it('takes its folders and names from the settings', () => {
    const options = pagesOptionsOf(
      Config.fromObject({
        server_name: 'x.org',
        public_baseurl: 'https://hs.x.org',
        protocol_prefix: '_proto',
        templates: { custom_template_directory: folder },
      }),
    );
    expect(options).toEqual({
      serverName: 'x.org',
      appName: 'Matrix',
      publicBaseUrl: 'https://hs.x.org/',
      protocolPrefix: '_proto',
      folders: [folder],
    });
    writeFileSync(join(folder, 'own.txt'), "{{ 'mxc://h/m'|mxc_to_http(1, 2) }}");
    expect(make(options).text('own.txt')).toBe(
      'https://hs.x.org/_proto/media/v3/thumbnail/h/m?width=1&height=2&method=crop',
    );
  });

  it("looks into the sections' own folders of the past", () => {
    const config = Config.fromObject({
      server_name: 'x.org',
      email: { template_dir: '/mails', notif_from: 'Nest <a@x.org>' },
      sso: { template_dir: '/sso' },
      account_validity: { template_dir: '/mails' },
    });
    expect(pagesOptionsOf(config).folders).toEqual(['/mails', '/sso']);
    expect(config.warnings.filter(({ message }) => message.startsWith('deprecated'))).toHaveLength(3);
  });

  it('escapes in .html, .htm and .xml, and nowhere else', () => {
    const names = ['a.html', 'a.htm', 'a.xml', 'a.txt', 'a.css', 'a.html.txt'];
    for (const name of names) writeFileSync(join(folder, name), '{{ value }}');
    const pages = make({ folders: [folder] });
    expect(names.map((name) => pages.text(name, { value: '<&' }))).toEqual([
      ...['&lt;&amp;', '&lt;&amp;', '&lt;&amp;'],
      ...['<&', '<&', '<&'],
    ]);
  });
});

describe('compileText', () => {
  it('maps attributes without escaping', () => {
    expect(compileText('{{ user.email|localpart_from_email }}')({ user: { email: 'al<ice@x.org' } })).toBe('al<ice');
    expect(() => compileText('{{ user.')).toThrow(TemplateError);
  });
});

describe('strftime', () => {
  it('knows the directives of the field', () => {
    const ms = Date.UTC(2024, 0, 5, 15, 4, 9);
    expect(strftime(ms, '%Y %y %m %d %-d %e %H %I %M %S %p %B %b %A %a %F %T %% %Q', 'UTC')).toBe(
      '2024 24 01 05 5  5 15 03 04 09 PM January Jan Friday Fri 2024-01-05 15:04:09 % %Q',
    );
    expect(strftime(Date.UTC(2024, 0, 5, 0, 30), '%H:%M %I%p', 'UTC')).toBe('00:30 12AM');
    expect(strftime(ms, '%H:%M', 'Asia/Tokyo')).toBe('00:04');
  });
});
