import { SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { describeWithRedis, eventually, freePort, makeTestAuthority, TestRedis } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyDatabase, ServerProcess } from '../../support/server-process.js';
import { shownMetric } from '../../support/shown-metric.js';
import { ElsewhereRoom } from '../federation/elsewhere-room.js';
import { PlayedServer } from '../federation/federation-world.js';

const name = 'home.test';
/** Other servers, each with a room in which somebody of this one is. */
const count = 8;

describeWithRedis('Workers that send to other servers', () => {
  let folder: string;
  let redis: TestRedis;
  let database: Awaited<ReturnType<typeof emptyDatabase>>;
  let main: ServerProcess;
  let senders: ServerProcess[];
  let rooms: ElsewhereRoom[];
  /** What each server was told, as often as it was. */
  let told: string[][];
  let token = '';
  let transactions = 0;
  const closing: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-senders-'));
    redis = await TestRedis.start();
    database = await emptyDatabase('postgres', folder);
    const authority = makeTestAuthority();
    await writeFile(join(folder, 'ca.pem'), authority.cert);
    const instances = Object.fromEntries(
      ['main', 'sender1', 'sender2'].map((one, n) => [one, { host: '127.0.0.1', port: 9093 + n }]),
    );
    const settings = {
      ...{ server_name: name, ip_range_whitelist: ['127.0.0.0/8', '::1/128'] },
      ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      ...{ federation_custom_ca_list: [join(folder, 'ca.pem')], database: database.section },
      redis: { enabled: true, host: '127.0.0.1', port: redis.port },
      ...{ instance_map: instances, worker_replication_secret: 'shared' },
      federation_sender_instances: ['sender1', 'sender2'],
      ...{ enable_metrics: true, listeners: [] },
    };
    const listeners = (port: number): object[] => [
      {
        port,
        bind_addresses: ['127.0.0.1'],
        type: 'http',
        resources: [{ names: ['client', 'federation', 'metrics'] }],
      },
    ];
    const mainPort = await freePort();
    main = await ServerProcess.prepare('sqlite', { ...settings, listeners: listeners(mainPort) });
    Object.assign(main, { baseUrl: `http://127.0.0.1:${mainPort}` });
    senders = [];
    for (const worker of ['sender1', 'sender2']) {
      const port = await freePort();
      const own = {
        worker_app: 'synapse.app.generic_worker',
        ...{ worker_name: worker, worker_listeners: listeners(port) },
      };
      const sender = await ServerProcess.prepare('sqlite', { ...settings, ...own });
      senders.push(Object.assign(sender, { baseUrl: `http://127.0.0.1:${port}` }));
    }
    await main.start();
    await Promise.all(senders.map((sender) => sender.start()));
    const registration = { username: 'alice', password: 'a long password', auth: { type: 'm.login.dummy' } };
    token = String((await ask('POST', '/register', registration))['access_token']);
    told = [];
    rooms = [];
    for (let n = 0; n < count; n++) {
      const port = await freePort();
      const server = new PlayedServer(`localhost:${port}`, SigningKey.fromSeed('k', new Uint8Array(32).fill(n + 1)));
      closing.push((await server.listen(authority.issue(['localhost']), port)).close);
      const room = new ElsewhereRoom(server, '11');
      const bodies: string[] = [];
      room.lies.set('send', (_, request) => {
        const { pdus = [] } = JSON.parse(request.body) as { pdus?: { content: JsonObject }[] };
        for (const { content } of pdus)
          if (typeof content['body'] === 'string' && content['body'] !== 'before') bodies.push(content['body']);
        return { pdus: {} };
      });
      await ask('POST', `/join/${room.roomId}?via=${server.name}`, {});
      told.push(bodies);
      rooms.push(room);
    }
  });
  afterAll(async () => {
    for (const one of [...(senders ?? []), main]) await one?.remove();
    for (const close of closing.splice(0)) await close();
    await redis?.stop();
    await database?.drop();
    await rm(folder, { recursive: true, force: true });
  });

  const ask = async (method: string, path: string, body?: object): Promise<JsonObject> => {
    const answer = await fetch(`${main.baseUrl}/_matrix/client/v3${path}`, {
      ...{ method, headers: { authorization: `Bearer ${token}` } },
      ...(body && { body: JSON.stringify(body) }),
    });
    const found = (await answer.json()) as JsonObject;
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(found)}`);
    return found;
  };
  /** Says it in every room. */
  const say = async (body: string): Promise<void> => {
    for (const { roomId } of rooms) {
      const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${++transactions}`;
      await ask('PUT', path, { msgtype: 'm.text', body });
    }
  };
  const arrives = (body: string): Promise<unknown> => eventually(() => told.every((bodies) => bodies.includes(body)));
  const transactionsOf = ({ baseUrl }: ServerProcess): Promise<number> =>
    shownMetric(baseUrl, 'synapse_federation_client_sent_transactions_total');

  it('take over what one of them had that was killed, or hangs, which sends nothing more; and the main process what nobody has', async () => {
    const said = ['by both', 'one was killed', 'the other hangs', 'one is back', 'the other was told'];
    const [one, other] = senders as [ServerProcess, ServerProcess];
    // Until they came it was the main process.
    await eventually(async () => {
      await say('before');
      return Math.max(...(await Promise.all(senders.map(transactionsOf)))) > 0;
    });
    const byMain = await transactionsOf(main);
    await say(said[0]!);
    await arrives(said[0]!);
    expect(await transactionsOf(main)).toBe(byMain);

    await one.stop('SIGKILL');
    await say(said[1]!);
    await arrives(said[1]!);

    other.signal('SIGSTOP');
    // It may have been sending when it was stopped, and somebody else knows of nothing until it is missed.
    await say(said[2]!);
    await arrives(said[2]!);

    await one.start();
    await say(said[3]!);
    await arrives(said[3]!);
    const before = told.map((bodies) => bodies.length);
    other.signal('SIGCONT');
    await eventually(() => !other.isRunning);
    expect(other.output).toContain('others have taken its work over');
    expect(told.map((bodies) => bodies.length)).toEqual(before);
    await say(said[4]!);
    await arrives(said[4]!);
    for (const bodies of told) expect([...new Set(bodies)]).toEqual(said);
    expect(main.output + one.output).not.toMatch(/Unhandled|"level":"error"|\bERROR\b/);
  });
});
