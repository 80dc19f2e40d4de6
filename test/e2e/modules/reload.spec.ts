import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { parse, stringify } from 'yaml';
import { ServerProcess } from '../../support/server-process.js';

/** A module that refuses the words of its settings, with its own name. */
const filter = (name: string, more = ''): string => `
  import { defineModule, NOT_SPAM } from '@rookery/module-api';
  ${more}
  export default defineModule({
    name: '${name}',
    parseConfig: (raw) => raw.words,
    register(api, words) {
      api.registerSpamCheckerCallbacks({
        checkEventForSpam: ({ content }) => (words.includes(content.body) ? { errcode: 'ORG.${name.toUpperCase()}' } : NOT_SPAM),
      });
    },
  });`;

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

describe('a reload of the running program', () => {
  let server: ServerProcess;
  let token: string;
  let roomId: string;
  let txn = 0;

  const request = async (method: string, path: string, body?: object, signal?: AbortSignal): Promise<Answer> => {
    const response = await fetch(`${server.baseUrl}/_matrix/client/v3${path}`, {
      method,
      headers: { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      ...(signal ? { signal } : {}),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const say = (body: string): Promise<Answer> =>
    request('PUT', `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${++txn}`, { msgtype: 'm.text', body });
  const write = (name: string, text: string): Promise<void> => writeFile(join(server.folder, name), text);
  const configure = async (settings: object): Promise<void> => {
    const before = parse(await readFile(server.configFile, 'utf8')) as object;
    await writeFile(server.configFile, stringify({ ...before, ...settings }));
  };
  /** Sends the signal and waits for the line that the program writes then. */
  const reload = async (line: RegExp): Promise<string> => {
    const { length } = server.output;
    process.kill(Number(await readFile(join(server.folder, 'server.pid'), 'utf8')), 'SIGHUP');
    return eventually(() => {
      const written = server.output.slice(length);
      return line.test(written) ? written : undefined;
    });
  };

  beforeAll(async () => {
    server = await ServerProcess.prepare('sqlite');
    await write('one.mjs', filter('one'));
    await write('two.mjs', filter('two'));
    await configure({
      pid_file: join(server.folder, 'server.pid'),
      log_format: 'json',
      // Who is there would be news for whoever waits.
      presence: { enabled: false },
      modules: [{ module: './one.mjs', config: { words: ['red'] } }],
    });
    await server.start();
    token = '';
    const { body } = await request('POST', '/register', {
      ...{ username: 'ann', password: 'a long enough password', auth: { type: 'm.login.dummy' } },
    });
    token = String(body['access_token']);
    roomId = String((await request('POST', '/createRoom', {})).body['room_id']);
  });
  afterAll(() => server?.remove());

  it('brings new settings and new modules while a client waits, whose connection stays', async () => {
    expect((await say('red')).body['errcode']).toBe('ORG.ONE');
    const { body: first } = await request('GET', '/sync');
    let ended = false;
    const waiting = request('GET', `/sync?timeout=30000&since=${String(first['next_batch'])}`).finally(
      () => (ended = true),
    );
    await configure({
      modules: [
        { module: './one.mjs', config: { words: ['green'] } },
        { module: './two.mjs', config: { words: ['blue'] } },
      ],
    });
    const written = await reload(/Settings reloaded/);
    expect(written).toMatch(/"added":\["two"\]/);
    expect(written).toMatch(/"changed":\["one"\]/);
    expect((await say('green')).body['errcode']).toBe('ORG.ONE');
    expect((await say('blue')).body['errcode']).toBe('ORG.TWO');
    expect(ended).toBe(false);
    expect((await say('red')).status).toBe(200);
    const { status, body } = await waiting;
    expect(status).toBe(200);
    expect(JSON.stringify(body['rooms'])).toContain('"red"');
  });

  it('runs changed code, and says which settings need a restart', async () => {
    await write('one.mjs', filter('one').replace('ORG.', 'NEW.'));
    await configure({ server_name: 'rookery.test', public_baseurl: 'https://other.example/', enable_metrics: true });
    const written = await reload(/Settings reloaded/);
    expect(written).toMatch(/"changed":\["one"\]/);
    expect(written).toMatch(/"settings":\[[^\]]*"enable_metrics"/);
    expect((await say('green')).body['errcode']).toBe('NEW.ONE');
    expect((await say('blue')).body['errcode']).toBe('ORG.TWO');
  });

  it('goes on with the code of before where changed code does not load, or fails', async () => {
    for (const broken of ['export default {', filter('one', 'throw new Error("broken");')]) {
      await write('one.mjs', broken);
      expect(await reload(/Nothing was reloaded/)).toMatch(/homeserver\.yaml:\d+: module \.\/one\.mjs/);
      expect((await say('green')).body['errcode']).toBe('NEW.ONE');
    }
    await write('one.mjs', filter('one'));
    await reload(/Settings reloaded/);
    expect((await say('green')).body['errcode']).toBe('ORG.ONE');
  });

  it('changes nothing when one of the modules is wrong', async () => {
    await write('three.mjs', 'export default 7;');
    const good = parse(await readFile(server.configFile, 'utf8')) as { modules: object[] };
    await configure({ modules: [{ module: './two.mjs', config: { words: [] } }, { module: './three.mjs' }] });
    const written = await reload(/Nothing was reloaded/);
    expect(written).toMatch(
      /homeserver\.yaml:\d+: module \.\/three\.mjs: it exports no module made by defineModule\(\)/,
    );
    expect((await say('blue')).body['errcode']).toBe('ORG.TWO');
    await configure({ modules: good.modules.slice(1) });
    expect(await reload(/Settings reloaded/)).toMatch(/"removed":\["one"\]/);
    expect((await say('green')).status).toBe(200);
  });
});
