import { describeWithRedis, eventually, freePort, TestRedis } from '@rookery/testing';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyDatabase, ServerProcess } from '../../support/server-process.js';
import { altered, FakeService, pause, RegistrationFiles } from '../appservices/support.js';

const ids = ['bot', 'xmpp', 'irc'] as const;

describeWithRedis('Processes that send to application services', () => {
  const files = new RegistrationFiles();
  let folder: string;
  let redis: TestRedis;
  let database: Awaited<ReturnType<typeof emptyDatabase>>;
  let processes: ServerProcess[];
  let services: FakeService[];
  let roomId: string;
  const said: string[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-services-'));
    redis = await TestRedis.start();
    database = await emptyDatabase('postgres', folder);
    services = await Promise.all(ids.map(() => FakeService.start()));
    for (const service of services)
      service.onRequest = async ({ method }) => {
        // It is always in the middle of something.
        if (method === 'PUT') await pause(20);
        return undefined;
      };
    const settings = {
      ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      ...{ database: database.section, redis: { enabled: true, host: '127.0.0.1', port: redis.port } },
      app_service_config_files: ids.map((id, n) => files.write(id, { url: services[n]!.url })),
    };
    processes = [];
    for (let n = 0; n < 3; n++) {
      const port = await freePort();
      const listener = { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] };
      const one = await ServerProcess.prepare('sqlite', { ...settings, listeners: [listener] });
      processes.push(Object.assign(one, { baseUrl: `http://127.0.0.1:${port}` }));
      await one.start();
    }
    roomId = String((await asked('POST', '/createRoom', { preset: 'public_chat' }, 'as-bot'))['room_id']);
    for (const id of ids.slice(1)) await asked('POST', `/join/${encodeURIComponent(roomId)}`, {}, `as-${id}`);
  });
  afterAll(async () => {
    for (const one of processes ?? []) await one.remove();
    for (const service of services ?? []) await service.down();
    await redis?.stop();
    await database?.drop();
    files.remove();
    await rm(folder, { recursive: true, force: true });
  });

  let answering = 0;
  /** A request that is made until it is answered, by whichever process does. */
  const asked = (method: string, path: string, body: object, token: string): Promise<Record<string, unknown>> =>
    eventually(async () => {
      try {
        const answer = await fetch(`${processes[answering]!.baseUrl}/_matrix/client/v3${path}`, {
          ...{ method, headers: { authorization: `Bearer ${token}` }, body: JSON.stringify(body) },
          signal: AbortSignal.timeout(5_000),
        });
        if (answer.status === 200) return (await answer.json()) as Record<string, unknown>;
      } catch {
        // It has ended, hangs, or waits for the one that writes.
      }
      answering = (answering + 1) % processes.length;
      return undefined;
    });
  /** Says something until it is answered. @param meanwhile what happens after the first few */
  const talk = async (count: number, meanwhile?: () => unknown): Promise<void> => {
    for (let n = 0; n < count; n++) {
      if (n === 5) meanwhile?.();
      const body = `line ${said.length}`;
      const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${said.length}`;
      await asked('PUT', path, { msgtype: 'm.text', body }, 'as-bot');
      said.push(body);
    }
  };
  const arrives = async (): Promise<void> => {
    await eventually(() => services.every(({ texts }) => texts.length >= said.length));
    for (const service of services) {
      expect(service.texts).toEqual(said);
      expect(altered(service)).toEqual([]);
    }
  };

  /** How many processes were missed, and replaced. */
  const missed = (): number =>
    processes.reduce((sum, { output }) => sum + (output.match(/its work is taken over/g)?.length ?? 0), 0);

  it('lose and alter nothing, and keep the order, when any of them is killed or hangs', async () => {
    await talk(10);
    await arrives();
    // The one that came first writes. Whoever takes its place leaves sending to those that are left.
    let killed: Promise<unknown> = Promise.resolve();
    await talk(30, () => (killed = processes[0]!.stop('SIGKILL')));
    await killed;
    await arrives();
    await processes[0]!.start();

    // Two of them send, one of them writes: each hangs in turn and comes back when others have taken over what it did.
    for (const one of processes) {
      const before = missed();
      await talk(30, () => one.signal('SIGSTOP'));
      await eventually(() => missed() > before);
      await arrives();
      one.signal('SIGCONT');
      await eventually(() => !one.isRunning);
      await one.start();
      await talk(5);
      await arrives();
    }
    expect(processes.map(({ output }) => output).join('')).not.toMatch(/Unhandled|"level":"error"/);
  });
});
