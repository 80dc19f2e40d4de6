import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ModuleApi, MatrixError, Codes } from '@rookery/module-api';
import { Metrics, SystemClock } from '@rookery/platform';
import { eventually, RecordingLogger } from '@rookery/testing';
import { callbackContext } from './context.js';
import { ModuleHost } from './host.js';
import type { ModuleEntry } from './loader.js';
import { offlineCapabilities } from './offline.js';

let folder: string;
let host: ModuleHost;
let log: RecordingLogger;
let metrics: Metrics;
const context = callbackContext(undefined, { source: 'client', userId: '@a:example.org' });
const capabilities = offlineCapabilities({ serverName: 'example.org' });
/** What modules of these tests leave for them; those in threads cannot. */
const left = new Map<string, ModuleApi>();
(globalThis as Record<string, unknown>)['leftByModules'] = left;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-ecosystem-'));
  log = new RecordingLogger();
  metrics = new Metrics('example.org');
  host = new ModuleHost({ clock: new SystemClock(), logger: log, configDir: folder, metrics });
});
afterEach(async () => {
  await host.stop();
  left.clear();
  rmSync(folder, { recursive: true, force: true });
});

/** Writes a module whose `register` is this code; its entry. */
function write(name: string, register: string, more: Partial<ModuleEntry> = {}, manifest?: object): ModuleEntry {
  if (manifest) writeFileSync(join(folder, 'package.json'), JSON.stringify({ rookery: manifest }));
  writeFileSync(
    join(folder, `${name}.mjs`),
    `import { Codes, defineModule, MatrixError, NOT_SPAM } from '@rookery/module-api';
    export default defineModule({ name: '${name}', async register(api) {
      globalThis.leftByModules?.set('${name}', api);
      ${register} } });`,
  );
  return {
    ...{ module: `./${name}.mjs`, config: undefined, onError: 'deny', timeLimitMs: undefined, allowFederationTo: [] },
    ...more,
  };
}
const start = async (...entries: readonly ModuleEntry[]): Promise<void> =>
  host.start(await host.import(entries), capabilities);
const joining = (userId = '@a:example.org'): ReturnType<ModuleHost['dispatcher']['gate']> =>
  host.dispatcher.gate('userMayJoinRoom', context, userId, '!r:example.org', false);
const thread = { isolate: 'thread' } as const;

describe.each([
  ['beside the server', {}],
  ['in threads', thread],
] as const)('messages between modules %s', (_, where) => {
  const answering = `
    api.messages.answer('add', ({ a, b }, from) => ({ sum: a + b, from, frozen: Object.isFrozen(arguments) }));
    api.messages.answer('silent', () => {});
    api.messages.answer('deny', () => { throw new MatrixError(403, 'M_FORBIDDEN', 'not you'); });
    api.messages.answer('break', () => { throw new Error('broken'); });
    api.messages.answer('hang', () => new Promise(() => {}));
    api.messages.answer('again', (payload) => api.messages.ask('teller', 'again', payload));`;
  /** The one that asks stands beside the server, so that it can be reached. */
  const ask = (question: string, payload?: unknown, to = 'teller'): Promise<unknown> =>
    left.get('asker')!.messages.ask(to, question, payload);

  it('reach another module, and bring back what it says', async () => {
    await start(write('teller', answering, { ...where, timeLimitMs: 1_000 }), write('asker', ''));
    expect(await ask('add', { a: 1, b: 2 })).toMatchObject({ sum: 3, from: 'asker' });
    expect(await ask('silent')).toBeNull();
    await expect(ask('deny')).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN', message: 'not you' });
    await expect(ask('break')).rejects.toMatchObject({ status: 500 });
    expect(log.lines).toContainEqual(
      expect.objectContaining({
        message: 'A module failed to answer another one',
        fields: expect.objectContaining({ module: 'teller', question: 'break', askedBy: 'asker' }),
      }),
    );
    await expect(ask('unknown')).rejects.toMatchObject({ status: 404 });
    await expect(ask('add', {}, 'nobody')).rejects.toMatchObject({ status: 404 });
    await expect(ask('hang')).rejects.toMatchObject({ status: 504 });
    await expect(ask('again')).rejects.toMatchObject({ status: 500, message: 'Modules ask each other in a ring' });
    await expect(ask('add', { a: 1n })).rejects.toThrow();
  });

  it('can be asked while a module registers, by those that stand behind', async () => {
    const early = `const { sum } = await api.messages.ask('teller', 'add', { a: 2, b: 2 }); globalThis.sum = sum;`;
    await start(write('teller', answering, where), write('asker', early));
    expect((globalThis as Record<string, unknown>)['sum']).toBe(4);
    await host.reload([write('teller', `api.messages.answer('add', () => 'new');`, where), write('asker', '')]);
    expect(await ask('add')).toBe('new');
  });
});

it('takes no question twice, and none outside of register', async () => {
  const twice = `api.messages.answer('q', () => 1); api.messages.answer('q', () => 2);`;
  await expect(start(write('twice', twice))).rejects.toThrow('q is answered already');
  await start(write('late', ''));
  expect(() => left.get('late')!.messages.answer('q', () => 1)).toThrow('too late');
});

it('holds a module in a thread to the modules that its manifest names', async () => {
  const asking = `api.registerSpamCheckerCallbacks({ async userMayJoinRoom(userId) {
    try { return { errcode: Codes.FORBIDDEN, message: String(await api.messages.ask(userId, 'name')) }; }
    catch (error) { return { errcode: Codes.FORBIDDEN, message: error.message }; } } });`;
  const manifest = { callbacks: ['userMayJoinRoom'], modules: ['friend'] };
  await start(
    write('friend', `api.messages.answer('name', () => 'a friend');`),
    write('stranger', `api.messages.answer('name', () => 'a stranger');`),
    write('held', asking, thread, manifest),
  );
  expect(await joining('friend')).toMatchObject({ message: 'a friend' });
  expect(await joining('stranger')).toMatchObject({ message: expect.stringContaining('does not name the module') });
});

describe('a module in shadow', () => {
  const judging = `
    api.registerSpamCheckerCallbacks({
      async userMayJoinRoom(userId) {
        if (userId === '@fails:example.org') throw new Error('broken');
        if (userId === '@hangs:example.org') await new Promise(() => {});
        return userId === '@bad:example.org' ? { errcode: Codes.FORBIDDEN, message: 'no' } : NOT_SPAM;
      },
    });
    api.registerThirdPartyRulesCallbacks({
      async checkEventAllowed(event) { return { allowed: true, replacement: { content: { changed: true } } }; },
      async onNewEvent() { await api.createAndSendEventIntoRoom({}).catch((error) => api.log.warn(error.message)); },
    });
    api.registerPasswordAuthProviderCallbacks({ authCheckers: [{ loginType: 'm.login.password', fields: ['password'],
      check: () => ({ userId: '@anybody:example.org' }) }] });`;

  it.each([{}, thread])('judges without effect, and says what it would have refused (%o)', async (where) => {
    await start(write('shadow', judging, { shadow: true, timeLimitMs: 300, ...where }));
    expect(host.dispatcher.has('userMayJoinRoom')).toBe(true);
    for (const name of ['good', 'bad', 'fails', 'hangs']) {
      expect(await joining(`@${name}:example.org`)).toEqual({ allowed: true, shadowBan: false });
    }
    const value = { eventId: undefined, content: {} } as never;
    const transformed = await host.dispatcher.transform('checkEventAllowed', context, value, {} as never);
    expect(transformed).toEqual({ allowed: true, value });
    expect(host.dispatcher.loginTypes.size).toBe(0);
    await host.dispatcher.notify('onNewEvent', context, {} as never, {} as never);
    await eventually(() => log.lines.find(({ message }) => message.includes('runs in shadow')));

    const report = await eventually(async () => {
      const [found] = await host.dispatcher.report();
      const figures = found?.callbacks.find(({ name }) => name === 'userMayJoinRoom');
      return figures?.calls === 4 && found;
    });
    expect(report.callbacks.find(({ name }) => name === 'userMayJoinRoom')).toMatchObject({
      outcomes: { ok: 1, would_refuse: 1, error: 1, timeout: 1 },
    });
    expect(report).toMatchObject({
      name: 'shadow',
      isShadow: true,
      shadowRefusals: [
        { callback: 'userMayJoinRoom', errcode: 'M_FORBIDDEN', message: 'no', askedFor: '@a:example.org' },
      ],
    });
    expect(log.lines).toContainEqual(
      expect.objectContaining({ message: 'A module in shadow would have refused something' }),
    );
  });

  it('comes out of it by a reload', async () => {
    const entry = write('shadow', judging, { shadow: true });
    await start(entry);
    expect(await joining('@bad:example.org')).toMatchObject({ allowed: true });
    await host.reload([{ ...entry, shadow: false }]);
    expect(await joining('@bad:example.org')).toMatchObject({ allowed: false, message: 'no' });
  });
});

it('reports how modules do', async () => {
  const register = `api.registerSpamCheckerCallbacks({ userMayJoinRoom(userId) {
    if (userId === '@fails:example.org') throw new TypeError('broken');
    return userId === '@bad:example.org' ? Codes.FORBIDDEN : NOT_SPAM; } });`;
  await start(write('beside', register), write('apart', register, thread));
  expect((await host.dispatcher.report())[0]?.callbacks).toEqual([
    expect.objectContaining({ calls: 0, meanMs: undefined, p95Ms: undefined, lastError: undefined }),
  ]);
  for (let i = 0; i < 3; i++) await joining();
  await joining('@bad:example.org');
  await joining('@fails:example.org');
  const [beside, apart] = await host.dispatcher.report();
  expect(beside).toMatchObject({ name: 'beside', entry: './beside.mjs', thread: undefined, isShadow: false });
  expect(beside?.callbacks).toEqual([
    expect.objectContaining({
      name: 'userMayJoinRoom',
      calls: 5,
      outcomes: { ok: 3, refused: 1, error: 1 },
      isSuspended: false,
      lastError: { atMs: expect.any(Number), outcome: 'error', message: 'TypeError: broken' },
    }),
  ]);
  expect(beside?.callbacks[0]?.p95Ms).toBeGreaterThan(0);
  expect(apart).toMatchObject({ name: 'apart', thread: { heapBytes: expect.any(Number), waiting: 0 } });
  expect(apart?.thread?.heapBytes).toBeGreaterThan(100_000);
  const { body: page } = await metrics.render();
  expect(page).toMatch(/rookery_module_thread_memory_bytes\{module="apart",[^}]*\} \d{6,}/);
  expect(page).toMatch(/rookery_module_suspended_callbacks\{module="beside",[^}]*\} 0/);
  // What is not there any more is not shown; what stays keeps its figures.
  await host.reload([write('beside', register)]);
  expect((await host.dispatcher.report()).map(({ callbacks }) => callbacks[0]?.calls)).toEqual([5]);
  expect((await metrics.render()).body).not.toMatch(/rookery_module_(?:thread|suspended)\w+\{module="apart"/);
});

it('lists nothing where there is no server, and says so when it is read', async () => {
  await start(write('lister', ''), write('isolated', '', thread));
  const list = async (): Promise<void> => {
    for await (const _ of left.get('lister')!.listUsers()) throw new Error('There is none');
  };
  await expect(list()).rejects.toThrow(MatrixError);
});

it('hands lists to a thread piece by piece', async () => {
  async function* listRooms(): AsyncGenerator<object> {
    for (let i = 0; ; i++) yield { roomId: `!${i}:example.org` };
  }
  const register = `api.registerSpamCheckerCallbacks({ async userMayJoinRoom() {
    const found = [];
    for await (const { roomId } of api.listRooms()) if (found.push(roomId) === 3) break;
    return { errcode: Codes.FORBIDDEN, message: found.join() }; } });`;
  const entry = write('lister', register, thread);
  await host.start(await host.import([entry]), {
    ...capabilities,
    shared: { ...capabilities.shared, listRooms: listRooms as never },
  });
  const message = '!0:example.org,!1:example.org,!2:example.org';
  expect(await joining()).toMatchObject({ errcode: Codes.FORBIDDEN, message });
});
