import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createTestHomeserver, eventually, FakeClock, type TestHomeserver } from '@rookery/testing';
import { createRoom, databases, join, ok, say } from '../rooms/rooms-client.js';

/** Takes what servers report. */
class Collector {
  readonly reports: Record<string, unknown>[] = [];
  readonly #server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Record<string, unknown>;
      this.reports.push({ method: request.method, path: request.url, body });
      response.end('{}');
    });
  });
  /** @returns where it listens */
  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }
  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

describe.each(databases)('usage reports (%s)', (database) => {
  const clock = new FakeClock(Date.now());
  const collector = new Collector();
  let homeserver: TestHomeserver;
  const reported = async (count: number): Promise<Record<string, unknown>> => {
    await eventually(async () => {
      await clock.advance(60_000);
      return collector.reports.length >= count;
    });
    return collector.reports.at(-1)?.['body'] as Record<string, unknown>;
  };

  beforeAll(async () => {
    const endpoint = `http://${await collector.start()}/push`;
    homeserver = await createTestHomeserver({
      database,
      clock,
      settings: { report_stats: true, report_stats_endpoint: endpoint, server_context: 'tests', log_level: 'warn' },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    collector.stop();
  });

  it('count who was there and what was said, and name nobody', async () => {
    const alice = await homeserver.registerUser('alice');
    const bob = await homeserver.registerUser('bob');
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    await say(alice, roomId, 'one');
    await say(bob, roomId, 'two');
    const secret = await createRoom(alice);
    await alice.request('PUT', `/rooms/${secret}/send/m.room.encrypted/1`, { algorithm: 'm.megolm.v1.aes-sha2' });
    // Who was seen is written every few seconds. Time must not pass while that takes: the report comes by the same clock.
    await clock.advance(10_000);
    for (const user of [alice, bob])
      await eventually(async () => {
        const whois = await ok<{ devices: Record<string, { sessions: { connections: unknown[] }[] }> }>(
          user,
          'GET',
          `/admin/whois/${user.userId}`,
        );
        const [device] = Object.values(whois.devices);
        return device?.sessions[0]?.connections.length ? true : undefined;
      });
    const report = await reported(1);
    expect(collector.reports[0]).toMatchObject({ method: 'PUT', path: '/push' });
    expect(report).toMatchObject({
      homeserver: 'rookery.test',
      server_context: 'tests',
      total_users: 2,
      total_nonbridged_users: 2,
      daily_user_type_native: 2,
      daily_user_type_guest: 0,
      daily_user_type_bridged: 0,
      total_room_count: 2,
      daily_active_users: 2,
      monthly_active_users: 2,
      daily_active_rooms: 2,
      daily_active_e2ee_rooms: 1,
      daily_messages: 2,
      daily_e2ee_messages: 1,
      daily_sent_messages: 2,
      daily_sent_e2ee_messages: 1,
      r30v2_users_all: 0,
      log_level: 'WARNING',
    });
    expect(JSON.stringify(report)).not.toMatch(/alice|bob|!/);
  });
});

describe('usage reports of a server that goes out by a proxy', () => {
  it('go by way of it', async () => {
    const clock = new FakeClock(Date.now());
    // A proxy gets the whole address, whatever lies behind it.
    const proxy = new Collector();
    const endpoint = 'http://reports.invalid/push';
    const settings = { report_stats: true, report_stats_endpoint: endpoint, http_proxy: await proxy.start() };
    const homeserver = await createTestHomeserver({ clock, settings });
    try {
      await eventually(async () => {
        await clock.advance(60_000);
        return proxy.reports.length > 0;
      });
      expect(proxy.reports[0]).toMatchObject({ method: 'PUT', path: endpoint, body: { homeserver: 'rookery.test' } });
    } finally {
      await homeserver.stop();
      proxy.stop();
    }
  });
});
