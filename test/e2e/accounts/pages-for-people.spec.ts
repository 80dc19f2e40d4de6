import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';

/** As much of a document as the login page uses. */
class Element {
  hidden = true;
  disabled = false;
  value = '';
  textContent = '';
  className = '';
  href = '';
  readonly dataset: Record<string, string> = {};
  children: Element[] = [];
  submit: ((event: object) => void) | undefined;
  addEventListener(_type: string, listener: (event: object) => void): void {
    this.submit = listener;
  }
  append(child: Element): void {
    this.children.push(child);
  }
  replaceChildren(): void {
    this.children = [];
  }
}

const browser = { accept: 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8' };
const loginPath = '/_matrix/static/client/login/';

describe('pages for people', () => {
  let server: TestHomeserver;
  const settings = {
    public_baseurl: 'https://chat.example/',
    password_config: { enabled: true },
    email: { smtp_host: '127.0.0.1', smtp_port: 1, notif_from: 'a@chat.example' },
    cas_config: { enabled: true, server_url: 'https://cas.example/' },
  };

  beforeAll(async () => {
    server = await createTestHomeserver({ settings });
    await server.registerUser('alice', 'wonderland');
  });
  afterAll(() => server.stop());

  const get = async (path: string, headers: Record<string, string> = browser): Promise<[Response, string]> => {
    const response = await fetch(server.baseUrl + path, { headers, redirect: 'manual' });
    return [response, await response.text()];
  };
  const strict = (response: Response): void =>
    expect(response.headers.get('content-security-policy')).toMatch(/default-src 'none'.*form-action 'self'/);

  it.each(['/', '/_matrix/static/', '/_matrix/static'])('%s greets, with a picture of its own', async (path) => {
    const [response, html] = await get(path);
    expect(response.status).toBe(200);
    strict(response);
    expect(html).toMatch(/It works.*rookery\.test/s);
    expect(html).toContain('<link rel="icon" href="data:image/svg+xml,');
  });

  it.each<[path: string, isPage: boolean]>([
    ['/no-such-page', true],
    ['/_synapse/client/no-such-page', true],
    ['/_matrix/static/no-such-page', true],
    ['/_matrix/client/v3/no-such-page', false],
    ['/_matrix/federation/v1/no-such-page', false],
    ['/_synapse/admin/v1/no-such-page', false],
    ['/.well-known/matrix/no-such-page', false],
  ])('where there is nothing, %s: a browser sees a page: %s', async (path, isPage) => {
    const [response, text] = await get(path);
    expect(response.status).toBe(404);
    if (isPage) {
      strict(response);
      expect(text).toContain('There is no such page');
    } else expect(JSON.parse(text)).toMatchObject({ errcode: 'M_UNRECOGNIZED' });
    const [program, body] = await get(path, { accept: '*/*' });
    expect(program.status).toBe(404);
    expect(JSON.parse(body)).toMatchObject({ errcode: 'M_UNRECOGNIZED' });
    const posted = await fetch(server.baseUrl + path, { method: 'POST', headers: browser, body: '{}' });
    expect(await posted.json()).toMatchObject({ errcode: 'M_UNRECOGNIZED' });
  });

  it('tell that a link to unsubscribe is wrong', async () => {
    const path = '/_synapse/client/unsubscribe';
    for (const [query, status] of [
      ['?access_token=x&pushkey=a@b.example', 403],
      ['', 400],
    ] as const) {
      const [response, html] = await get(path + query);
      expect(response.status).toBe(status);
      strict(response);
      expect(html).toContain('This link is not valid');
      expect((await get(path + query, {}))[0].headers.get('content-type')).toBe('application/json');
    }
  });

  it('tell that a link to reset a password is wrong, before anybody confirms', async () => {
    const [response, html] = await get(
      '/_synapse/client/password_reset/email/submit_token?sid=abc&client_secret=abc&token=abc',
    );
    expect(response.status).toBe(400);
    expect(html).toContain('could not be confirmed');
    expect(html).not.toContain('<form');
  });

  describe('the login of apps that have none', () => {
    /** Runs the page's script, as a browser would. */
    async function open(search = '', names: object = {}) {
      const [response, html] = await get(loginPath + search);
      expect(response.status).toBe(200);
      const nonce = /<script nonce="([^"]+)"/.exec(html)![1]!;
      const policy = response.headers.get('content-security-policy')!;
      expect(policy).toContain(`script-src 'nonce-${nonce}'`);
      expect(policy).toContain("connect-src 'self'");
      const elements = new Map(
        ['login', 'verdict', 'providers', 'go', 'username', 'password'].map((id) => [id, new Element()]),
      );
      for (const id of elements.keys()) expect(html).toContain(`id="${id}"`);
      const form = elements.get('login')!;
      for (const [, name, value] of html.matchAll(/ data-(\w+)="([^"]*)"/g)) form.dataset[name!] = value!;
      expect(form.dataset).toEqual({
        login: '/_matrix/client/v3/login',
        sso: '/_matrix/client/v3/login/sso/redirect',
        own: `https://chat.example${loginPath}`,
      });
      const script = /<script[^>]*>(.*?)<\/script>/s.exec(html)![1]!;
      const asked: unknown[] = [];
      const document = { getElementById: (id: string) => elements.get(id), createElement: () => new Element() };
      const ask = (path: string, init?: RequestInit): Promise<Response> => {
        if (init) asked.push(JSON.parse(init.body as string));
        return fetch(server.baseUrl + path, init);
      };
      const AsyncFunction = (async () => undefined).constructor as new (
        ...parts: string[]
      ) => (...values: unknown[]) => Promise<void>;
      await new AsyncFunction('document', 'location', 'window', 'fetch', script)(document, { search }, names, ask);
      return { element: (id: string) => elements.get(id)!, asked };
    }

    it.each(['onLogin', 'matrixLogin'])('signs in with a password and tells the app by %s', async (listener) => {
      const told = new Promise<Record<string, unknown>>((tell) => {
        const names = listener === 'onLogin' ? { onLogin: tell } : { matrixLogin: { onLogin: tell } };
        void open('?device_id=FRIDGE&initial_device_display_name=Fridge&type=x', names).then(({ element, asked }) => {
          expect(element('login').hidden).toBe(false);
          element('username').value = 'alice';
          element('password').value = 'wonderland';
          element('login').submit!({ preventDefault: () => undefined });
          expect(asked).toMatchObject([{ device_id: 'FRIDGE', initial_device_display_name: 'Fridge' }]);
        });
      });
      const answer = await told;
      expect(answer).toMatchObject({ user_id: '@alice:rookery.test', device_id: 'FRIDGE' });
      const token = answer['access_token'] as string;
      const who = await server.request('GET', '/account/whoami', undefined, token);
      expect(who.body).toMatchObject({ user_id: '@alice:rookery.test', device_id: 'FRIDGE' });
    });

    it('leads to single sign-on, and back to itself', async () => {
      const { element } = await open('?device_id=FRIDGE');
      const [link] = element('providers').children;
      expect(link!.href).toBe(
        `/_matrix/client/v3/login/sso/redirect/cas?redirectUrl=${encodeURIComponent(`https://chat.example${loginPath}?device_id=FRIDGE`)}`,
      );
      const started = await fetch(server.baseUrl + link!.href, {
        redirect: 'manual',
        headers: { host: 'chat.example' },
      });
      expect(started.status).toBe(302);
    });

    it('says what is wrong with a token, and offers to begin again', async () => {
      const { element, asked } = await open('?loginToken=wrong');
      expect(asked).toEqual([{ type: 'm.login.token', token: 'wrong' }]);
      expect(element('verdict').className).toBe('error');
      expect(element('login').hidden).toBe(false);
    });
  });
});
