import { MatrixError } from '@rookery/matrix-types';
import { eventually } from '@rookery/testing';
import { defineModule, Codes, type ModuleApi, NOT_SPAM, type RookeryModule } from '@rookery/module-api';
import { Metrics, SilentLogger, SystemClock } from '@rookery/platform';
import { callbackContext } from './context.js';
import { ModuleHost } from './host.js';
import type { LoadedModule, ModuleEntry } from './loader.js';
import { offlineCapabilities } from './offline.js';

const capabilities = offlineCapabilities({ serverName: 'example.org' });
const context = callbackContext(undefined);

function hostWith(metrics?: Metrics): ModuleHost {
  return new ModuleHost({
    clock: new SystemClock(),
    logger: new SilentLogger(),
    configDir: '/nowhere',
    ...(metrics ? { metrics } : {}),
  });
}

function loaded(definition: RookeryModule, entry: Partial<ModuleEntry> = {}): LoadedModule {
  const full: ModuleEntry = {
    module: definition.name,
    config: undefined,
    onError: 'deny',
    timeLimitMs: undefined,
    allowFederationTo: [],
    where: () => 'homeserver.yaml:3',
    ...entry,
  };
  const url = `file:///${definition.name}.js`;
  return {
    entry: full,
    definition,
    config: definition.parseConfig(full.config),
    url,
    owner: { name: definition.name },
    warnings: [],
  };
}

const module = (name: string, register: (api: ModuleApi, config: unknown) => void | Promise<void>): RookeryModule =>
  defineModule<unknown>({ name, parseConfig: (raw) => raw, register });

const join = (host: ModuleHost): Promise<unknown> =>
  host.dispatcher.gate('userMayJoinRoom', context, '@a:example.org', '!r:example.org', false);

/** Refuses joins with a message. */
const refusing = (name: string, message: string): RookeryModule =>
  module(name, (api) =>
    api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => ({ errcode: Codes.FORBIDDEN, message }) }),
  );

it('ends a sign-on by the deprecated name, too, and says once what to write', async () => {
  const warnings: string[] = [];
  class Said extends SilentLogger {
    override warn(message = ''): void {
      warnings.push(message);
    }
    override child(): this {
      return this;
    }
  }
  const host = new ModuleHost({ clock: new SystemClock(), logger: new Said(), configDir: '/nowhere' });
  const given: unknown[] = [];
  const completeSsoLoginAsync = async (...args: unknown[]): Promise<Response> => {
    given.push(args);
    return new Response('done');
  };
  let api: ModuleApi | undefined;
  await host.start([loaded(module('old', (own) => void (api = own)))], {
    ...capabilities,
    shared: { ...capabilities.shared, completeSsoLoginAsync },
  });
  const request = new Request('https://example.org/');
  for (let i = 0; i < 2; i++) {
    const answer = await api?.completeSsoLogin('@a:example.org', request, 'https://client.example/');
    expect(await answer?.text()).toBe('done');
  }
  expect(given).toEqual(Array.from({ length: 2 }, () => ['@a:example.org', request, 'https://client.example/']));
  expect(warnings).toEqual(['completeSsoLogin is deprecated: use completeSsoLoginAsync']);
});

it('registers modules in order and puts them in force together', async () => {
  const host = hostWith();
  const order: string[] = [];
  const noting = (name: string): RookeryModule =>
    module(name, async (api) => {
      order.push(`${name} begins`);
      expect(host.dispatcher.has('userMayJoinRoom')).toBe(false);
      await Promise.resolve();
      api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM });
      order.push(`${name} ends`);
    });
  await host.start([loaded(noting('one')), loaded(noting('two'))], capabilities);
  expect(order).toEqual(['one begins', 'one ends', 'two begins', 'two ends']);
  expect(host.dispatcher.modules).toEqual(['one', 'two']);
  expect(await join(host)).toMatchObject({ allowed: true });
});

it.each([
  [
    'throws',
    () => {
      throw new Error('no database');
    },
    'homeserver.yaml:3: module m: register() failed: no database',
  ],
  [
    'rejects',
    async () => {
      throw new Error('later');
    },
    'homeserver.yaml:3: module m: register() failed: later',
  ],
  [
    'registers nonsense',
    (api: ModuleApi) => api.registerSpamCheckerCallbacks({ nonsense: () => {} } as never),
    'homeserver.yaml:3: module m: nonsense is no callback',
  ],
])('refuses a module that %s, and stops what had begun', async (_, register, message) => {
  const host = hostWith();
  const stopped: string[] = [];
  const good = module('good', (api) => api.onStop(() => void stopped.push('good')));
  const bad = module('m', (api) => {
    api.onStop(() => void stopped.push('m'));
    return register(api);
  });
  await expect(host.start([loaded(good), loaded(bad)], capabilities)).rejects.toThrow(message);
  expect(host.dispatcher.modules).toEqual([]);
  expect(stopped).toEqual(['m', 'good']);
});

it('takes no registration after register() has ended, and what is registered stays', async () => {
  const host = hostWith();
  let late: ModuleApi | undefined;
  await host.start([loaded(module('m', (api) => void (late = api)))], capabilities);
  expect(() => late?.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM })).toThrow(/too late/);
  expect(() => late?.registerWebResource('/_synapse/client/x', () => new Response())).toThrow(/too late/);
  expect(() => late?.scheduler.handle('x', () => {})).toThrow(/too late/);
  expect(host.dispatcher.has('userMayJoinRoom')).toBe(false);
});

it('gives each module a frozen API with its own documents', async () => {
  const host = hostWith();
  const apis: ModuleApi[] = [];
  const keep = (name: string): LoadedModule => loaded(module(name, (api) => void apis.push(api)));
  await host.start([keep('one'), keep('two')], capabilities);
  const [one, two] = apis as [ModuleApi, ModuleApi];
  expect(Object.isFrozen(one)).toBe(true);
  expect(one.moduleName).toBe('one');
  expect(one.getQualifiedUserId('alice')).toBe('@alice:example.org');

  await one.store.put('a/1', { list: [1] });
  await one.store.put('a/2', 'two');
  await two.store.put('a/1', 'other');
  expect(await one.store.get('a/1')).toEqual({ list: [1] });
  expect(await two.store.get('a/1')).toBe('other');
  expect(await one.store.list({ prefix: 'a/', limit: 1 })).toEqual([{ key: 'a/1', value: { list: [1] } }]);
  expect(await one.store.list({ prefix: 'a/', after: 'a/1' })).toEqual([{ key: 'a/2', value: 'two' }]);
  expect(Object.isFrozen(await one.store.get('a/1'))).toBe(true);
  const failing = one.store.transaction(async (tx) => {
    await tx.put('a/3', 1);
    throw new Error('undo');
  });
  await expect(failing).rejects.toThrow('undo');
  expect(await one.store.get('a/3')).toBeUndefined();
  expect(await one.store.delete('a/1')).toBe(true);
  expect(await one.store.delete('a/1')).toBe(false);
  expect(await two.store.get('a/1')).toBe('other');
  for (const key of ['', 'x'.repeat(256), 'nul\0']) await expect(one.store.put(key, 1)).rejects.toThrow(RangeError);
  await expect(one.store.put('k', undefined)).rejects.toThrow(TypeError);
  await expect(one.store.put('k', 'x'.repeat(262_144))).rejects.toThrow(RangeError);
});

it('sends signed requests only where the entry allows', async () => {
  const host = hostWith();
  let api: ModuleApi | undefined;
  const asked: string[] = [];
  const federation = {
    getJson: async (destination: string) => asked.push(destination),
    putJson: async () => undefined,
  };
  const keeping = loaded(
    module('m', (given) => void (api = given)),
    { allowFederationTo: ['friend.example'] },
  );
  await host.start([keeping], { ...capabilities, federation });
  await api?.federation.getJson('friend.example', '/_matrix/federation/v1/version');
  await expect(api?.federation.getJson('foe.example', '/_matrix/federation/v1/version')).rejects.toMatchObject({
    status: 403,
  });
  await expect(api?.federation.getJson('friend.example', '/_matrix/key/v2/server')).rejects.toThrow(RangeError);
  expect(asked).toEqual(['friend.example']);
});

it('remembers answers, forgets them when told, and never remembers failures', async () => {
  const host = hostWith();
  let loads = 0;
  let get: ((key: string) => Promise<number>) | undefined;
  let forget: ModuleApi['invalidateCache'] | undefined;
  const caching = module('m', (api) => {
    forget = (cache, key) => api.invalidateCache(cache, key);
    get = api.registerCachedFunction(
      'numbers',
      async (key) => {
        loads += 1;
        if (key === 'bad') throw new Error('bad');
        return loads;
      },
      { maxEntries: 2 },
    );
  });
  await host.start([loaded(caching)], capabilities);
  if (!get) throw new Error('not registered');
  expect([await get('a'), await get('a')]).toEqual([1, 1]);
  await forget?.('numbers', 'a');
  expect(await get('a')).toBe(2);
  await expect(get('bad')).rejects.toThrow('bad');
  await expect(get('bad')).rejects.toThrow('bad');
  expect(loads).toBe(4);
  await get('b');
  await get('c');
  expect(await get('a')).toBe(7);
});

it('measures calls by module, callback and outcome, and shows metrics of modules under their name', async () => {
  const metrics = new Metrics('example.org');
  const host = hostWith(metrics);
  const counting = module('my-module', (api) => {
    const counter = api.metrics.counter('seen_total', 'Seen.', ['kind']);
    api.registerSpamCheckerCallbacks({
      userMayJoinRoom() {
        counter.inc({ kind: 'join' });
        return NOT_SPAM;
      },
    });
  });
  await host.start([loaded(counting)], capabilities);
  await join(host);
  const { body } = await metrics.render();
  expect(body).toMatch(/rookery_module_my_module_seen_total\{[^}]*kind="join"[^}]*\} 1/);
  expect(body).toMatch(
    /rookery_module_callback_seconds_count\{(?=[^}]*module="my-module")(?=[^}]*callback="userMayJoinRoom")(?=[^}]*outcome="ok")[^}]*\} 1/,
  );
});

describe('web resources', () => {
  const ask = async (host: ModuleHost, path: string): Promise<[number, unknown]> => {
    const response = await host.dispatcher.answerWeb(new Request(`http://localhost${path}`));
    return [response.status, await response.json()];
  };
  it('answer by path and parameters; the first module has a path; errors become answers', async () => {
    const host = hostWith();
    const web = module('web', (api) => {
      api.registerWebResource('/_synapse/client/web/users/:name', (_, { params }) => Response.json(params));
      api.registerWebResource('/_synapse/client/web/files/*', (_, { params }) => Response.json(params));
      api.registerWebResource('/_synapse/client/web/broken', () => {
        throw new Error('secret');
      });
      api.registerWebResource('/_synapse/client/web/nothing', () => undefined as never);
    });
    const second = module('second', (api) =>
      api.registerWebResource('/_synapse/client/web/users/:other', () => Response.json('second')),
    );
    await host.start([loaded(web), loaded(second)], capabilities);
    expect(await ask(host, '/_synapse/client/web/users/a%20b?x=1')).toEqual([200, { name: 'a b' }]);
    expect(await ask(host, '/_synapse/client/web/files/a/b')).toEqual([200, { '*': 'a/b' }]);
    expect(await ask(host, '/_synapse/client/web/users/a/b')).toMatchObject([404, { errcode: 'M_UNRECOGNIZED' }]);
    expect(await ask(host, '/_synapse/client/web/users')).toMatchObject([404, { errcode: 'M_UNRECOGNIZED' }]);
    const broken = await ask(host, '/_synapse/client/web/broken');
    expect(broken).toMatchObject([500, { errcode: 'M_UNKNOWN' }]);
    expect(JSON.stringify(broken)).not.toContain('secret');
    expect(await ask(host, '/_synapse/client/web/nothing')).toMatchObject([500, { errcode: 'M_UNKNOWN' }]);
    expect(host.dispatcher.webPrefixes).toEqual([
      '/_synapse/client/web/users',
      '/_synapse/client/web/files',
      '/_synapse/client/web/broken',
      '/_synapse/client/web/nothing',
    ]);
  });

  it('hold as many bytes as their answer has, whatever pieces it came in', async () => {
    const host = hostWith();
    const pieces = [...Array.from({ length: 50 }, () => 34_000), 1, 65_536, 65_535, 0, 70_000, 3, 40_000];
    const web = module('web', (api) =>
      api.registerWebResource('/_synapse/client/web', () => {
        const left = [...pieces];
        return new Response(
          new ReadableStream({
            pull: (to) => (left.length === 0 ? to.close() : to.enqueue(new Uint8Array(left.shift()!))),
          }),
        );
      }),
    );
    await host.start([loaded(web)], capabilities);
    const gathered: number[] = [];
    const answer = await host.dispatcher.answerWeb(new Request('http://localhost/_synapse/client/web'), {
      gather: (bytes) => void gathered.push(bytes),
    });
    const buffers = new Set<ArrayBufferLike>();
    let size = 0;
    for await (const piece of answer.body!) {
      size += piece.length;
      buffers.add(piece.buffer);
    }
    const held = [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0);
    expect(gathered).toEqual(pieces);
    expect(size).toBe(pieces.reduce((sum, bytes) => sum + bytes, 0));
    expect(held).toBeLessThan(size + 65_536);
  });

  it('make a module wait for room, and give up where there is none', async () => {
    const host = hostWith();
    let made = 0;
    let cancelled = 0;
    const web = module('web', (api) =>
      api.registerWebResource(
        '/_synapse/client/web',
        () =>
          new Response(
            new ReadableStream(
              {
                pull: (to) => to.enqueue(new Uint8Array(++made)),
                cancel: () => void cancelled++,
              },
              { highWaterMark: 0 },
            ),
          ),
      ),
    );
    await host.start([loaded(web)], capabilities);
    const room: ((error: Error) => void)[] = [];
    const answer = host.dispatcher.answerWeb(new Request('http://localhost/_synapse/client/web'), {
      gather: (bytes) => (bytes < 3 ? undefined : new Promise((_, reject) => room.push(reject))),
    });
    for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect([made, room.length]).toEqual([3, 1]);
    room[0]!(MatrixError.limitExceeded(2_000));
    const { status, body } = await answer.then(async (given) => ({ status: given.status, body: await given.json() }));
    expect([status, body, made, cancelled]).toMatchObject([429, { errcode: 'M_LIMIT_EXCEEDED' }, 3, 1]);
  });

  it.each([
    '/_matrix/client/v3/x',
    '/_synapse/admin/v1/x',
    '/health',
    '/:all',
    '/*',
    'no-slash',
    '/a/*/b',
    '/a b',
    '/a/:x/:x',
    '/a?b',
    '/a#b',
    '/a%2fb',
    '//a/b',
    '/a//b',
    '/a/../_matrix/x',
    '/a/.',
    '/_synapse/mas/x',
    '/_synapse/client/oidc/callback',
    `/${'a'.repeat(200)}`,
    7 as never,
  ])('cannot be %s', async (path) => {
    const host = hostWith();
    const web = module('web', (api) => api.registerWebResource(path, () => new Response()));
    await expect(host.start([loaded(web)], capabilities)).rejects.toThrow(/module web: registerWebResource/);
  });
});

describe('background work', () => {
  it('ends with the module', async () => {
    const host = hostWith();
    let ran = 0;
    let slept = false;
    const working = module('m', (api) => {
      api.loopingBackgroundCall(() => void (ran += 1), 1, { runOnAllInstances: true });
      api.runAsBackgroundProcess('waiting', async () => {
        await api.sleep(60_000);
        slept = true;
      });
      api.runAsBackgroundProcess('failing', () => Promise.reject(new Error('logged')));
    });
    await host.start([loaded(working)], capabilities);
    await eventually(() => ran > 0);
    await host.stop();
    const before = ran;
    await new SystemClock().sleep(20);
    expect(ran).toBe(before);
    expect(slept).toBe(true);
    expect(host.dispatcher.modules).toEqual([]);
  });
});

it('a loop never overlaps itself, and what stops, stops the latest first', async () => {
  const host = hostWith();
  let running = 0;
  let most = 0;
  const order: string[] = [];
  const looping = module('m', (api) => {
    const work = async (): Promise<void> => {
      most = Math.max(most, ++running);
      await new SystemClock().sleep(10);
      running -= 1;
    };
    api.loopingBackgroundCall(work, 1, { runOnAllInstances: true });
    api.onStop(() => void order.push('first'));
    api.onStop(() => void order.push('second'));
  });
  await host.start([loaded(looping)], capabilities);
  await eventually(() => most > 0);
  await new SystemClock().sleep(40);
  await host.stop();
  expect(most).toBe(1);
  expect(order).toEqual(['second', 'first']);
});

describe('a reload', () => {
  /** A host whose imports are given by hand. */
  class HandHost extends ModuleHost {
    next: LoadedModule[] = [];
    override import(): Promise<LoadedModule[]> {
      return Promise.resolve(this.next);
    }
  }
  const handHost = (): HandHost =>
    new HandHost({ clock: new SystemClock(), logger: new SilentLogger(), configDir: '/nowhere' });

  it('adds, changes and removes, leaves the rest alone, and keeps the order', async () => {
    const host = handHost();
    const log: string[] = [];
    const noting = (name: string): RookeryModule =>
      module(name, (api, config) => {
        log.push(`${name} registers ${String(config)}`);
        api.onStop(() => void log.push(`${name} stops ${String(config)}`));
        api.registerSpamCheckerCallbacks({ userMayJoinRoom: () => NOT_SPAM });
        api.registerCachedFunction('cache', async () => 1);
      });
    const [same, changed, removed, added] = ['same', 'changed', 'removed', 'added'].map(noting) as [
      RookeryModule,
      RookeryModule,
      RookeryModule,
      RookeryModule,
    ];
    await host.start(
      [loaded(same, { config: 1 }), loaded(changed, { config: 1 }), loaded(removed, { config: 1 })],
      capabilities,
    );
    log.length = 0;
    host.next = [loaded(added, { config: 1 }), loaded(changed, { config: 2 }), loaded(same, { config: 1 })];
    expect(await host.reload([])).toEqual({
      added: ['added'],
      changed: ['changed'],
      removed: ['removed'],
      kept: ['same'],
      keptProviders: [],
    });
    expect(log).toEqual(['added registers 1', 'changed registers 2', 'removed stops 1', 'changed stops 1']);
    expect(host.dispatcher.modules).toEqual(['added', 'changed', 'same']);
  });

  it('names providers that stay what they were made', async () => {
    const host = handHost();
    const providing = module('files', (api) => api.registerMediaStorageProvider('bucket', () => ({}) as never));
    const other = module('other', (api) => api.registerOidcMappingProvider('map', () => ({}) as never));
    await host.start([loaded(providing, { config: 1 }), loaded(other)], capabilities);
    host.next = [loaded(providing, { config: 2 }), loaded(other)];
    expect(await host.reload([])).toMatchObject({ keptProviders: [{ module: 'files', provider: 'bucket' }] });
    host.next = [];
    const removed = await host.reload([]);
    expect(removed.keptProviders.map(({ provider }) => provider)).toEqual(['bucket', 'map']);
  });

  it('that fails leaves everything as it was', async () => {
    const host = handHost();
    let oldStopped = false;
    const steady = loaded(module('steady', (api) => api.onStop(() => void (oldStopped = true))));
    const old = loaded(refusing('m', 'old'));
    await host.start([old, steady], capabilities);
    let stopped = false;
    const fresh = module('fresh', (api) => api.onStop(() => void (stopped = true)));
    host.next = [steady, loaded(fresh), loaded(module('broken', () => Promise.reject(new Error('no'))))];
    await expect(host.reload([])).rejects.toThrow('homeserver.yaml:3: module broken: register() failed: no');
    expect([stopped, oldStopped]).toEqual([true, false]);
    expect(host.dispatcher.modules).toEqual(['m', 'steady']);
    expect(await join(host)).toMatchObject({ message: 'old' });
    host.next = [old];
    expect(await host.reload([])).toMatchObject({ kept: ['m'] });
  });
});
