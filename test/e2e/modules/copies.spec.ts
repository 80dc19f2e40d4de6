import { rm } from 'node:fs/promises';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { installedModule } from './installed-module.js';

/** Shows with every event what its process believes; what it is told at one it tells its copies in the others. */
const source = `
  import { defineModule } from '@rookery/module-api';
  export default defineModule({
    name: 'copies',
    register(api) {
      let mood = 'none';
      const weather = api.registerCachedFunction('weather', async () => (await api.store.get('weather')) ?? 'unknown');
      api.messages.answer('mood', (payload, from) => {
        if (from !== api.moduleName) throw new Error('no copy');
        mood = payload.mood;
        return { runsJobs: api.shouldRunBackgroundTasks() };
      });
      api.registerAddExtraFieldsToUnsignedClientEventCallbacks({
        addFieldToUnsigned: async () => ({ 'org.example.mood': mood, 'org.example.weather': await weather('today') }),
      });
      api.registerWebResource('/_synapse/client/copies/:mood', async (request, { params }) => {
        mood = params.mood;
        await api.store.put('weather', params.mood);
        await api.invalidateCache('weather', 'today');
        const copies = await api.messages.askCopies('mood', { mood });
        return Response.json({ runsJobs: api.shouldRunBackgroundTasks(), copies });
      });
      api.registerWebResource('/_synapse/client/copies-refused', async () => Response.json(await api.messages.askCopies('nobody answers')));
    },
  });`;

describe.each([
  ['with the server', 3, {}],
  ['in threads', 3, { isolate: 'thread' }],
  ['of a server that is a single process', 1, {}],
] as const)('copies of a module %s', (_name, processes, how) => {
  let homeserver: TestHomeserver;
  let folder: string;
  let alice: TestUser;
  let path: string;

  beforeAll(async () => {
    folder = await installedModule('rookery-copies', source);
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes, configDir: folder },
      settings: { modules: [{ module: 'rookery-copies', ...how }] },
    });
    alice = await homeserver.registerUser('alice');
    const room = (await alice.request<{ room_id: string }>('POST', '/createRoom', {})).body.room_id;
    path = `/_matrix/client/v3/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=1`;
  });
  afterAll(async () => {
    await homeserver?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** What an event shows, at each process. A process does without what a module has no time to add: it is asked again. */
  const shown = (): Promise<unknown[]> =>
    Promise.all(
      homeserver.servers.map((server) =>
        eventually(async () => {
          const response = await fetch(`http://127.0.0.1:${server.addresses[0]!.port}${path}`, {
            headers: { authorization: `Bearer ${alice.accessToken}` },
          });
          const { chunk } = (await response.json()) as { chunk: { unsigned?: Record<string, unknown> }[] };
          const unsigned = chunk[0]?.unsigned;
          const fields = [unsigned?.['org.example.mood'], unsigned?.['org.example.weather']];
          return !fields.includes(undefined) && fields;
        }),
      ),
    );
  const everywhere = (what: unknown): unknown[] => homeserver.servers.map(() => what);

  it('are told what changed before whoever tells them goes on, and forget what was cached', async () => {
    expect(await shown()).toEqual(everywhere(['none', 'unknown']));
    for (const mood of ['glad', 'sad', 'tired']) {
      const { status, body } = await alice.request('POST', `/_synapse/client/copies/${mood}`, {});
      const copies = Array.from({ length: processes - 1 }, () => ({ runsJobs: false }));
      expect({ status, body }).toEqual({ status: 200, body: { runsJobs: true, copies } });
      expect(await shown()).toEqual(everywhere([mood, mood]));
    }
  });

  it('leave out who has no answer', async () => {
    const { status, body } = await alice.request('GET', '/_synapse/client/copies-refused');
    expect({ status, body }).toEqual({ status: 200, body: [] });
  });
});
