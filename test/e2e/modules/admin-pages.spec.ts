import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createContext, runInContext } from 'node:vm';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

const module = `
import { defineModule, ConfigError, MatrixError, registerAdminPage } from '@rookery/module-api';
export default defineModule({
  name: 'greeter',
  configJsonSchema: { type: 'object', required: ['limit'], properties: {
    limit: { type: 'integer', description: 'How many' }, loud: { type: 'boolean' },
    tokens: { type: 'object' }, keywords: { type: 'array' },
    kind: { enum: ['short', 'long'] }, api_key: { type: 'string' }, words: { type: 'array', items: { type: 'string' } },
  } },
  parseConfig(raw) {
    if (typeof raw?.api_key !== 'string') throw new ConfigError('is missing', ['api_key']);
    if (raw.tokens?.site !== 'hush 2' || raw.tokens.old?.[1] !== 'hush 4') throw new ConfigError('are not there', ['tokens']);
    if (raw.peers?.[0]?.pass !== 'hush 5') throw new ConfigError('are not there', ['peers']);
    if (!(raw.limit >= 1)) throw new ConfigError('expected a number of at least 1', ['limit']);
    return raw;
  },
  register(api) {
    registerAdminPage(api, {
      id: 'greeting',
      title: 'Greeting',
      async show({ userId }) {
        const value = String((await api.store.get('greeting')) ?? '');
        return [
          { title: '<b>Now</b>', text: 'for ' + userId, table: { columns: ['what'], rows: [[value]] } },
          { form: { name: 'change', button: 'Save', fields: [
            { name: 'greeting', label: 'Greeting', value }, { name: 'sure', label: 'Sure', type: 'checkbox' } ] } },
        ];
      },
      async submit(form, { greeting, sure }) {
        if (!sure) throw new MatrixError(400, 'M_INVALID_PARAM', 'Be sure');
        await api.store.put('greeting', greeting);
        return form + ' done';
      },
    });
  },
});`;

/** As much of a browser's document as the page uses. */
class Element {
  children: (Element | string)[] = [];
  onclick?: (event: object) => Promise<void>;
  onsubmit?: (event: object) => Promise<void>;
  checked = false;
  selected = false;
  #value = '';
  constructor(readonly name: string) {}
  append(...children: (Element | string)[]): void {
    this.children.push(...children);
  }
  replaceChildren(...children: (Element | string)[]): void {
    this.children = children;
  }
  get firstChild(): Element | string | undefined {
    return this.children[0];
  }
  get textContent(): string {
    return this.children.map((child) => (typeof child === 'string' ? child : child.textContent)).join('');
  }
  set textContent(text: string) {
    this.children = [text];
  }
  get value(): string {
    if (this.name !== 'select') return this.#value;
    const options = this.children.filter((child) => child instanceof Element);
    return (options.find(({ selected }) => selected) ?? options[0])?.value ?? '';
  }
  set value(value: unknown) {
    if (this.name === 'select') {
      for (const child of this.children) if (child instanceof Element) child.selected = child.value === value;
    } else this.#value = String(value);
  }
  *all(name: string): Generator<Element> {
    for (const child of this.children) {
      if (!(child instanceof Element)) continue;
      if (child.name === name) yield child;
      yield* child.all(name);
    }
  }
}

describe.each([undefined, 'thread'] as const)('the page for administrators (modules in: %s)', (isolate) => {
  let server: TestHomeserver;
  let root: TestUser;
  let ann: TestUser;
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-admin-pages-'));
    writeFileSync(join(folder, 'greeter.mjs'), module);
    const config = {
      ...{ limit: 3, api_key: 'hush', words: ['a'], keywords: ['b'] },
      tokens: { days: 7, site: 'hush 2', old: ['hush 3', 'hush 4'], lifetimes: [1, 2] },
      peers: [{ name: 'c', pass: 'hush 5' }],
    };
    server = await createTestHomeserver({
      configDir: folder,
      settings: { modules: [{ module: './greeter.mjs', config, ...(isolate ? { isolate } : {}) }] },
    });
    root = await server.registerAdministrator('root');
    ann = await server.registerUser('ann');
  });
  afterAll(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** The page in a browser, as far as there is one. */
  async function open() {
    const response = await fetch(`${server.baseUrl}/_synapse/admin/pages`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toContain('text/html');
    const html = await response.text();
    const [, nonce, script] = /<script nonce="([^"]+)">(.*)<\/script>/s.exec(html)!;
    expect(response.headers.get('content-security-policy')).toContain(`script-src 'nonce-${nonce}'`);
    const ids = new Map(['out', 'message', 'main'].map((id) => [id, new Element(id)]));
    const storage = new Map<string, string>();
    const page = createContext({
      document: { getElementById: (id: string) => ids.get(id), createElement: (name: string) => new Element(name) },
      sessionStorage: {
        getItem: (name: string) => storage.get(name) ?? null,
        setItem: (name: string, value: string) => void storage.set(name, value),
        removeItem: (name: string) => void storage.delete(name),
      },
      fetch: (path: string, init: RequestInit) => fetch(server.baseUrl + path, init),
    });
    runInContext(script!, page);
    const main = ids.get('main')!;
    return {
      main,
      message: () => ids.get('message')!.textContent,
      storage,
      click: async (text: string) => {
        const button = [...main.all('button')].find((one) => one.textContent === text && one.onclick);
        await button!.onclick!({});
      },
      fill: async (values: Record<string, string | boolean>) => {
        const [form] = [...main.all('form')];
        for (const label of form!.all('label')) {
          const [name = ''] = label.textContent.split(' ');
          if (!(name in values)) continue;
          const input = label.children.find((child) => child instanceof Element)!;
          if (typeof values[name] === 'boolean') input.checked = values[name];
          else input.value = values[name];
        }
        await form!.onsubmit!({});
      },
    };
  }
  type RequestInit = NonNullable<Parameters<typeof fetch>[1]>;

  it('lets administrators in, by their password or a token, and nobody else', async () => {
    const page = await open();
    expect(page.main.textContent).toContain('Sign in as an administrator');
    await page.fill({ Name: 'ann', Password: 'password of ann' });
    expect(page.message()).toMatch(/admin/i);
    await page.fill({ Name: 'root', Password: 'wrong' });
    expect(page.message()).not.toBe('');
    expect(page.storage.size).toBe(0);
    await page.fill({ Name: 'root', Password: 'password of root' });
    expect(page.main.textContent).toContain('greeter');
    const other = await open();
    await other.fill({ or: root.accessToken });
    expect(other.main.textContent).toContain('greeter');
  });

  it('shows what a module brings for administrators, as text, and sends what they fill in', async () => {
    const page = await open();
    await page.fill({ or: root.accessToken });
    await page.click('greeting');
    expect(page.main.textContent).toContain(`<b>Now</b>for ${root.userId}`);
    await page.fill({ Greeting: '<i>hello</i>' });
    expect(page.message()).toBe('Be sure');
    await page.fill({ Greeting: '<i>hello</i>', Sure: true });
    expect(page.message()).toBe('change done');
    expect([...page.main.all('td')].map((cell) => cell.textContent)).toEqual(['<i>hello</i>']);
    const path = '/_synapse/client/admin_page/greeter/greeting';
    expect((await server.request('GET', path)).status).toBe(401);
    expect((await ann.request('GET', path)).status).toBe(403);
    expect((await ann.request('POST', path, { form: 'change', values: {} })).status).toBe(403);
    for (const body of [{}, { form: 'change', values: [] }, { form: 'change', values: { a: {} } }])
      expect((await root.request('POST', path, body)).status).toBe(400);
    expect((await root.request('DELETE', path)).status).toBe(405);
  });

  it('makes a form of the schema of the settings, keeps secrets, and says what is wrong', async () => {
    const path = '/_synapse/admin/v1/modules/greeter/settings';
    expect((await ann.request('GET', path)).status).toBe(403);
    const { body } = await root.request('GET', path);
    expect(body).toMatchObject({
      entry: './greeter.mjs',
      config: {
        ...{ limit: 3, words: ['a'], keywords: ['b'], tokens: { days: 7, lifetimes: [1, 2] }, peers: [{ name: 'c' }] },
      },
      withheld: ['api_key', 'tokens.site', 'tokens.old', 'peers.0.pass'],
      schema: { required: ['limit'] },
    });
    expect(JSON.stringify(body)).not.toContain('hush');
    expect((await root.request('GET', '/_synapse/admin/v1/modules/nobody/settings')).status).toBe(404);

    const page = await open();
    await page.fill({ or: root.accessToken });
    await page.click('Settings');
    expect(page.main.textContent).toContain('to be left as they are in the file: api_key');
    expect([...page.main.all('input'), ...page.main.all('select')].map(({ value }) => value)).toEqual(
      expect.arrayContaining(['3', '(not set)']),
    );
    await page.fill({ limit: '0' });
    if (isolate) expect(page.message()).toContain('Not tried');
    else expect(page.message()).toBe('config.limit: expected a number of at least 1');
    await page.fill({ words: 'not JSON' });
    expect(page.message()).toBe('words is no JSON');
    await page.fill({ limit: '5', loud: 'true', kind: 'long', words: '["b"]' });
    if (!isolate) expect(page.message()).toBe('The module takes these settings.');
    const [text] = [...page.main.all('pre')].map((element) => element.textContent);
    expect(text).toContain('module: "./greeter.mjs"');
    expect(JSON.parse(text!.slice(text!.indexOf('config: ') + 8))).toEqual({
      ...{ limit: 5, loud: true, kind: 'long', words: ['b'], keywords: ['b'] },
      ...{ tokens: { days: 7, lifetimes: [1, 2] }, peers: [{ name: 'c' }] },
    });
  });
});
