/**
 * What it costs to join large rooms of other servers. A built server runs in a process of its own; the server that has the room is
 * played here, over real TLS, and leaves members out where it may. Measured are the times until the room can be used and until all of
 * it is there, memory above rest, the longest turns of the event loop, what comes over the wire, and what becomes of somebody who sends
 * messages to another room meanwhile.
 *
 * `npm run bench -- joins [members...] [--whole] [--told]`; `--whole` joins with all of the state at once, with `--told` the other
 * server leaves nobody out, whatever it is asked for.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LargeRoom, LargeRoomServer, noteTurns } from './large-room.js';
import { type BenchServer, call, register, room, startServer, table } from './support.js';

const isWhole = process.argv.includes('--whole');
const leavesOut = !process.argv.includes('--told');
const named = process.argv.slice(2).filter((each) => !each.startsWith('-'));
const sizes = named.length > 0 ? named.map(Number) : [2_000, 10_000];
const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-joins-'));
const peer = await LargeRoomServer.start(folder, leavesOut);
const { played } = peer;
const noted = await noteTurns(folder);

const peakMib = ({ pid }: BenchServer): number =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
const queries = async (server: BenchServer): Promise<number> => {
  const text = await (await fetch(`${server.baseUrl}/_synapse/metrics`)).text();
  return [...text.matchAll(/^synapse_storage_query_time_count\{[^}]*\} (\d+)/gm)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
};

async function measure(members: number): Promise<readonly (string | number)[]> {
  const server = await startServer(
    {
      ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
      federation_custom_ca_list: [join(folder, 'ca.pem')],
      trusted_key_servers: [],
      presence: { enabled: false },
      enable_metrics: true,
      ...(isWhole && { experimental: { faster_joins: false } }),
    },
    noted.args,
  );
  const user = await register(server.baseUrl, 'bench');
  const bystander = await register(server.baseUrl, 'bystander');
  const quiet = await room(server.baseUrl, [bystander]);
  let sent = 0;
  let isOver = false;
  const say = async (token: string, roomId: string, txn: string): Promise<void> => {
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${txn}`;
    await call(server.baseUrl, 'PUT', path, token, { msgtype: 'm.text', body: 'a message of ordinary length' });
  };
  const lane = async (): Promise<void> => {
    // Twenty a second, so that there is room for everything else.
    while (!isOver) {
      await say(bystander.token, quiet, `b${sent++}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  const bystanding = lane();
  const rateOver = async (work: () => Promise<unknown>): Promise<number> => {
    const [before, startedMs] = [sent, performance.now()];
    await work();
    return (sent - before) / ((performance.now() - startedMs) / 1000);
  };
  await rateOver(() => new Promise((resolve) => setTimeout(resolve, 1_500)));
  const calm = await rateOver(() => new Promise((resolve) => setTimeout(resolve, 2_000)));
  const rest = server.residentMib();
  writeFileSync(`/proc/${server.pid}/clear_refs`, '5');
  const [queriesBefore, cpuBefore] = [await queries(server), server.cpuSeconds()];
  [peer.bytes, peer.requests] = [0, 0];
  const [startedMs, startedAt] = [performance.now(), Date.now()];
  const roomId = peer.room!.roomId;
  let usableMs = NaN;
  let completeMs = NaN;
  const busy = await rateOver(async () => {
    const via = encodeURIComponent(played.name);
    await call(
      server.baseUrl,
      'POST',
      `/_matrix/client/v3/join/${encodeURIComponent(roomId)}?via=${via}`,
      user.token,
      {},
    );
    await say(user.token, roomId, 'first');
    usableMs = performance.now() - startedMs;
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}/joined_members`;
    const { joined: all } = await call<{ joined: object }>(server.baseUrl, 'GET', path, user.token);
    completeMs = performance.now() - startedMs;
    if (Object.keys(all).length !== members + 1) throw new Error(`${Object.keys(all).length} members are known`);
  });
  isOver = true;
  await bystanding;
  const turns = await noted.longest(startedAt);
  const row = [
    members,
    (usableMs / 1000).toFixed(2),
    (completeMs / 1000).toFixed(1),
    (server.cpuSeconds() - cpuBefore).toFixed(1),
    Math.round(peakMib(server) - rest),
    turns.wallMs.toFixed(0),
    turns.cpuMs.toFixed(0),
    (peer.bytes / 1_048_576).toFixed(1),
    peer.requests,
    (await queries(server)) - queriesBefore,
    `${Math.round((busy / calm) * 100)} %`,
  ];
  await server.stop();
  return row;
}

const rows: (readonly (string | number)[])[] = [];
for (const members of sizes) {
  peer.room = await LargeRoom.make(played, { members });
  rows.push(await measure(members));
}
table(isWhole ? 'Joins of rooms elsewhere, with all of their state' : 'Joins of rooms elsewhere', [
  [
    ...['members', 'usable s', 'complete s', 'CPU s', 'MiB above rest', 'longest turn ms', 'of it CPU ms'],
    ...['MiB received', 'requests', 'queries', "others' sends"],
  ],
  ...rows,
]);
peer.stop();
await rm(folder, { recursive: true, force: true });
process.exit(0);
