/**
 * What it costs to bring messages to other servers. A built server runs in a process of its own; the other servers are played
 * here, over real TLS: they take transactions and count. Measured are sends to a room without other servers, with two and with
 * a hundred: how long until every server has every message, and the CPU time of the server process.
 *
 * `npm run bench -- federation [messages] [servers]`
 */
import { SigningKey } from '@rookery/events';
import { makeTestAuthority } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { Visit } from '../e2e/federation/visiting-server.js';
import { type BenchUser, call, register, room, startServer, table } from './support.js';

const messages = Number(process.argv[2] ?? 1_000);
const many = Number(process.argv[3] ?? 100);
const lanes = 8;

interface Receiver {
  readonly played: PlayedServer;
  readonly server: Server;
  messages: number;
  transactions: number;
}

const authority = makeTestAuthority();
const { cert, key } = authority.issue(['localhost']);

async function startReceiver(seed: number): Promise<Receiver> {
  const signingKey = SigningKey.fromSeed('bench', new Uint8Array(32).fill(seed % 251).fill(1 + (seed >> 8), 0, 1));
  const receiver = { messages: 0, transactions: 0 } as { -readonly [K in keyof Receiver]: Receiver[K] };
  receiver.server = createServer({ cert, key }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      if (request.url === '/_matrix/key/v2/server')
        return void response.end(JSON.stringify(receiver.played.statement()));
      if (request.method === 'PUT') {
        receiver.transactions++;
        receiver.messages += Buffer.concat(chunks).toString().split('"type":"m.room.message"').length - 1;
      }
      response.end('{"pdus":{}}');
    });
  });
  await new Promise<void>((resolve) => receiver.server.listen(0, '127.0.0.1', resolve));
  const { port } = receiver.server.address() as AddressInfo;
  receiver.played = new PlayedServer(`localhost:${port}`, signingKey);
  return receiver;
}

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-ca-'));
await writeFile(join(folder, 'ca.pem'), authority.cert);
const server = await startServer({
  ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
  federation_custom_ca_list: [join(folder, 'ca.pem')],
  trusted_key_servers: [],
  presence: { enabled: false },
});
const home = { baseUrl: server.baseUrl, server: { config: { serverName: 'bench.test' } } } as unknown as Parameters<
  typeof Visit.join
>[1];
const user = await register(server.baseUrl, 'bench');
const receivers = await Promise.all(Array.from({ length: many }, (_, i) => startReceiver(i)));
let txn = 0;

async function sharedRoom(sender: BenchUser, guests: readonly Receiver[]): Promise<string> {
  const roomId = await room(server.baseUrl, [sender]);
  for (const { played } of guests) await Visit.join(played, home, roomId, `@guest:${played.name}`);
  return roomId;
}

async function measure(guests: readonly Receiver[], count: number): Promise<readonly (string | number)[]> {
  const roomId = await sharedRoom(user, guests);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  for (const guest of guests) guest.messages = guest.transactions = 0;
  const [startedMs, startedCpu] = [performance.now(), server.cpuSeconds()];
  let left = count;
  const lane = async (): Promise<void> => {
    while (left-- > 0) {
      const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${txn++}`;
      await call(server.baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body: 'a message of ordinary length' });
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  const sentMs = performance.now() - startedMs;
  while (guests.some((guest) => guest.messages < count)) await new Promise((resolve) => setTimeout(resolve, 5));
  const [allMs, cpu] = [performance.now() - startedMs, server.cpuSeconds() - startedCpu];
  const deliveries = count * guests.length;
  const transactions = guests.reduce((sum, guest) => sum + guest.transactions, 0);
  return [
    guests.length,
    Math.round((count / sentMs) * 1000),
    Math.round((count / allMs) * 1000),
    Math.round((deliveries / allMs) * 1000),
    ((cpu / count) * 1000).toFixed(2),
    transactions === 0 ? '' : (deliveries / transactions).toFixed(1),
    Math.round(server.residentMib()),
  ];
}

await measure([], Math.min(messages, 300));
const rows = [
  await measure([], messages),
  await measure(receivers.slice(0, 2), messages),
  await measure(receivers, Math.max(50, Math.round(messages / 5))),
];
table('Messages to other servers', [
  ['servers', 'sends/s', 'everywhere/s', 'deliveries/s', 'CPU ms each', 'events per transaction', 'MiB'],
  ...rows,
]);
await server.stop();
for (const receiver of receivers) receiver.server.closeAllConnections();
for (const receiver of receivers) receiver.server.close();
await rm(folder, { recursive: true, force: true });
process.exit(0);
