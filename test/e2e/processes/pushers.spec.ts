import { createTestHomeserver, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { shownMetric } from '../../support/shown-metric.js';
import { createRoom, ok, say } from '../rooms/rooms-client.js';

interface Notification {
  readonly event_id?: string;
  readonly counts?: { readonly unread?: number };
  readonly devices: readonly { readonly pushkey: string }[];
}

const people = 12;
const pushed = 'synapse_http_httppusher_http_pushes_processed_total';

describe('Pushes of a server of several processes', () => {
  let home: TestHomeserver;
  let alice: TestUser;
  let gateway: Server;
  /** What the gateway got, by the pushkey. */
  let got: Map<string, Notification[]>;
  let users: TestUser[];
  let roomId: string;

  beforeAll(async () => {
    gateway = createServer((request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        const { notification } = JSON.parse(body) as { notification: Notification };
        const key = notification.devices[0]!.pushkey;
        got.set(key, [...(got.get(key) ?? []), notification]);
        response.setHeader('content-type', 'application/json').end('{"rejected":[]}');
      });
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}/_matrix/push/v1/notify`;
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    home = await createTestHomeserver({
      ...{ database: 'postgres', processes: 4 },
      settings: { ip_range_blacklist: [], enable_metrics: true, listeners },
    });
    alice = await home.registerUser('alice');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    users = [];
    for (let n = 0; n < people; n++) {
      const user = await home.registerUser(`user${n}`);
      await ok(user, 'POST', `/join/${roomId}`, {});
      const names = { app_display_name: 'An app', device_display_name: 'A device', app_id: 'app', lang: 'en' };
      await ok(user, 'POST', '/pushers/set', { ...names, kind: 'http', pushkey: user.userId, data: { url } });
      users.push(user);
    }
  });
  afterAll(async () => {
    await home?.stop();
    gateway?.closeAllConnections();
    gateway?.close();
  });
  beforeEach(() => {
    got = new Map();
  });

  const eventsOf = (user: TestUser): (string | undefined)[] =>
    (got.get(user.userId) ?? []).flatMap(({ event_id: eventId }) => (eventId ? [eventId] : []));
  const send = async (path: string, body: string): Promise<string> => {
    const url = `${home.baseUrl}/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${path}`;
    const headers = { authorization: `Bearer ${alice.accessToken}` };
    const answer = await fetch(url, { method: 'PUT', headers, body: JSON.stringify({ msgtype: 'm.text', body }) });
    return ((await answer.json()) as { event_id: string }).event_id;
  };

  it('are made by those that do not write, each for some of the users: each once, in order, with the count', async () => {
    const events: string[] = [];
    for (let n = 0; n < 10; n++) events.push(await say(alice, roomId, `${n}`));
    await eventually(() => users.every((user) => eventsOf(user).length >= events.length));
    for (const user of users) {
      expect(eventsOf(user)).toEqual(events);
      const counts = got.get(user.userId)!.map(({ counts }) => counts?.unread ?? 0);
      expect(counts.at(-1)).toBeGreaterThan(0);
    }
    const [writer, ...beside] = await Promise.all(
      home.servers.map(({ addresses }) => shownMetric(`http://127.0.0.1:${addresses[0]?.port}`, pushed)),
    );
    expect(writer).toBe(0);
    expect(beside.reduce((sum, count) => sum + count)).toBe(people * events.length);
    expect(beside.filter((count) => count > 0).length).toBeGreaterThan(1);
  });

  it('tell devices how much is unread once it was read', async () => {
    const eventId = await say(alice, roomId, 'read this');
    await eventually(() => users.every((user) => eventsOf(user).includes(eventId)));
    for (const user of users) await ok(user, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    const last = (user: TestUser): number | undefined => got.get(user.userId)?.at(-1)?.counts?.unread ?? 0;
    await eventually(() => users.every((user) => last(user) === 0 && got.get(user.userId)!.length > 1));
  });

  it('go on where a process has left', async () => {
    const events: string[] = [];
    for (let n = 0; n < 5; n++) events.push(await send(`a${n}`, `${n}`));
    const leaving = home.servers[1]!.stop();
    for (let n = 0; n < 10; n++) events.push(await send(`b${n}`, `${n}`));
    await leaving;
    for (let n = 0; n < 5; n++) events.push(await send(`c${n}`, `${n}`));
    await eventually(() => users.every((user) => new Set(eventsOf(user)).size >= events.length));
    for (const user of users) {
      expect([...new Set(eventsOf(user))]).toEqual(events);
      // One was cut off at most, and came once more.
      expect(eventsOf(user).length).toBeLessThanOrEqual(events.length + 1);
    }
  });
});
