import { createTestHomeserver, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { shownMetric } from '../../support/shown-metric.js';
import { acting, altered, FakeService, pause, registerGhost, RegistrationFiles } from '../appservices/support.js';
import { createRoom, join, nextTransaction, ok, say } from '../rooms/rooms-client.js';

const sent = 'synapse_appservice_api_sent_transactions_total';
const toDevice = 'de.sorunome.msc2409.to_device';
/** Each belongs to the shard of another process, where three share them. */
const ids = ['bot', 'xmpp', 'irc'] as const;

describe('What goes from a server of several processes to application services', () => {
  const files = new RegistrationFiles();
  let home: TestHomeserver;
  let services: FakeService[];
  let alice: TestUser;
  let ghosts: TestUser[];
  let roomId: string;

  beforeAll(async () => {
    services = await Promise.all(ids.map(() => FakeService.start()));
    const resources = [{ names: ['client', 'federation', 'metrics'] }];
    const listeners = [{ port: await freePort(), bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    const registrations = ids.map((id, n) => {
      const namespaces = { users: [{ regex: `@${id}_.*`, exclusive: true }] };
      return files.write(id, {
        ...{ url: services[n]!.url, namespaces, receive_ephemeral: true, 'org.matrix.msc3202': true },
      });
    });
    home = await createTestHomeserver({
      ...{ database: 'postgres', processes: 4 },
      settings: {
        ...{ app_service_config_files: registrations, enable_metrics: true, listeners },
        experimental_features: { msc2409_to_device_messages_enabled: true, msc3202_transaction_extensions: true },
      },
    });
    alice = await home.registerUser('alice');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    ghosts = [];
    for (const id of ids) {
      const ghost = await registerGhost(home, id, `${id}_ghost`);
      await join(ghost, roomId);
      expect((await ghost.request('PUT', '/devices/GHOST', {})).status).toBe(201);
      ghosts.push(ghost);
    }
  });
  afterAll(async () => {
    await home?.stop();
    for (const service of services ?? []) await service.down();
    files.remove();
  });
  beforeEach(() => {
    for (const service of services) service.transactions.length = 0;
  });

  const all = (is: (service: FakeService) => boolean): Promise<boolean> => eventually(() => services.every(is));
  const edus = (service: FakeService, type: string): unknown[] =>
    service.part('ephemeral').flatMap((one) => (one.type === type ? [one.content] : []));
  /** How many transactions each process has sent to a service, the one that writes first. */
  const counts = (id: string): Promise<number[]> =>
    Promise.all(
      home.servers.map(({ addresses }) =>
        shownMetric(`http://127.0.0.1:${addresses[0]?.port}`, sent, `service="${id}"`),
      ),
    );
  /** Which of the processes sends to a service. */
  const senderOf = async (id: string): Promise<number> => {
    const before = await counts(id);
    await say(alice, roomId, 'who is it?');
    return eventually(async () => {
      const index = (await counts(id)).findIndex((count, n) => count > before[n]!);
      return index < 0 ? undefined : index;
    });
  };

  it('is sent by those that do not write, to each service by one of them, in its order and once', async () => {
    const said = Array.from({ length: 40 }, (_, n) => `${n}`);
    for (const body of said) await say(alice, roomId, body);
    await all(({ texts }) => texts.length >= said.length);
    for (const service of services) {
      expect(service.texts).toEqual(said);
      const txnIds = service.transactions.map(({ txnId }) => Number(txnId));
      expect(txnIds).toEqual([...new Set(txnIds)].toSorted((a, b) => a - b));
    }
    for (const id of ids) {
      const [writer, ...beside] = await counts(id);
      expect(writer).toBe(0);
      expect(beside.reduce((sum, count) => sum + count)).toBeGreaterThan(0);
    }
    expect(new Set(await Promise.all(ids.map((id) => senderOf(id)))).size).toBeGreaterThan(1);
  });

  it('says who types, who has read, and what is for devices', async () => {
    const eventId = await say(alice, roomId, 'read this');
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await all((service) => edus(service, 'm.typing').length > 0);
    await ok(alice, 'POST', `/rooms/${roomId}/receipt/m.read/${eventId}`, {});
    await all((service) => edus(service, 'm.receipt').length > 0);
    for (const service of services) {
      expect(edus(service, 'm.typing')).toEqual([{ user_ids: [alice.userId] }]);
      expect(edus(service, 'm.receipt')).toMatchObject([{ [eventId]: { 'm.read': { [alice.userId]: {} } } }]);
    }
    for (let n = 0; n < 10; n++) {
      const messages = Object.fromEntries(ghosts.map(({ userId }) => [userId, { GHOST: { n } }]));
      await ok(alice, 'PUT', `/sendToDevice/m.test/${nextTransaction()}`, { messages });
    }
    await all((service) => service.part(toDevice).length >= 10);
    for (const service of services)
      expect(service.part(toDevice).map(({ content }) => content)).toEqual(
        Array.from({ length: 10 }, (_, n) => ({ n })),
      );
  });

  it('tells of the keys that its users in the room have left', async () => {
    for (const ghost of ghosts) {
      const key = { key: 'k', signatures: { [ghost.userId]: { 'ed25519:GHOST': 's' } } };
      await ok(ghost, 'POST', '/keys/upload?device_id=GHOST', {
        one_time_keys: { 'signed_curve25519:A': key, 'signed_curve25519:B': key },
      });
    }
    const counted = async (left: number): Promise<void> => {
      const marker = `${left} left`;
      await say(alice, roomId, marker);
      await all(({ texts }) => texts.includes(marker));
      for (const [n, service] of services.entries()) {
        const { body } = service.transactions.find(({ body: { events } }) =>
          events.some(({ content }) => content['body'] === marker),
        )!;
        expect(body['org.matrix.msc3202.device_one_time_keys_count']).toEqual({
          [ghosts[n]!.userId]: { GHOST: { signed_curve25519: left } },
        });
      }
    };
    await counted(2);
    const wanted = Object.fromEntries(ghosts.map(({ userId }) => [userId, { GHOST: 'signed_curve25519' }]));
    await ok(alice, 'POST', '/keys/claim', { one_time_keys: wanted });
    await counted(1);
  });

  it('is what is left of an event, where it was redacted before it went', async () => {
    const [one] = services;
    const held = Promise.withResolvers<void>();
    let isHeld = false;
    one!.onRequest = async ({ method }) => {
      if (method !== 'PUT' || isHeld) return undefined;
      isHeld = true;
      await held.promise;
      return undefined;
    };
    await say(alice, roomId, 'first');
    await eventually(() => isHeld);
    const secret = await say(alice, roomId, 'a secret');
    // Whoever reads a room remembers what it holds.
    for (let n = 0; n < 20; n++) await ok(alice, 'GET', `/rooms/${roomId}/event/${secret}`);
    await ok(alice, 'PUT', `/rooms/${roomId}/redact/${secret}/${nextTransaction()}`, {});
    held.resolve();
    await eventually(() => one!.events.some(({ type }) => type === 'm.room.redaction'));
    one!.onRequest = () => undefined;
    expect(one!.events.some(({ event_id: eventId }) => eventId === secret)).toBe(true);
    expect(JSON.stringify(one!.transactions)).not.toContain('a secret');
  });

  it('comes once the service takes it again: in order, under the ids that it had', async () => {
    const [one] = services;
    let refused = 0;
    one!.onRequest = ({ method }) => {
      if (method !== 'PUT') return undefined;
      refused++;
      return { status: 503 };
    };
    const said = Array.from({ length: 20 }, (_, n) => `again ${n}`);
    for (const body of said) {
      await say(alice, roomId, body);
      // Not all of it is to lie there before it is tried.
      if (body === said[9]) await eventually(() => refused >= 2);
    }
    await eventually(() => refused >= 3);
    one!.onRequest = () => undefined;
    // Whichever process answers, the one that sends hears that the service is back.
    await ok(acting(home, ids[0]), 'POST', `/_matrix/client/v1/appservice/${ids[0]}/ping`, {});
    await all(({ texts }) => texts.length >= said.length);
    for (const service of services) expect(service.texts).toEqual(said);
    expect(one!.transactions.filter(({ taken }) => !taken).length).toBeGreaterThanOrEqual(3);
    expect(altered(one!)).toEqual([]);
  });

  it('goes on where the process that sent it has left, with nothing lost or altered, and nothing out of order', async () => {
    const leaving = await senderOf(ids[2]);
    expect(leaving).toBeGreaterThan(0);
    for (const service of services) {
      await eventually(() => service.texts.includes('who is it?'));
      service.transactions.length = 0;
      // It is always in the middle of something.
      service.onRequest = async ({ method }) => {
        if (method === 'PUT') await pause(30);
        return undefined;
      };
    }
    const said: string[] = [];
    const talk = async (count: number): Promise<void> => {
      for (let n = 0; n < count; n++) {
        const body = `talk ${said.length}`;
        said.push(body);
        const url = `${home.baseUrl}/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${nextTransaction()}`;
        const headers = { authorization: `Bearer ${alice.accessToken}` };
        const answer = await fetch(url, { method: 'PUT', headers, body: JSON.stringify({ msgtype: 'm.text', body }) });
        expect(answer.status).toBe(200);
      }
    };
    await talk(10);
    const stopped = home.servers[leaving]!.stop();
    await talk(20);
    await stopped;
    await talk(10);
    await all(({ texts }) => texts.length >= said.length);
    for (const service of services) {
      expect(service.texts).toEqual(said);
      expect(altered(service)).toEqual([]);
    }
  });
});
