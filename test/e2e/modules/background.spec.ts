import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

describe.each(['sqlite', 'postgres'] as const)('time, numbers and memory of modules (%s)', (kind) => {
  let server: ProbeServer;
  beforeAll(async () => {
    const resources = [{ names: ['client', 'metrics'] }];
    server = await startProbe(kind, {
      enable_metrics: true,
      listeners: [{ port: 0, bind_addresses: ['127.0.0.1'], type: 'http', resources }],
    });
  });
  afterAll(() => server?.stop());

  it('calls again and again, later, and behind everybody’s back', async () => {
    const api = probe.api!;
    const happened: string[] = [];
    const loop = api.loopingBackgroundCall(() => void happened.push('loop'), 20, { description: 'a loop' });
    const off = api.delayedBackgroundCall(10, () => void happened.push('never'));
    off.cancel();
    api.delayedBackgroundCall(10, () => void happened.push('delayed'));
    api.runAsBackgroundProcess('now', () => {
      happened.push('now');
      throw new Error('logged and nothing else');
    });
    const before = api.getCurrentTimeMsec();
    await api.sleep(100);
    expect(api.getCurrentTimeMsec() - before).toBeGreaterThanOrEqual(95);
    await eventually(() => ['now', 'delayed', 'loop'].every((one) => happened.includes(one)));
    loop.cancel();
    expect(happened).not.toContain('never');
    const count = happened.length;
    await api.sleep(60);
    expect(happened.length).toBe(count);
  });

  it('repeats a job of its schedule until that is called off', async () => {
    let runs = 0;
    const call = probe.api!.scheduler.every('tick', 1_000, () => void runs++);
    await eventually(() => (runs >= 2 ? true : undefined));
    call.cancel();
    const before = runs;
    await probe.api!.sleep(1_300);
    expect(runs).toBe(before);
    expect(() => probe.api!.scheduler.every('tock', 10, () => {})).toThrow(RangeError);
    expect(() => probe.api!.scheduler.handle('late', () => {})).toThrow('called too late');
  });

  it('remembers answers until they are to be forgotten', async () => {
    let asked = 0;
    const lookUp = probe.api!.registerCachedFunction('names', async (key) => `${key} ${++asked}`);
    expect([await lookUp('a'), await lookUp('a'), await lookUp('b')]).toEqual(['a 1', 'a 1', 'b 2']);
    await probe.api!.invalidateCache('names', 'a');
    expect([await lookUp('a'), await lookUp('b')]).toEqual(['a 3', 'b 2']);
  });

  it('shows numbers of its own', async () => {
    const { metrics } = probe.api!;
    metrics.counter('seen_total', 'Seen.', ['kind']).inc({ kind: 'bird' }, 3);
    metrics.gauge('nests', 'Nests.').set(2);
    metrics.histogram('eggs', 'Eggs.', [], [1, 5]).observe(4);
    const text = await (await fetch(`${server.baseUrl}/_synapse/metrics`)).text();
    expect(text).toMatch(/rookery_module_probe_seen_total\{kind="bird".*\} 3/);
    expect(text).toMatch(/rookery_module_probe_nests\{.*\} 2/);
    expect(text).toMatch(/rookery_module_probe_eggs_bucket\{le="5".*\} 1/);
  });

  it('is told when its time is over, and registers no more', async () => {
    let ended = false;
    probe.api!.onStop(async () => {
      await probe.api!.store.put('last words', 'bye');
      ended = true;
    });
    probe.api!.log.info('A module says something', { kind });
    expect(() => probe.api!.registerSpamCheckerCallbacks({})).toThrow('called too late');
    await server.restart();
    expect(ended).toBe(true);
    expect(await probe.api!.store.get('last words')).toBe('bye');
  });

  it('asks modules of the same server, and hears of those that do not answer', async () => {
    const { messages } = probe.api!;
    expect(await messages.ask('probe', 'echo', { n: 1 })).toEqual({ payload: { n: 1 }, from: 'probe' });
    await expect(messages.ask('probe', 'nothing')).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
    await expect(messages.ask('nobody', 'echo')).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
  });

  it('every method there is appears in these tests', () => {
    const texts = [import.meta.dirname, join(import.meta.dirname, 'fixtures')]
      .flatMap((folder) => readdirSync(folder, { withFileTypes: true }).map(({ name }) => join(folder, name)))
      .filter((path) => path.endsWith('.ts'))
      .map((path) => readFileSync(path, 'utf8'))
      .join('\n');
    const names = Object.entries(probe.api!).flatMap(([name, value]) =>
      typeof value === 'object' && value !== null && name !== 'log' ? Object.keys(value as object) : [name],
    );
    const missing = names.filter((name) => !new RegExp(`\\b${name}\\b`).test(texts));
    // Providers are wired with single sign-on and media; signed requests with federation.
    const later = [
      ...['registerIdentityProvider', 'registerMediaStorageProvider'],
      ...['registerOidcMappingProvider', 'registerSamlMappingProvider'],
    ];
    expect(missing.filter((name) => !later.includes(name))).toEqual([]);
  });
});
