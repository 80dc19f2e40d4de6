/**
 * What messages to many other servers cost the process that writes, and the others, by the number of processes; on PostgreSQL and Redis of one
 * machine. The other servers are played here, over real TLS, each under a name of its own. Load and database share the machine, so times are
 * more than what they are in earnest; CPU is not.
 *
 * `npm run bench -- senders [counts] [servers] [messages]`, such as `1,2,4 100 100`. Needs redis-server or valkey-server.
 */
import { SigningKey } from '@rookery/events';
import { eventually, makeTestAuthority, TestRedis } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDurablePostgres } from '../crash/durable-postgres.js';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { Visit } from '../e2e/federation/visiting-server.js';
import { type BenchServer, call, percentiles, register, room, startServer, table } from './support.js';

const counts = (process.argv[2] ?? '1,2,4').split(',').map(Number);
const [servers = 100, messages = 100] = process.argv.slice(3).map(Number);
const [warmUp, spacingMs] = [20, 50];
const client = '/_matrix/client/v3';
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-senders-'));
const authority = makeTestAuthority();
await writeFile(join(folder, 'ca.pem'), authority.cert);
const addresses = Array.from({ length: servers }, (_, n) => `127.77.${Math.floor(n / 250)}.${1 + (n % 250)}`);
const { cert, key } = authority.issue(['localhost']);
/** By the name of a server: how often it got each message, and when first. */
const got = new Map<string, Map<number, { count: number; atMs: number }>>();
const listener = createServer({ cert, key }, (request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => {
    const name = request.headers.host ?? '';
    if (request.url === '/_matrix/key/v2/server') return response.end(JSON.stringify(played.get(name)?.statement()));
    for (const [, digits] of body.matchAll(/"body":"message (\d+)"/g)) {
      const ofServer = got.get(name)!;
      const one = ofServer.get(Number(digits));
      if (one) one.count++;
      else ofServer.set(Number(digits), { count: 1, atMs: performance.now() });
    }
    return response.end('{"pdus":{}}');
  });
});
await new Promise<void>((resolve) => listener.listen(0, '0.0.0.0', resolve));
const { port } = listener.address() as AddressInfo;
const played = new Map(
  addresses.map((address, n) => {
    const name = `${address}:${port}`;
    const seed = new Uint8Array(32).fill(1 + (n % 255));
    return [name, new PlayedServer(name, SigningKey.fromSeed('bench', seed))];
  }),
);

const rows: (string | number)[][] = [];

async function measure(count: number): Promise<void> {
  for (const name of played.keys()) got.set(name, new Map());
  const [postgres, redis] = [await startDurablePostgres(), await TestRedis.start()];
  const place = await mkdtemp(join(folder, 'server-'));
  const { args } = postgres.section;
  const processes: BenchServer[] = [];
  while (processes.length < count)
    processes.push(
      await startServer({
        ...{ public_baseurl: 'http://127.0.0.1/', presence: { enabled: false }, trusted_key_servers: [] },
        ...{ signing_key_path: join(place, 'signing.key'), media_store_path: join(place, 'media') },
        ...{ ip_range_whitelist: ['127.0.0.0/8'], federation_verify_certificates: false },
        database: { name: 'psycopg2', args: { ...args, cp_max: 5 } },
        ...(count > 1 && { redis: { enabled: true, host: '127.0.0.1', port: redis.port } }),
      }),
    );
  const [writer, ...others] = processes as [BenchServer, ...BenchServer[]];
  const alice = await register(writer.baseUrl, 'alice');
  const roomId = await room(writer.baseUrl, [alice]);
  const home = { baseUrl: writer.baseUrl, server: { config: { serverName: 'bench.test' } } } as never;
  for (const one of played.values()) await Visit.join(one, home, roomId, `@zoe:${one.name}`);
  const sentMs = new Map<number, number>();
  let next = 0;
  const say = async (total: number): Promise<void> => {
    for (const end = next + total; next < end; next++) {
      sentMs.set(next, performance.now());
      const path = `${client}/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${next}`;
      await call(writer.baseUrl, 'PUT', path, alice.token, { msgtype: 'm.text', body: `message ${next}` });
      await sleep(spacingMs);
    }
    await eventually(() => [...got.values()].every((ofServer) => ofServer.size >= next));
  };
  await say(warmUp);
  const cpu = (): [number, number] => [writer.cpuSeconds(), others.reduce((sum, one) => sum + one.cpuSeconds(), 0)];
  const before = cpu();
  await say(messages);
  const [ofWriter, ofOthers] = cpu().map((seconds, n) => ((seconds - before[n]!) / messages) * 1000);
  const all = [...got.values()].flatMap((ofServer) => [...ofServer].filter(([n]) => n >= warmUp));
  const { p50, p95 } = percentiles(all.map(([n, { atMs }]) => atMs - sentMs.get(n)!));
  const twice = all.filter(([, one]) => one.count > 1).length;
  rows.push([count, ofWriter!, ofOthers!, p50, p95, twice]);
  for (const one of processes.toReversed()) await one.stop();
  await redis.stop();
  await postgres.remove();
}

try {
  for (const count of counts) await measure(count);
} finally {
  listener.closeAllConnections();
  listener.close();
  await rm(folder, { recursive: true, force: true });
}
table(`${messages} messages to ${servers} servers each: CPU ms for a message`, [
  ['processes', 'the one that writes', 'all others', 'p50 until a server has it, ms', 'p95', 'sent twice'],
  ...rows,
]);
process.exit(0);
