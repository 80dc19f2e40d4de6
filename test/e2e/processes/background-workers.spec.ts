import type { JsonObject } from '@rookery/matrix-types';
import { describeWithRedis, eventually, freePort, TestRedis } from '@rookery/testing';
import { createHmac } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { emptyDatabase, ServerProcess } from '../../support/server-process.js';
import { shownMetric } from '../../support/shown-metric.js';

describeWithRedis('Workers that are named for background work', () => {
  let folder: string;
  let redis: TestRedis;
  let database: Awaited<ReturnType<typeof emptyDatabase>>;
  let main: ServerProcess;
  let worker: ServerProcess;
  let reader: ServerProcess;
  let token = '';
  let transactions = 0;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-background-'));
    redis = await TestRedis.start();
    database = await emptyDatabase('postgres', folder);
    const settings = {
      server_name: 'home.test',
      ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      ...{ database: database.section, redis: { enabled: true, host: '127.0.0.1', port: redis.port } },
      instance_map: { main: { host: '127.0.0.1', port: 9093 } },
      ...{ worker_replication_secret: 'shared', enable_metrics: true, listeners: [] },
      ...{ run_background_tasks_on: 'background1', media_instance_running_background_jobs: 'background1' },
      auto_accept_invites: { enabled: true, worker_to_run_on: 'background1' },
    };
    const make = async (own: object, name: 'listeners' | 'worker_listeners'): Promise<ServerProcess> => {
      const port = await freePort();
      const resources = [{ names: ['client', 'metrics'] }];
      const listeners = [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources }];
      const made = await ServerProcess.prepare('sqlite', { ...settings, ...own, [name]: listeners });
      return Object.assign(made, { baseUrl: `http://127.0.0.1:${port}` });
    };
    const app = { worker_app: 'synapse.app.generic_worker' };
    main = await make({}, 'listeners');
    worker = await make({ ...app, worker_name: 'background1' }, 'worker_listeners');
    reader = await make({ ...app, worker_name: 'reader1' }, 'worker_listeners');
    await main.start();
    await Promise.all([worker.start(), reader.start()]);
    token = await administrator();
  });
  afterAll(async () => {
    for (const one of [reader, worker, main]) await one?.remove();
    await redis?.stop();
    await database?.drop();
    await rm(folder, { recursive: true, force: true });
  });

  const ask = async (method: string, path: string, body?: object): Promise<JsonObject> => {
    const answer = await fetch(main.baseUrl + (path.startsWith('/_') ? path : `/_matrix/client/v3${path}`), {
      ...{ method, headers: { authorization: `Bearer ${token}` } },
      ...(body && { body: JSON.stringify(body) }),
    });
    const found = (await answer.json()) as JsonObject;
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(found)}`);
    return found;
  };
  const register = async (username: string, admin: boolean): Promise<JsonObject> => {
    const path = '/_synapse/admin/v1/register';
    const { nonce } = (await ask('GET', path)) as { nonce: string };
    const password = 'a long password';
    const signed = [nonce, username, password, admin ? 'admin' : 'notadmin'].join('\0');
    const mac = createHmac('sha1', main.registrationSecret).update(signed).digest('hex');
    return ask('POST', path, { nonce, mac, username, password, admin });
  };
  const administrator = async (): Promise<string> => String((await register('root', true))['access_token']);
  /** Who notices invites that are to be accepted. */
  const noticing = async (): Promise<string> => {
    const { host, port, user, password, dbname } = (database.section as { args: Record<string, string> }).args;
    const client = new pg.Client({ host, port: Number(port), user, password, database: dbname });
    await client.connect();
    try {
      const sql = `SELECT p.name FROM leases l JOIN processes p ON p.number = l.holder
        WHERE l.name LIKE 'invite_acceptor%' AND NOT p.fenced`;
      return (await client.query<{ name: string }>(sql)).rows.map(({ name }) => name).join();
    } finally {
      await client.end();
    }
  };
  const isJoined = async (roomId: string, userId: string): Promise<boolean> => {
    const { joined } = (await ask('GET', `/rooms/${roomId}/joined_members`)) as { joined: JsonObject };
    return userId in joined;
  };
  /** Who does the tasks of each role. */
  const places = async (): Promise<string> => {
    const { background_tasks: tasks } = (await ask('GET', '/_synapse/admin/v1/background_tasks')) as unknown as {
      background_tasks: { role: string; process: string }[];
    };
    const found = tasks.filter(({ role }) => role !== 'every_process').map(({ role, process }) => `${role} ${process}`);
    return [...new Set(found)].sort().join(', ');
  };
  const saysAndFinds = async (roomId: string, body: string): Promise<number> => {
    await ask('PUT', `/rooms/${roomId}/send/m.room.message/${++transactions}`, { msgtype: 'm.text', body });
    const { search_categories: found } = (await ask('POST', '/search', {
      search_categories: { room_events: { search_term: body } },
    })) as unknown as { search_categories: { room_events: { count: number } } };
    return found.room_events.count;
  };
  const indexed = ({ baseUrl }: ServerProcess): Promise<number> =>
    shownMetric(baseUrl, 'synapse_storage_transaction_time_count_total\\{[^}]*desc="index_messages"[^}]*\\}');

  it('do it, the main process while they are away, and no other worker', async () => {
    const named = 'background background1, media background1, writer writer';
    await eventually(async () => (await places()) === named);
    const roomId = encodeURIComponent(String((await ask('POST', '/createRoom', {}))['room_id']));
    const byMain = await indexed(main);
    expect(await saysAndFinds(roomId, 'first')).toBe(1);
    expect([(await indexed(main)) - byMain, await indexed(worker)]).toEqual([0, 1]);

    // Invites are noticed where the settings say, and by the main process while that one is away.
    await eventually(async () => (await noticing()) === 'background1');
    await register('guest1', false);
    await ask('POST', `/rooms/${roomId}/invite`, { user_id: '@guest1:home.test' });
    await eventually(() => isJoined(roomId, '@guest1:home.test'));

    await register('guest2', false);
    await worker.stop('SIGKILL');
    await ask('POST', `/rooms/${roomId}/invite`, { user_id: '@guest2:home.test' });
    await eventually(() => isJoined(roomId, '@guest2:home.test'));
    await eventually(async () => (await places()) === 'background writer, media writer, writer writer');
    await eventually(async () => (await saysAndFinds(roomId, 'second')) > 0);
    await eventually(async () => (await indexed(main)) > byMain);
    expect(await indexed(reader)).toBe(0);

    await worker.start();
    await eventually(async () => (await places()) === named);
    expect(await saysAndFinds(roomId, 'third')).toBe(1);
    expect(main.output + worker.output).not.toMatch(/Unhandled|"level":"error"|\bERROR\b/);
  });
});
