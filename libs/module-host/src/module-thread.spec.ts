import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import type { RoomEvent } from '@rookery/events';
import type { MediaServerSettings, MediaStorageProvider } from '@rookery/module-api';
import { LogContext, SystemClock } from '@rookery/platform';
import type { ModuleCapabilities } from './capabilities.js';
import { callbackContext } from './context.js';
import { ModuleHost } from './host.js';
import { toModuleEvent, toStateView } from './isolation.js';
import type { ModuleEntry } from './loader.js';
import { starvedMs } from './module-thread.js';
import { MemoryDocuments, offlineCapabilities } from './offline.js';
import { providerParts } from './provider-parts.js';

let folder: string;
let host: ModuleHost;
let log: RecordingLogger;
const context = callbackContext(undefined, { source: 'client', userId: '@a:example.org' });
const offline = offlineCapabilities({ serverName: 'example.org' });
const mediaSettings = { serverName: 'example.org' } as MediaServerSettings;
const file = { serverName: undefined, fileId: 'f1', urlCache: false };
/** What a storage gives as one piece. */
const storedIn = async (storage: Pick<MediaStorageProvider, 'fetch'>): Promise<string> =>
  Buffer.from(((await storage.fetch('a', file)) as never as Uint8Array[])[0]!).toString();

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-thread-'));
  log = new RecordingLogger();
  host = new ModuleHost({ clock: new SystemClock(), logger: log, configDir: folder });
});
afterEach(async () => {
  await host.stop();
  rmSync(folder, { recursive: true, force: true });
});

const entryOf = (name: string, more: Partial<ModuleEntry> = {}): ModuleEntry => ({
  module: `./${name}.mjs`,
  config: undefined,
  onError: 'deny',
  timeLimitMs: undefined,
  allowFederationTo: [],
  isolate: 'thread',
  where: (path) => ['homeserver.yaml:7', ...path].join('/'),
  ...more,
});

/** Writes a module whose `register` is this code. */
function write(name: string, register: string, more = ''): void {
  writeFileSync(
    join(folder, `${name}.mjs`),
    `import { Codes, ConfigError, defineModule, MatrixError, NOT_SPAM } from '@rookery/module-api';
    ${more.startsWith('parseConfig') ? '' : more}
    export default defineModule({
      name: '${name}',
      ${more.startsWith('parseConfig') ? more : 'parseConfig: (raw) => raw,'}
      async register(api, config) { ${register} },
    });`,
  );
}

async function start(entries: readonly ModuleEntry[], capabilities: Partial<ModuleCapabilities> = {}): Promise<void> {
  await host.start(await host.import(entries), { ...offline, ...capabilities });
}

const joining = (userId = '@a:example.org'): ReturnType<ModuleHost['dispatcher']['gate']> =>
  host.dispatcher.gate('userMayJoinRoom', context, userId, '!r:example.org', false);
/** The fields of a line of the log, once it is there. */
const said = (message: string): Promise<object> =>
  eventually(() => log.lines.find((line) => line.message === message)?.fields);

it('judges as a module beside it does: passes, refuses with its words, throws on purpose', async () => {
  write(
    'judge',
    `api.registerSpamCheckerCallbacks({
      userMayJoinRoom(userId, roomId, isInvited, context) {
        if (userId === '@bad:example.org') return { errcode: Codes.FORBIDDEN, message: config.words + context.source };
        if (userId === '@slow:example.org') throw new MatrixError(429, 'M_LIMIT_EXCEEDED', 'slow down', { retry_after_ms: 5 });
        return NOT_SPAM;
      },
    })`,
  );
  await start([entryOf('judge', { config: { words: 'no, ' } })]);
  expect(await joining()).toMatchObject({ allowed: true });
  expect(await joining('@bad:example.org')).toMatchObject({
    errcode: 'M_FORBIDDEN',
    message: 'no, client',
    module: 'judge',
  });
  expect(await joining('@slow:example.org')).toMatchObject({
    status: 429,
    extra: { retry_after_ms: 5 },
    failed: false,
  });
});

it('is given an event that looks as one in the server does', async () => {
  const seen = `async checkEventForSpam(event) {
    const keys = Object.keys(event).join();
    const isFrozen = [event, event.content, event.content.deep.deeper, event.prevEventIds, event.pdu, event.pdu.hashes].every(Object.isFrozen);
    return { errcode: Codes.FORBIDDEN, message: JSON.stringify([keys, isFrozen, 'stateKey' in event, event, { ...event }]) };
  }`;
  write('beside', `api.registerSpamCheckerCallbacks({ ${seen} })`);
  write('within', `api.registerSpamCheckerCallbacks({ ${seen} })`);
  const content = { body: 'x', deep: { deeper: [{ a: 1 }] } };
  const event = toModuleEvent({
    ...{ eventId: '$e', roomId: '!r:x', rules: { version: '12' }, type: 'm.room.message', sender: '@a:x', content },
    ...{ originServerTs: 1, depth: 2, prevEventIds: ['$p'], authEventIds: ['$a', '$b'] },
    pdu: { content, hashes: { sha256: 'x' } },
  } as unknown as RoomEvent);
  const heard: unknown[] = [];
  for (const [name, isolate] of [['beside', 'thread'] as const, ['within', undefined] as const]) {
    const one = new ModuleHost({ clock: new SystemClock(), logger: log, configDir: folder });
    await one.start(await one.import([entryOf(name, { isolate })]), offline);
    const verdict = await one.dispatcher.gate('checkEventForSpam', context, event);
    heard.push(JSON.parse((verdict as { message: string }).message));
    await one.stop();
  }
  expect(heard[0]).toEqual(heard[1]);
  expect(heard[0]).toMatchObject([expect.any(String), true, true, { pdu: { hashes: {} } }, { content }]);
});

it('reads state, keeps documents, uses transactions and timers through the wire', async () => {
  write(
    'reader',
    `let ticks = 0;
    api.loopingBackgroundCall(() => void ticks++, 5, { runOnAllInstances: true });
    const cached = api.registerCachedFunction('names', async (key) => (await api.store.get(key)) ?? 'none');
    api.registerThirdPartyRulesCallbacks({
      async checkEventAllowed(event, state) {
        const name = await state.get('m.room.name');
        await api.store.transaction(async (tx) => tx.put('seen', ((await tx.get('seen')) ?? 0) + 1));
        const before = await cached('before');
        while (ticks < 2) await api.sleep(1);
        return { allowed: true, replacement: { content: {
          ...event.content, name: name.content.name, seen: await api.store.get('seen'), before,
          mine: api.isMine('@a:example.org'), full: api.getQualifiedUserId('a'), url: api.urlOf('/x', { y: 'z' }), frozen: Object.isFrozen(event.content),
          about: Math.abs(api.getCurrentTimeMsec() - Date.now()) < 60000,
        } } };
      },
    })`,
  );
  await start([entryOf('reader')]);
  const draft = {
    ...{ roomId: '!r:example.org', roomVersion: '12', type: 'm.room.message', sender: '@a:example.org' },
    ...{ eventId: undefined, stateKey: undefined, content: { body: 'hi' }, originServerTs: 1, redacts: undefined },
  };
  const named = {
    content: { name: 'The room' },
    prevEventIds: [],
    authEventIds: [],
    pdu: {},
    rules: { version: '12' },
  };
  const view = toStateView({ get: async () => named as never, ofType: async () => [], all: async () => [] });
  for (const seen of [1, 2]) {
    const verdict = await host.dispatcher.transform('checkEventAllowed', context, draft, view);
    expect(verdict).toMatchObject({
      allowed: true,
      value: {
        content: {
          ...{ body: 'hi', name: 'The room', seen, before: 'none', mine: true, full: '@a:example.org' },
          url: 'https://example.org/x?y=z',
          ...{ frozen: true, about: true },
        },
      },
    });
  }
});

it.each([undefined, 'thread'] as const)(
  'does the same with bytes, lines of the log and paths (isolate: %s)',
  async (isolate) => {
    write(
      'same',
      `api.registerWebResource('/_synapse/client/same', () => new Response('first'));
    api.registerWebResource('/_synapse/client/same', () => new Response('second'));
    api.registerSpamCheckerCallbacks({ async checkMediaFileForSpam(file) {
      const { body } = await api.httpClient.getFile('https://files.example/a');
      const [row] = await api.runDbInteraction('read', (tx) => tx.query('SELECT contents FROM module_same_files'));
      const pieces = [];
      for await (const piece of file.stream()) pieces.push(piece.toString());
      const ring = { sent: Buffer.from('e') };
      ring.ring = ring;
      api.log.info('Odd', ring);
      api.log.warn('Odd', { symbol: Symbol('x'), list: new Array(200_000).fill(0) });
      const sent = await api.httpClient.request('PUT', 'https://files.example/b', Buffer.from('d'));
      return { errcode: Codes.FORBIDDEN, message: [body.toString(), row.contents.toString(), ...pieces, sent.body.constructor.name].join() };
    } })`,
    );
    const answer = (body: Uint8Array) => ({ status: 200, headers: {}, body });
    await start([entryOf('same', { isolate })], {
      shared: {
        ...offline.shared,
        httpClient: {
          ...offline.shared.httpClient,
          getFile: async () => answer(Buffer.from('a')),
          request: async (_method, _url, body) =>
            answer(Buffer.isBuffer(body) ? new Uint8Array(body) : Buffer.from('other')),
        },
      },
      tables: {
        ...offline.tables,
        run: (_module, _description, work) =>
          work({ dialect: 'sqlite', query: async () => [{ contents: Buffer.from('b') }] as never, run: async () => 0 }),
      },
    });
    const file = {
      sizeBytes: 1,
      mediaType: 'text/plain',
      async *stream() {
        yield Buffer.from('c');
      },
    };
    expect(await host.dispatcher.gate('checkMediaFileForSpam', context, file, { fileId: 'f' } as never)).toMatchObject({
      message: 'a,b,c,Uint8Array',
    });
    const lines = await eventually(() => {
      const odd = log.lines.filter(({ message }) => message === 'Odd');
      return odd.length === 2 && odd;
    });
    expect(lines.map(({ level, fields }) => [level, fields['module']])).toEqual([
      ['info', 'same'],
      ['warn', 'same'],
    ]);
    const asked = await host.dispatcher.answerWeb(new Request('https://example.org/_synapse/client/same'), {
      ip: '192.0.2.1',
    });
    expect(await asked.text()).toBe('first');
  },
);

it('answers web requests, body and answer as streams', async () => {
  write(
    'pages',
    `api.registerWebResource('/_synapse/client/pages/:name', async (request, { params, ip }) => {
      const given = await request.text();
      const parts = [params.name, ' ', ip, ' ', request.headers.get('x-test'), ' ', given];
      const body = new ReadableStream({ pull(c) { const p = parts.shift(); p === undefined ? c.close() : c.enqueue(new TextEncoder().encode(p)); } });
      return new Response(body, { status: 201, headers: { 'x-made': 'yes' } });
    })`,
  );
  await start([entryOf('pages')]);
  const request = new Request('https://example.org/_synapse/client/pages/one', {
    ...{ method: 'POST', body: 'hello', headers: { 'x-test': 'tested' } },
  });
  const answer = await host.dispatcher.answerWeb(request, { ip: '192.0.2.1' });
  expect(answer.status).toBe(201);
  expect(answer.headers.get('x-made')).toBe('yes');
  expect(await answer.text()).toBe('one 192.0.2.1 tested hello');
});

it.each([
  ['an endless loop', 'for (;;);', 'no sign of life'],
  ['an endless loop of promises', 'return (async () => { for (;;) await null; })();', 'no sign of life'],
  ['a regular expression', `return /^(a+)+$/.test('a'.repeat(40) + '!') ? NOT_SPAM : NOT_SPAM;`, 'no sign of life'],
  ['a leak', 'const kept = []; for (;;) kept.push(new Array(10_000).fill(kept.length));', 'memory limit of 32 MiB'],
  [
    'a leak of buffers',
    'globalThis.kept = []; return new Promise((r) => setInterval(() => kept.push(Buffer.alloc(8_000_000, 1)), 5));',
    'memory limit of 32 MiB',
  ],
  ['the end of the process', 'process.exit(3);', 'process.exit(3)'],
])(
  'goes on after %s, says which module and why, and the next question is answered',
  async (_, code, reason) => {
    write(
      'hostile',
      `api.registerSpamCheckerCallbacks({ userMayJoinRoom(userId) { if (userId === '@bad:example.org') { ${code} } return NOT_SPAM; } })`,
    );
    write('good', `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM })`);
    // What ends otherwise is not to be taken for silent on a busy machine.
    const limits = { timeLimitMs: reason === 'no sign of life' ? 400 : 60_000, memoryLimitBytes: 33_554_432 };
    await start([entryOf('hostile', limits), entryOf('good')]);
    expect(await joining()).toMatchObject({ allowed: true });
    expect(await joining('@bad:example.org')).toMatchObject({ status: 500, module: 'hostile', failed: true });
    const ended = await said('The thread of a module has ended; another one takes its place');
    expect(ended).toMatchObject({ module: 'hostile', reason: expect.stringContaining(reason) as string });
    // Answered by the thread that takes its place.
    await eventually(async () => {
      const verdict = await joining();
      if (!verdict.allowed) expect(verdict).toMatchObject({ module: 'hostile', failed: true });
      return verdict.allowed;
    });
  },
  180_000,
);

it('does not take a sleep of the machine for silence', async () => {
  write(
    'busy',
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom() { const end = Date.now() + 2_500; while (Date.now() < end); return NOT_SPAM; } })`,
  );
  await start([entryOf('busy', { timeLimitMs: 8_000 })]);
  const now = performance.now.bind(performance);
  let sleptMs = 0;
  // It sleeps before each look, while the thread has not answered yet.
  const slept = jest.spyOn(performance, 'now').mockImplementation(() => now() + (sleptMs += 10_000));
  try {
    expect(await joining()).toMatchObject({ allowed: true });
  } finally {
    slept.mockRestore();
  }
});

it('lets on_error decide what becomes of what a thread was asked when it ended', async () => {
  write('exits', `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => process.exit(1) })`);
  await start([entryOf('exits', { onError: 'allow' })]);
  expect(await joining()).toMatchObject({ allowed: true });
});

it('is not reached by what a module patches', async () => {
  write(
    'patches',
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => {
      JSON.stringify = () => 'patched';
      Date.now = () => 0;
      globalThis.fetch = null;
      return { errcode: Codes.FORBIDDEN, message: JSON.stringify(1) };
    } })`,
  );
  await start([entryOf('patches')]);
  expect(await joining()).toMatchObject({ message: 'patched' });
  expect(JSON.stringify(1)).toBe('1');
  expect(Date.now()).toBeGreaterThan(0);
  expect(fetch).toBeInstanceOf(Function);
});

it('says what escaped, and goes on', async () => {
  write(
    'escapes',
    `setTimeout(() => { throw new Error('from a timer'); }, 1);
    api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM })`,
  );
  await start([entryOf('escapes')]);
  const escaped = await said('A module threw where nobody could catch it');
  expect(escaped).toMatchObject({ module: 'escapes', err: { message: 'from a timer' } });
  expect(await joining()).toMatchObject({ allowed: true });
});

it.each([
  ['hangs while it is imported', '', 'for (;;);', /did not finish loading|no sign of life/],
  ['ends the process while it is imported', '', 'process.exit(1);', /process\.exit\(1\)/],
  ['fails', `throw new Error('broken')`, '', /register\(\) failed: broken/],
  [
    'has a wrong setting',
    '',
    `parseConfig() { throw new ConfigError('expected words', ['words', 0], [{ message: 'nor this', path: ['a'] }]); },`,
    /^homeserver\.yaml:7\/config\/words\/0: module wrong: config\.words\[0\]: expected words; homeserver\.yaml:7\/config\/a: config\.a: nor this$/,
  ],
  [
    'registers what there is not',
    'api.registerSpamCheckerCallbacks({ userMayJoin: () => NOT_SPAM })',
    '',
    /userMayJoin is no callback/,
  ],
])('refuses one that %s', async (_, register, more, problem) => {
  write('wrong', register, more);
  await expect(start([entryOf('wrong', { timeLimitMs: 300 })])).rejects.toThrow(problem);
});

it('asks several in threads at once, and lets the first refusal in the order of the settings count', async () => {
  const refusing = (name: string): void =>
    write(
      name,
      `api.registerSpamCheckerCallbacks({ async userMayJoinRoom() { return { errcode: Codes.FORBIDDEN, message: '${name}' }; } })`,
    );
  write(
    'first',
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom: async () => { await api.sleep(20); return NOT_SPAM; } })`,
  );
  refusing('second');
  refusing('third');
  await start(['first', 'second', 'third'].map((name) => entryOf(name)));
  expect(await joining()).toMatchObject({ message: 'second', module: 'second' });
});

it('does what a callback begins for the request that it was asked for, whatever it was asked meanwhile', async () => {
  write(
    'slow',
    `api.registerSpamCheckerCallbacks({ async userMayJoinRoom(userId) {
      await api.store.put(userId + ' begins', 1);
      await api.sleep(20);
      await api.store.put(userId + ' ends', 1);
      return NOT_SPAM;
    } })`,
  );
  const puts: [key: string, requestId: string | undefined][] = [];
  class Documents extends MemoryDocuments {
    override put(module: string, key: string, json: string): Promise<void> {
      puts.push([key, LogContext.current()?.requestId]);
      return super.put(module, key, json);
    }
  }
  await start([entryOf('slow')], { documents: new Documents() });
  await Promise.all(['one', 'two', 'three'].map((id) => LogContext.run({ requestId: id }, () => joining(id))));
  expect(puts.toSorted()).toEqual([
    ...[
      ['one begins', 'one'],
      ['one ends', 'one'],
    ],
    ...[
      ['three begins', 'three'],
      ['three ends', 'three'],
    ],
    ...[
      ['two begins', 'two'],
      ['two ends', 'two'],
    ],
  ]);
});

it('blames the one that hangs alone, and counts what those beside it said', async () => {
  for (const name of ['first', 'third'])
    write(name, `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM })`);
  write('second', `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => new Promise(() => {}) })`);
  const names = ['first', 'second', 'third'];
  await start(
    names.map((name) => entryOf(name, { timeLimitMs: 1_000, onError: name === 'second' ? 'allow' : 'deny' })),
  );
  expect(await joining()).toMatchObject({ allowed: true });
  const late = log.lines.filter(({ message }) => message === 'A module did not answer in time');
  expect(late).toMatchObject([{ fields: { module: 'second' } }]);
});

it('goes on with what is its own, and hears of other calls, while it is asked again and again', async () => {
  write(
    'asked',
    `let [ticks, asked] = [0, 0];
    setInterval(() => ticks++, 1);
    api.registerWebResource('/_synapse/client/asked', () => Response.json({ ticks, asked }));
    api.registerSpamCheckerCallbacks({ async userMayJoinRoom() { asked++; return NOT_SPAM; } });`,
  );
  await start([entryOf('asked')]);
  let isOver = false;
  const asking = (async () => {
    while (!isOver) expect(await joining()).toMatchObject({ allowed: true });
  })();
  await eventually(async () => {
    const answer = await host.dispatcher.answerWeb(new Request('https://x/_synapse/client/asked'));
    const { ticks, asked } = (await answer.json()) as { ticks: number; asked: number };
    return ticks > 20 && asked > 200;
  });
  isOver = true;
  await asking;
  const [report] = await host.dispatcher.report();
  expect(report?.thread?.busy).toBeLessThanOrEqual(1);
});

it('brings new code by a reload, and leaves a thread alone whose entry and code are the same', async () => {
  const saying = (message: string): void =>
    write(
      'one',
      `let n = 0; api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => ({ errcode: Codes.FORBIDDEN, message: '${message} ' + ++n }) })`,
    );
  saying('before');
  const entries = [entryOf('one')];
  await start(entries);
  expect(await joining()).toMatchObject({ message: 'before 1' });
  expect(await host.reload(entries)).toMatchObject({ kept: ['one'], changed: [] });
  expect(await joining()).toMatchObject({ message: 'before 2' });
  saying('behind it');
  expect(await host.reload(entries)).toMatchObject({ changed: ['one'] });
  expect(await joining()).toMatchObject({ message: 'behind it 1' });
  write('one', `throw new Error('no')`);
  await expect(host.reload(entries)).rejects.toThrow('register() failed: no');
  expect(await joining()).toMatchObject({ message: 'behind it 2' });
});

it('loses nothing by a reload: the old thread answers what it was asked, providers go on in the new one', async () => {
  const code = (message: string): string =>
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom: async () => { await api.sleep(300); return { errcode: Codes.FORBIDDEN, message: '${message}' }; } });
    api.registerMediaStorageProvider('one', () => ({ storeFile: async () => {}, fetch: async () => [Buffer.from('${message}')].values() }))`;
  write('one', code('before'));
  await start([entryOf('one')]);
  const provider = host.dispatcher.provider('mediaStorage', 'one')!.create({}, mediaSettings);
  const asked = joining();
  write('one', code('behind it'));
  await host.reload([entryOf('one')]);
  expect(await asked).toMatchObject({ message: 'before' });
  expect(await joining()).toMatchObject({ message: 'behind it' });
  expect(await storedIn(provider)).toBe('behind it');
});

it.each<[what: string, more: Partial<ModuleEntry> | undefined, says: string | undefined]>([
  ['removes the module', undefined, undefined],
  ['takes it out of its thread', { isolate: undefined }, 'second'],
  ['has it provide nothing', {}, 'third'],
])('keeps providers in use by a reload that %s', async (_, more, says) => {
  const judge = (words: string): string =>
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => ({ errcode: Codes.FORBIDDEN, message: '${words}' }) });`;
  const whole = (words: string): string =>
    `${judge(words)} api.registerMediaStorageProvider('one', () => ({ storeFile: async () => {}, fetch: async () => [Buffer.from('${words}')].values() }))`;
  write('one', whole('first'));
  await start([entryOf('one')]);
  const provider = host.dispatcher.provider('mediaStorage', 'one')!.create({}, mediaSettings);
  const stored = (): Promise<string> => storedIn(provider);
  expect(await stored()).toBe('first');
  write('one', whole('second'));
  await host.reload([entryOf('one')]);
  if (says === 'third') {
    expect(await stored()).toBe('second');
    write('one', judge('third'));
  }
  const { keptProviders } = await host.reload(more ? [entryOf('one', more)] : []);
  expect(keptProviders).toEqual([{ module: 'one', provider: 'one' }]);
  expect(await stored()).toBe('second');
  if (says !== undefined) expect(await joining()).toMatchObject({ message: says });
  await host.stop();
  await expect(stored()).rejects.toThrow('has ended');
});

it('goes on in what a reload has put in the place of a thread that ended, also when its next try would have been', async () => {
  const clock = new FakeClock();
  host = new ModuleHost({ clock, logger: log, configDir: folder });
  const code = (says: string): string =>
    `api.registerMediaStorageProvider('one', () => ({
      storeFile: async (path) => void (path === 'end' && process.exit(3)),
      fetch: async () => [Buffer.from('${says}')].values(),
    }))`;
  write('one', code('before'));
  await start([entryOf('one')]);
  const provider = host.dispatcher.provider('mediaStorage', 'one')!.create({}, mediaSettings);
  const stored = (): Promise<string> => storedIn(provider);
  const ends = (): number => log.messages('error').filter((message) => message.includes('takes its place')).length;
  for (const count of [1, 2]) {
    await expect(provider.storeFile('end', file, '/nowhere')).rejects.toThrow('has ended');
    await eventually(() => ends() === count);
    if (count === 1) expect(await stored()).toBe('before');
  }
  write('one', code('behind it'));
  await host.reload([entryOf('one')]);
  expect(await stored()).toBe('behind it');
  await clock.advance(60_000);
  expect(await stored()).toBe('behind it');
});

it('makes providers in the thread', async () => {
  write(
    'stores',
    `const files = new Map();
    api.registerMediaStorageProvider('memory', ({ prefix }, { serverName }) => ({
      async storeFile(path, info) { files.set(prefix + path, info.fileId + ' of ' + serverName); },
      async fetch(path) {
        const found = files.get(prefix + path);
        return found === undefined ? undefined : (async function* () { yield new TextEncoder().encode(found); yield new Uint8Array([33]); })();
      },
      downloadUrl: async (path, info, { contentType }) => files.has(prefix + path) ? 'https://files.example/' + path + '?' + contentType : undefined,
    }))`,
  );
  await start([entryOf('stores')]);
  const provider = host.dispatcher.provider('mediaStorage', 'memory')!.create({ prefix: 'p/' }, mediaSettings);
  const info = file;
  await provider.storeFile('a', info, '/nowhere');
  const parts: Uint8Array[] = [];
  for await (const part of (await provider.fetch('a', info))!) parts.push(part);
  expect(Buffer.concat(parts).toString()).toBe('f1 of example.org!');
  expect(await provider.fetch('b', info)).toBeUndefined();
  const headers = { contentType: 'text/plain', contentDisposition: 'inline' };
  expect(await provider.downloadUrl?.('a', info, headers)).toBe('https://files.example/a?text/plain');
  expect(await provider.downloadUrl?.('b', info, headers)).toBeUndefined();
  await provider.remove?.('a', info);
});

it('tells what a provider in the thread is refused with, and makes it anew afterwards', async () => {
  write(
    'stores',
    `let made = 0;
    api.registerMediaStorageProvider('late', ({ from }) => {
      if (++made < from) throw new ConfigError('not yet', ['from']);
      return { storeFile: async () => {}, fetch: async () => undefined };
    })`,
  );
  await start([entryOf('stores')]);
  const provider = host.dispatcher.provider('mediaStorage', 'late')!.create({ from: 2 }, mediaSettings);
  const info = file;
  await expect(providerParts(provider)).rejects.toMatchObject({ message: 'not yet', path: ['from'] });
  expect(Object.keys(await providerParts(provider)).sort()).toEqual(['fetch', 'storeFile']);
  await provider.storeFile('a', info, '/nowhere');
});

it('checks passwords and tells of the login afterwards', async () => {
  write(
    'auth',
    `api.registerPasswordAuthProviderCallbacks({ authCheckers: [{ loginType: 'm.login.password', fields: ['password'],
      check: (username, type, { password }) => password === 'right'
        ? { userId: '@' + username + ':example.org', onLogin: (response) => api.store.put('login', response.device_id) } : undefined }] });
    api.registerSpamCheckerCallbacks({ userMayJoinRoom: async () => ({ errcode: Codes.FORBIDDEN, message: String(await api.store.get('login')) }) })`,
  );
  await start([entryOf('auth')]);
  expect(await host.dispatcher.checkAuth(context, 'ann', 'm.login.password', { password: 'wrong' })).toBeUndefined();
  const success = await host.dispatcher.checkAuth(context, 'ann', 'm.login.password', { password: 'right' });
  expect(success?.userId).toBe('@ann:example.org');
  await success?.onLogin?.({ device_id: 'DEV' });
  expect(await joining()).toMatchObject({ message: 'DEV' });
});

describe('with a manifest', () => {
  const manifest = {
    callbacks: ['userMayJoinRoom'],
    hosts: ['127.0.0.2'],
    secrets: ['ROOKERY_TEST_SECRET'],
    settings: ['words'],
  };
  const packed = (register: string, rookery: unknown = manifest): void => {
    write('held', register);
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'held', type: 'module', rookery }));
  };
  const answers = (code: string): string =>
    `api.registerSpamCheckerCallbacks({ userMayJoinRoom: async () => ({ errcode: Codes.FORBIDDEN, message: String(await (${code})) }) })`;

  it.each([
    [
      'a callback',
      'api.registerSpamCheckerCallbacks({ userMayInvite: () => NOT_SPAM })',
      /does not name the callback userMayInvite/,
    ],
    [
      'tables',
      `await api.migrate([{ name: 'one', sql: ['CREATE TABLE module_held_x (a TEXT)'] }])`,
      /does not name any table/,
    ],
    ['a child process', `await import('node:child_process')`, /cannot use node:child_process/],
  ])('does not come into service when it uses %s that is not named', async (_, register, problem) => {
    packed(register);
    await expect(start([entryOf('held')])).rejects.toThrow(problem);
  });

  it.each([
    ['fetch', `fetch('http://127.0.0.3:59999/').catch((e) => e.cause.message)`, /does not name the host 127\.0\.0\.3/],
    [
      'fetch of a host that is named',
      `fetch('http://127.0.0.2:59999/').catch((e) => e.cause.message)`,
      /ECONNREFUSED|fetch/,
    ],
    [
      'a socket',
      `import('node:net').then((net) => new Promise((r) => net.connect(1, '127.0.0.3').on('error', (e) => r(e.message))))`,
      /does not name the host 127\.0\.0\.3/,
    ],
    [
      'a socket to a host that is named',
      `import('node:net').then((net) => new Promise((r) => net.connect(1, '127.0.0.2').on('error', (e) => r(e.message))))`,
      /ECONNREFUSED/,
    ],
    [
      'the HTTP client',
      `api.httpClient.getJson('http://other.example/').catch((e) => e.message)`,
      /does not name the host other\.example/,
    ],
    [
      'the environment',
      'String(process.env.ROOKERY_TEST_SECRET) + String(process.env.ROOKERY_TEST_OTHER)',
      /^known undefined$/,
    ],
  ])('is held to it by %s', async (_, code, message) => {
    process.env['ROOKERY_TEST_SECRET'] = 'known ';
    process.env['ROOKERY_TEST_OTHER'] = 'unknown';
    packed(answers(code));
    await start([entryOf('held')]);
    expect(await joining()).toMatchObject({
      errcode: 'M_FORBIDDEN',
      message: expect.stringMatching(message) as string,
    });
  });

  it('takes the settings that it names, and no others', async () => {
    packed(answers('1'));
    await expect(start([entryOf('held', { config: { wrods: [] } })])).rejects.toThrow(
      'homeserver.yaml:7/config/wrods: module ./held.mjs: its manifest does not name the setting wrods; it takes words',
    );
  });

  it.each([[{ callback: [] }], [{ callbacks: 'all' }], [{ callbacks: ['userMayFly'] }], [7]])(
    'has to be one: %j',
    async (rubbish) => {
      packed(answers('1'), rubbish);
      await expect(start([entryOf('held')])).rejects.toThrow(/package\.json: rookery/);
    },
  );
});

it.each([
  ['that keep nothing awake', '.unref()'],
  ['that keep it awake', ''],
])('lets timers %s run while it is asked without a pause', async (_, unref) => {
  write(
    'ticking',
    `let ticks = 0;
    setInterval(() => ticks++, 2)${unref};
    api.registerSpamCheckerCallbacks({
      userMayJoinRoom: (userId) => userId === '@count:example.org' ? { errcode: Codes.FORBIDDEN, message: String(ticks) } : NOT_SPAM,
    })`,
  );
  await start([entryOf('ticking')]);
  const ticks = async (): Promise<number> =>
    Number(((await joining('@count:example.org')) as { readonly message?: string }).message);
  // Rest is for those who are asked often, from the second question on.
  for (let i = 0; i < 10; i++) await joining();
  const before = await ticks();
  const endMs = performance.now() + 500;
  while (performance.now() < endMs) await joining();
  expect((await ticks()) - before).toBeGreaterThan(5);
});

it('lets a module that is taken out of service end what it began, before its thread ends', async () => {
  const file = join(folder, 'ended');
  write(
    'ending',
    `const { writeFileSync } = await import('node:fs');
    api.onStop(async () => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      writeFileSync(config.file, 'whole');
    });`,
  );
  await start([entryOf('ending', { config: { file } })]);
  expect(await host.reload([])).toMatchObject({ removed: ['ending'] });
  await eventually(() => existsSync(file), 5_000);
  expect(log.lines.filter(({ level }) => level === 'error')).toEqual([]);
});

it('knows how long a thread waited for a processor, where the system tells', () => {
  const own = `/proc/self/task/${process.pid}/schedstat`;
  if (!existsSync(own)) return void expect(starvedMs(process.pid)).toBe(0);
  const waitedMs = (): number => Number(readFileSync(own, 'utf8').split(' ')[1]) / 1e6;
  const before = waitedMs();
  const told = starvedMs(process.pid);
  expect(told >= before && told <= waitedMs()).toBe(true);
  expect(starvedMs(0)).toBe(0);
});
