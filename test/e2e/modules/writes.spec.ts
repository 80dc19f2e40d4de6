import { rm } from 'node:fs/promises';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { installedModule } from './installed-module.js';

/** Stores when it registers, when its copies are asked, in a loop, and with every event that is shown. */
const source = `
  import { defineModule } from '@rookery/module-api';
  export default defineModule({
    name: 'writes',
    async register(api) {
      const own = Math.random().toString(36);
      await api.migrate([{ name: '1', sql: ['CREATE TABLE module_writes_seen (place TEXT NOT NULL)'] }]);
      const add = (tx) => tx.run('INSERT INTO module_writes_seen (place) VALUES (?)', [own]);
      await api.runDbInteraction('register', add);
      await api.store.put('registered/' + own, true);
      await api.store.transaction((tx) => tx.put('twice/' + own, true));
      api.loopingBackgroundCall(() => api.store.put('looped/' + own, true), 50, { runOnAllInstances: true });
      api.scheduler.handle('note', (by) => api.store.put('job/' + by, true));
      api.messages.answer('note', async () => {
        await api.store.put('answered/' + own, true);
        await api.scheduler.runAt('note', Date.now(), own);
        return own;
      });
      api.registerAddExtraFieldsToUnsignedClientEventCallbacks({
        addFieldToUnsigned: async () => {
          await api.runDbInteraction('show', (tx) => tx.run('INSERT INTO module_writes_seen (place) VALUES (?)', ['shown']));
          return { 'org.example.by': own };
        },
      });
      api.registerWebResource('/_synapse/client/writes-ask', async () => Response.json(await api.messages.askCopies('note')));
      api.registerWebResource('/_synapse/client/writes-seen', async () => {
        const rows = await api.runDbInteraction('count', (tx) => tx.query('SELECT place, COUNT(*) AS n FROM module_writes_seen GROUP BY place'));
        const stored = {};
        for (const { key } of await api.store.list()) (stored[key.split('/')[0]] ??= []).push(key);
        return Response.json({
          stored: Object.fromEntries(Object.entries(stored).map(([what, keys]) => [what, keys.length])),
          places: rows.filter(({ place }) => place !== 'shown').length,
          shown: Number(rows.find(({ place }) => place === 'shown')?.n ?? 0),
        });
      });
    },
  });`;

interface Seen {
  readonly stored: Readonly<Record<string, number>>;
  readonly places: number;
  readonly shown: number;
}

describe.each([
  ['with the server', {}],
  ['in threads', { isolate: 'thread' }],
] as const)('what a module stores in each process of a server, %s', (_name, how) => {
  const processes = 3;
  let homeserver: TestHomeserver;
  let folder: string;
  let alice: TestUser;

  beforeAll(async () => {
    folder = await installedModule('rookery-writes', source);
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes, configDir: folder },
      settings: { modules: [{ module: 'rookery-writes', ...how }] },
    });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(async () => {
    await homeserver?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const seen = async (): Promise<Seen> => (await alice.request<Seen>('GET', '/_synapse/client/writes-seen')).body;

  it('is there: when it registers, in loops, for its copies, and as jobs that run at once', async () => {
    const { stored, places } = await seen();
    expect([stored['registered'], stored['twice'], places]).toEqual([processes, processes, processes]);
    await eventually(async () => (await seen()).stored['looped'] === processes);
    const { body } = await alice.request<string[]>('GET', '/_synapse/client/writes-ask');
    expect(new Set(body).size).toBe(processes - 1);
    expect((await seen()).stored['answered']).toBe(processes - 1);
    await eventually(async () => (await seen()).stored['job'] === processes - 1, 10_000);
  });

  it('is there once for a request, whichever process it comes to', async () => {
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(created.body.room_id)}/messages?dir=b&limit=1`;
    const before = (await seen()).shown;
    for (const server of homeserver.servers) {
      const response = await fetch(`http://127.0.0.1:${server.addresses[0]!.port}${path}`, {
        headers: { authorization: `Bearer ${alice.accessToken}` },
      });
      const { chunk } = (await response.json()) as { chunk: { unsigned?: Record<string, unknown> }[] };
      expect(chunk[0]?.unsigned).toHaveProperty(['org.example.by']);
    }
    expect((await seen()).shown - before).toBe(processes);
  });
});
