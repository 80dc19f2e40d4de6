import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { Config } from '@rookery/platform';
import {
  createTestHomeserver,
  eventually,
  freePort,
  makeTestAuthority,
  RecordingLogger,
  type TestHomeserver,
  type TestUser,
} from '@rookery/testing';
import { churn } from './fixtures/churn.js';

const module = join(import.meta.dirname, 'fixtures/churn.ts');

describe.each(['sqlite', 'postgres'] as const)('reloads while the server is used (%s)', (kind) => {
  let server: TestHomeserver;
  let ann: TestUser;
  let roomId: string;
  const logger = new RecordingLogger();
  const entry = (instance: number, more: object = {}): object => ({ module, config: { instance, ...more } });
  const settings = (...modules: object[]): Config =>
    Config.fromObject(
      // Limits are taken over as well.
      { server_name: 'rookery.test', report_stats: false, modules, rc_message: { per_second: 1e5, burst_count: 1e5 } },
      { configDir: process.cwd() },
    );

  beforeAll(async () => {
    churn.live.clear();
    for (const list of [churn.told, churn.asked, churn.jobs, churn.loops]) list.length = 0;
    const listener = {
      port: await freePort(),
      bind_addresses: ['127.0.0.1'],
      type: 'http',
      resources: [{ names: ['client', 'metrics'] }],
    };
    server = await createTestHomeserver({
      ...{ database: kind, logger },
      settings: { modules: [entry(0)], enable_metrics: true, presence: { enabled: false }, listeners: [listener] },
    });
    ann = await server.registerUser('ann');
    roomId = (await ann.request<{ room_id: string }>('POST', '/createRoom', {})).body.room_id;
  });
  afterAll(() => server?.stop());

  const say = (body: string): ReturnType<TestUser['request']> =>
    ann.request('PUT', `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${body}`, { msgtype: 'm.text', body });

  it('nothing is doubled, lost or left over after fifty of them', async () => {
    const { body: first } = await ann.request('GET', '/sync');
    // Woken by nothing that happens in rooms.
    const waiting = ann.request(
      'GET',
      `/sync?timeout=600000&since=${String(first['next_batch'])}&filter=${encodeURIComponent('{"room":{"rooms":[]}}')}`,
    );
    let on = true;
    const sent: string[] = [];
    const answers: number[] = [];
    const talk = async (): Promise<void> => {
      while (on) {
        const body = `m${sent.length}`;
        sent.push(body);
        answers.push((await say(body)).status, (await server.request('GET', '/_synapse/client/churn')).status);
        await wait(2);
      }
    };
    const talking = talk();
    for (let instance = 1; instance <= 50; instance++) await server.server.reload(settings(entry(instance)));
    on = false;
    await talking;
    expect(new Set(answers)).toEqual(new Set([200]));
    expect([...churn.live]).toEqual([50]);
    // Asked once each, and told once each, by whichever instance was in force.
    expect(churn.asked.map(({ body }) => body).sort()).toEqual([...sent].sort());
    await eventually(() => churn.told.length >= sent.length);
    expect(churn.told.map(({ body }) => body).sort()).toEqual([...sent].sort());
    expect((await server.request('GET', '/_synapse/client/churn')).body).toBe(50);
    expect((await server.request('GET', '/_synapse/client/churn-49')).status).toBe(404);
    const page = await (await fetch(`${server.baseUrl}/_synapse/metrics`)).text();
    expect(page.match(/^rookery_module_churn_seen_total\{.*\} \d+$/gm)).toEqual([
      expect.stringMatching(` ${sent.length}$`),
    ]);
    // Only the last one's loop and jobs go on.
    churn.loops.length = churn.jobs.length = 0;
    await eventually(() => churn.loops.length > 3 && churn.jobs.length > 0);
    expect(new Set([...churn.loops, ...churn.jobs])).toEqual(new Set([50]));
    // The connection that waited all the time is there still.
    await ann.request('PUT', `/user/${encodeURIComponent(ann.userId)}/account_data/org.example`, { a: 1 });
    expect((await waiting).status).toBe(200);
  });

  it('a module that fails midway leaves the one before at work', async () => {
    await expect(server.server.reload(settings(entry(51, { broken: true })))).rejects.toThrow('broken midway');
    const other = { module: './nowhere.mjs' };
    await expect(server.server.reload(settings(entry(52), other))).rejects.toThrow('nowhere.mjs');
    expect([...churn.live]).toEqual([50]);
    expect((await server.request('GET', '/_synapse/client/churn-51')).status).toBe(404);
    expect((await server.request('GET', '/_synapse/client/churn')).body).toBe(50);
    churn.loops.length = churn.jobs.length = 0;
    await eventually(() => churn.loops.length > 0 && churn.jobs.length > 1);
    expect(new Set([...churn.loops, ...churn.jobs])).toEqual(new Set([50]));
  });

  it('a module that goes takes its jobs, paths and loops with it', async () => {
    await server.server.reload(settings());
    expect([...churn.live]).toEqual([]);
    churn.loops.length = churn.jobs.length = churn.asked.length = 0;
    expect((await say('alone')).status).toBe(200);
    await wait(1_500);
    expect([churn.loops, churn.jobs, churn.asked]).toEqual([[], [], []]);
    expect((await server.request('GET', '/_synapse/client/churn')).status).toBe(404);
    await server.server.reload(settings(entry(60)));
    expect((await server.request('GET', '/_synapse/client/churn')).body).toBe(60);
    expect(logger.messages('error')).toEqual([]);
  });
});

it('a certificate that cannot be read keeps nothing else from being reloaded, and is named', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-tls-'));
  const [certificate, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  const issued = makeTestAuthority().issue(['localhost']);
  await Promise.all([writeFile(certificate, issued.cert), writeFile(key, issued.key)]);
  const logger = new RecordingLogger();
  const tls = { tls_certificate_path: certificate, tls_private_key_path: key };
  const server = await createTestHomeserver({
    logger,
    settings: {
      ...tls,
      listeners: [
        {
          port: await freePort(),
          bind_addresses: ['127.0.0.1'],
          type: 'http',
          tls: true,
          resources: [{ names: ['client'] }],
        },
      ],
    },
  });
  try {
    await writeFile(certificate, 'rubbish');
    const next = Config.fromObject(
      { server_name: 'rookery.test', report_stats: false, ...tls, modules: [{ module, config: { instance: 70 } }] },
      { configDir: process.cwd() },
    );
    await server.server.reload(next);
    expect(server.server.moduleNames).toEqual(['churn']);
    expect(logger.messages('error')).toEqual([
      'The TLS certificate could not be read again; the one from before stays in use',
    ]);
    expect(logger.messages('info')).toContain('Settings reloaded');
  } finally {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
