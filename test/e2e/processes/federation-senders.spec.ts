import type { ServerResponse } from 'node:http';
import { eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { JsonObject } from '@rookery/matrix-types';
import { createRoom, ok, say } from '../rooms/rooms-client.js';
import { shownMetric } from '../../support/shown-metric.js';
import { FederationWorld, type PlayedServer } from '../federation/federation-world.js';
import { Visit } from '../federation/visiting-server.js';

interface Transaction {
  readonly pdus: readonly { readonly type: string; readonly content: JsonObject }[];
  readonly edus: readonly { readonly edu_type: string; readonly content: JsonObject }[];
}

const servers = 12;
const sent = 'synapse_federation_client_sent_transactions_total';

describe('What goes from a server of several processes to other servers', () => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let others: PlayedServer[];
  let roomId: string;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    home = await world.homeserver('home.test', {
      ...{ database: 'postgres', processes: 4, settings: { enable_metrics: true, listeners } },
    });
    alice = await home.registerUser('alice');
    others = await Promise.all(Array.from({ length: servers }, (_, n) => world.played(`p${n}.test`)));
    for (const server of others) server.answer = (_, response) => void response.end('{"pdus":{}}');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    for (const server of others) await Visit.join(server, home, roomId, zoeOf(server));
  });
  afterAll(() => world?.stop());
  beforeEach(() => {
    for (const server of others) server.asked.length = 0;
  });

  const zoeOf = ({ name }: PlayedServer): string => `@zoe:${name}`;
  const got = (server: PlayedServer): Transaction[] =>
    server.asked
      .filter(({ method, url }) => method === 'PUT' && url.includes('/v1/send/'))
      .map(({ body }) => JSON.parse(body) as Transaction);
  const bodies = (server: PlayedServer): unknown[] =>
    got(server).flatMap(({ pdus }) =>
      pdus.filter(({ type }) => type === 'm.room.message').map(({ content }) => content['body']),
    );
  const edus = (server: PlayedServer, type: string): JsonObject[] =>
    got(server).flatMap((one) => one.edus.filter(({ edu_type }) => edu_type === type).map(({ content }) => content));
  const all = (is: (server: PlayedServer) => boolean): Promise<boolean> => eventually(() => others.every(is));

  it('is sent by those that do not write, each for some of the servers, in its order and once', async () => {
    const said = Array.from({ length: 40 }, (_, n) => `${n}`);
    for (const body of said) await say(alice, roomId, body);
    await all((server) => bodies(server).length >= said.length);
    for (const server of others) expect(bodies(server)).toEqual(said);
    const [writer = 0, ...beside] = await Promise.all(
      home.servers.map(({ addresses }) => shownMetric(`http://127.0.0.1:${addresses[0]?.port}`, sent)),
    );
    expect(writer).toBe(0);
    expect(beside.map((count) => count > 0)).toEqual([true, true, true]);
  });

  it('says who types, who has read, and what is for devices', async () => {
    const eventId = await say(alice, roomId, 'read this');
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await all((server) => edus(server, 'm.typing').some(({ typing }) => typing === true));
    await ok(alice, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    await all((server) => edus(server, 'm.receipt').length > 0);
    const messages = Object.fromEntries(others.map((server) => [zoeOf(server), { PHONE: { for: server.name } }]));
    for (let n = 0; n < 10; n++) await ok(alice, 'PUT', `/sendToDevice/m.test/t${n}`, { messages });
    await all((server) => edus(server, 'm.direct_to_device').length >= 10);
    for (const server of others)
      expect(edus(server, 'm.direct_to_device').map(({ messages }) => messages)).toEqual(
        Array.from({ length: 10 }, () => ({ [zoeOf(server)]: { PHONE: { for: server.name } } })),
      );
  });

  it('tells of devices as they are, however often they change', async () => {
    const about = { user_id: alice.userId, device_id: alice.deviceId, algorithms: ['m.megolm.v1.aes-sha2'] };
    const keyId = `ed25519:${alice.deviceId}`;
    const signatures = { [alice.userId]: { [keyId]: 'c2lnbmVk' } };
    for (let n = 0; n < 10; n++) {
      const keys = { [keyId]: `key${n}` };
      await ok(alice, 'POST', '/keys/upload', { device_keys: { ...about, keys, signatures } });
    }
    const last = (server: PlayedServer): JsonObject | undefined => edus(server, 'm.device_list_update').at(-1);
    await all((server) => JSON.stringify(last(server) ?? {}).includes('key9'));
    for (const server of others) {
      const updates = edus(server, 'm.device_list_update');
      // What a server is told last is how it is, and each update says which one came before it.
      for (const [n, { prev_id: before }] of updates.entries())
        if (n > 0) expect(before).toEqual([updates[n - 1]!['stream_id']]);
    }
  });

  it('is what is left of an event, where it was redacted before it went', async () => {
    const [one] = others;
    const held: ServerResponse[] = [];
    one!.answer = (_, response) => void held.push(response);
    await say(alice, roomId, 'first');
    await eventually(() => held.length > 0);
    const secret = await say(alice, roomId, 'a secret');
    await all((server) => server === one || bodies(server).includes('a secret'));
    await ok(alice, 'PUT', `/rooms/${roomId}/redact/${secret}/r1`, {});
    const isRedaction = ({ pdus }: Transaction): boolean => pdus.some(({ type }) => type === 'm.room.redaction');
    // Whoever sends to it sends to some of the others as well, and knows of the redaction then.
    await all((server) => server === one || got(server).some(isRedaction));
    one!.answer = (_, response) => void response.end('{"pdus":{}}');
    for (const response of held) response.end('{"pdus":{}}');
    await eventually(() => got(one!).some(isRedaction));
    expect(JSON.stringify(got(one!))).not.toContain('a secret');
  });

  it('goes on where a process has left, with nothing lost and nothing out of order', async () => {
    const said: string[] = [];
    const talk = async (count: number): Promise<void> => {
      for (let n = 0; n < count; n++) {
        const body = `talk ${said.length}`;
        said.push(body);
        const url = `${home.baseUrl}/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${body.replace(' ', '')}`;
        const headers = { authorization: `Bearer ${alice.accessToken}` };
        const answer = await fetch(url, { method: 'PUT', headers, body: JSON.stringify({ msgtype: 'm.text', body }) });
        expect(answer.status).toBe(200);
      }
    };
    await talk(10);
    const leaving = home.servers[1]!.stop();
    await talk(20);
    await leaving;
    await talk(10);
    await all((server) => new Set(bodies(server)).size >= said.length);
    for (const server of others) expect([...new Set(bodies(server))]).toEqual(said);
    // Whoever was cut off in the middle of one is sent that once more.
    for (const server of others) expect(bodies(server).length).toBeLessThan(said.length + 15);
  });
});
