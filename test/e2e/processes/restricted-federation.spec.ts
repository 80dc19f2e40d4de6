import { SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { describeWithRedis, eventually, freePort, makeTestAuthority, TestRedis } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyDatabase, ServerProcess } from '../../support/server-process.js';
import { shownMetric } from '../../support/shown-metric.js';
import { ElsewhereRoom } from '../federation/elsewhere-room.js';
import { PlayedServer } from '../federation/federation-world.js';

const name = 'home.test';
const workers = ['out1', 'out2', 'sender1'] as const;

describeWithRedis('A server of which some processes only speak to other servers', () => {
  let folder: string;
  let redis: TestRedis;
  let database: Awaited<ReturnType<typeof emptyDatabase>>;
  let main: ServerProcess;
  let out1: ServerProcess;
  let out2: ServerProcess;
  let sender1: ServerProcess;
  let server: PlayedServer;
  let room: ElsewhereRoom;
  const told: unknown[] = [];
  let token = '';
  let transactions = 0;
  const closing: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-restricted-'));
    redis = await TestRedis.start();
    database = await emptyDatabase('postgres', folder);
    const authority = makeTestAuthority();
    await writeFile(join(folder, 'ca.pem'), authority.cert);
    const instances = Object.fromEntries(
      ['main', ...workers].map((one, n) => [one, { host: '127.0.0.1', port: 9093 + n }]),
    );
    const settings = {
      ...{ server_name: name, signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
      ...{ federation_custom_ca_list: [join(folder, 'ca.pem')], database: database.section },
      redis: { enabled: true, host: '127.0.0.1', port: redis.port },
      ...{ instance_map: instances, worker_replication_secret: 'shared', processes: { tls: true } },
      ...{ federation_sender_instances: ['sender1'], outbound_federation_restricted_to: ['out1', 'out2'] },
      ...{ enable_metrics: true, dynamic_thumbnails: false },
    };
    const started = async (own: object): Promise<ServerProcess> => {
      const port = await freePort();
      const resources = [{ names: ['client', 'federation', 'metrics'] }];
      const listeners = [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources }];
      const isWorker = 'worker_name' in own;
      const process = await ServerProcess.prepare('sqlite', {
        ...{ ...settings, ...own },
        ...(isWorker ? { worker_app: 'synapse.app.generic_worker', worker_listeners: listeners } : { listeners }),
      });
      return Object.assign(process, { baseUrl: `http://127.0.0.1:${port}` });
    };
    // The other server is at an address that is open to these two alone: whatever else went there itself would fail.
    const open = { ip_range_whitelist: ['127.0.0.0/8'] };
    main = await started({});
    [out1, out2] = [await started({ worker_name: 'out1', ...open }), await started({ worker_name: 'out2', ...open })];
    sender1 = await started({ worker_name: 'sender1' });
    await main.start();
    await Promise.all([out1, out2, sender1].map((one) => one.start()));
    const registration = { username: 'alice', password: 'a long password', auth: { type: 'm.login.dummy' } };
    token = String((await ask('POST', '/register', registration)).body['access_token']);

    const port = await freePort();
    server = new PlayedServer(`localhost:${port}`, SigningKey.fromSeed('k', new Uint8Array(32).fill(7)));
    closing.push((await server.listen(authority.issue(['localhost']), port)).close);
    room = new ElsewhereRoom(server, '11');
    room.lies.set('send', (_, request) => {
      const { pdus = [] } = JSON.parse(request.body) as { pdus?: { content: JsonObject }[] };
      told.push(...pdus.map(({ content }) => content['body']).filter((body) => body !== undefined));
      return { pdus: {} };
    });
  });
  afterAll(async () => {
    for (const one of [sender1, out2, out1, main]) await one?.remove();
    for (const close of closing.splice(0)) await close();
    await redis?.stop();
    await database?.drop();
    await rm(folder, { recursive: true, force: true });
  });

  interface Found {
    readonly status: number;
    readonly body: JsonObject;
  }
  const ask = async (method: string, path: string, body?: object, at = main): Promise<Found> => {
    const answer = await fetch(`${at.baseUrl}${path.startsWith('/_') ? path : `/_matrix/client/v3${path}`}`, {
      ...{ method, headers: { authorization: `Bearer ${token}` } },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as JsonObject };
  };
  const say = async (body: string): Promise<void> => {
    const path = `/rooms/${encodeURIComponent(room.roomId)}/send/m.room.message/${++transactions}`;
    expect(await ask('PUT', path, { msgtype: 'm.text', body })).toMatchObject({ status: 200 });
  };
  const arrives = (body: string): Promise<unknown> => eventually(() => told.includes(body));
  const lentBy = (one: ServerProcess): Promise<number> =>
    shownMetric(one.baseUrl, 'rookery_federation_lent_connections_total');

  it('joins rooms elsewhere, and talks there', async () => {
    expect(await ask('POST', `/join/${room.roomId}?via=${server.name}`, {}, sender1)).toMatchObject({ status: 200 });
    // Until the sender has come it is the main process that sends.
    await eventually(async () => {
      await say('at first');
      return (await shownMetric(sender1.baseUrl, 'synapse_federation_client_sent_transactions_total')) > 0;
    });
    await say('from here');
    await arrives('from here');
    expect((await lentBy(out1)) + (await lentBy(out2))).toBeGreaterThan(0);
  });

  it('believes what it is told, whose keys it asks for', async () => {
    const event = room.say('from there');
    const uri = `/_matrix/federation/v1/send/t${++transactions}`;
    const content = { origin: server.name, origin_server_ts: Date.now(), pdus: [event.pdu as JsonObject], edus: [] };
    const answer = await fetch(`${out1.baseUrl}${uri}`, {
      ...{ method: 'PUT', body: JSON.stringify(content) },
      headers: { authorization: server.authorization('PUT', uri, name, content) },
    });
    expect([answer.status, await answer.json()]).toEqual([200, { pdus: { [event.eventId]: {} } }]);
    await eventually(async () => {
      const path = `/rooms/${encodeURIComponent(room.roomId)}/event/${encodeURIComponent(event.eventId)}`;
      return (await ask('GET', path)).status === 200;
    });
    expect(server.asked.some(({ url }) => url === '/_matrix/key/v2/server')).toBe(true);
  });

  it('fetches media, also from where the other server says they lie', async () => {
    const elsewhere = createServer((_, response) => void response.end('from elsewhere'));
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    closing.push(() => new Promise((resolve) => elsewhere.close(resolve)));
    const rest = server.answer;
    server.answer = (asked, response) => {
      if (!asked.url.includes('/media/download/')) return rest(asked, response);
      const location = `Location: http://localhost:${(elsewhere.address() as AddressInfo).port}/file\r\n\r\n`;
      const parts = [
        'Content-Type: application/json\r\n\r\n{}',
        asked.url.includes('/here') ? 'Content-Type: text/plain\r\n\r\nfrom here' : location,
      ];
      response.setHeader('content-type', 'multipart/mixed; boundary=line');
      response.end(`${parts.map((part) => `--line\r\n${part}\r\n`).join('')}--line--\r\n`);
    };
    for (const [id, content] of [
      ['here', 'from here'],
      ['there', 'from elsewhere'],
    ] as const) {
      const answer = await fetch(`${main.baseUrl}/_matrix/client/v1/media/download/${server.name}/${id}`, {
        headers: { authorization: `Bearer ${token}` },
      });
      expect([answer.status, await answer.text()]).toEqual([200, content]);
    }
  });

  it('goes on by way of the others where one is killed, and says which other server cannot be reached where all are', async () => {
    await out1.stop('SIGKILL');
    await say('one was killed');
    await arrives('one was killed');
    await ask('GET', `/directory/room/%23a:${server.name}`);
    expect(server.asked.at(-1)?.url).toContain('/query/directory');

    await out2.stop('SIGKILL');
    const lost = await ask('GET', `/profile/@carol:${server.name}`);
    expect(lost.status).toBe(502);
    expect(String(lost.body['error'])).toContain('no process of this server that speaks to other servers');
    expect(main.output).toContain('No process that speaks to other servers can be reached');
    await say('nobody was there');

    await out2.start();
    // Who reached it lets all know that it lives, the sender as well, which left it alone for a while.
    await eventually(async () => (await ask('GET', `/directory/room/%23b:${server.name}`)).status === 200);
    await say('somebody is');
    await arrives('nobody was there');
    await arrives('somebody is');
    expect(main.output).toContain('A process that speaks to other servers can be reached again');
    expect(sender1.output + out2.output).not.toMatch(/Unhandled/);
  });
});
