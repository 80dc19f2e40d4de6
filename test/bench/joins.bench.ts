/**
 * What it costs to join large rooms of other servers. A built server runs in a process of its own; the server that has the room is
 * played here, over real TLS, and leaves members out where it may. Measured are the times until the room can be used and until all of
 * it is there, memory above rest, the longest turns of the event loop, what comes over the wire, and what becomes of somebody who sends
 * messages to another room meanwhile.
 *
 * `npm run bench -- joins [members...] [--whole] [--told]`; `--whole` joins with all of the state at once, with `--told` the other
 * server leaves nobody out, whatever it is asked for.
 */
import {
  buildEvent,
  parseJson,
  parsePdu,
  pduText,
  type RoomEvent,
  roomVersionRules,
  signEvent,
  SigningKey,
} from '@rookery/events';
import { makeTestAuthority } from '@rookery/testing';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { type BenchServer, call, register, room, startServer, table } from './support.js';

const isWhole = process.argv.includes('--whole');
const leavesOut = !process.argv.includes('--told');
const named = process.argv.slice(2).filter((each) => !each.startsWith('-'));
const sizes = named.length > 0 ? named.map(Number) : [2_000, 10_000];
const version = '11';
const rules = roomVersionRules(version)!;

const authority = makeTestAuthority();
const { cert, key } = authority.issue(['localhost']);
const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-joins-'));
await writeFile(join(folder, 'ca.pem'), authority.cert);

/** A room as the played server has it: texts of its PDUs, by what is asked for. */
interface LargeRoom {
  readonly roomId: string;
  readonly head: RoomEvent;
  readonly auth: readonly string[];
  readonly state: readonly { readonly id: string; readonly text: string; readonly isMember: boolean }[];
}

let bytes = 0;
let requests = 0;
let large: LargeRoom | undefined;

const peer = createServer({ cert, key }, (request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const url = new URL(request.url ?? '', 'https://peer');
    const [, , , , kind = '', ...rest] = url.pathname.split('/').map(decodeURIComponent);
    const answer = (text: string): void => {
      bytes += Buffer.byteLength(text);
      requests++;
      response.writeHead(200, { 'content-type': 'application/json' }).end(text);
    };
    if (url.pathname === '/_matrix/key/v2/server') return answer(JSON.stringify(played.statement()));
    if (!large) return void response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
    if (kind === 'make_join') return answer(template(large, rest[1] ?? ''));
    if (kind === 'send_join')
      return answer(
        joined(large, Buffer.concat(chunks).toString(), leavesOut && url.searchParams.get('omit_members') === 'true'),
      );
    const chain = large.state.filter(({ id }) => large!.auth.includes(id));
    if (kind === 'state_ids')
      return answer(
        JSON.stringify({ pdu_ids: large.state.map(({ id }) => id), auth_chain_ids: chain.map(({ id }) => id) }),
      );
    if (kind === 'state')
      return answer(
        `{"pdus":[${large.state.map(({ text }) => text).join()}],"auth_chain":[${chain.map(({ text }) => text).join()}]}`,
      );
    if (kind === 'event') {
      const event = large.state.find(({ id }) => id === rest[0]);
      if (event) return answer(`{"origin":"${played.name}","origin_server_ts":1,"pdus":[${event.text}]}`);
    }
    if (kind === 'send') return answer('{"pdus":{}}');
    response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
  });
});
await new Promise<void>((resolve) => peer.listen(0, '127.0.0.1', resolve));
const played = new PlayedServer(
  `localhost:${(peer.address() as AddressInfo).port}`,
  SigningKey.fromSeed('bench', new Uint8Array(32).fill(7)),
);

async function makeRoom(members: number): Promise<LargeRoom> {
  const creator = `@carol:${played.name}`;
  const roomId = `!large${members}:${played.name}`;
  const state: LargeRoom['state'][number][] = [];
  let head: RoomEvent | undefined;
  let ts = Date.now() - 10 * members - 10_000;
  const add = (type: string, stateKey: string, content: object, sender: string, auth: readonly string[]): RoomEvent => {
    head = signEvent(
      buildEvent(
        {
          ...{ roomId, type, stateKey, sender, content: content as RoomEvent['content'], originServerTs: (ts += 10) },
          depth: (head?.depth ?? 0) + 1,
          prevEventIds: head ? [head.eventId] : [],
          authEventIds: auth,
        },
        rules,
      ),
      played.name,
      played.key,
    );
    state.push({ id: head.eventId, text: pduText(head), isMember: type === 'm.room.member' });
    return head;
  };
  const create = add('m.room.create', '', { room_version: version }, creator, []).eventId;
  const first = add('m.room.member', creator, { membership: 'join' }, creator, [create]).eventId;
  const levels = add('m.room.power_levels', '', { users: { [creator]: 100 } }, creator, [create, first]).eventId;
  const open = add('m.room.join_rules', '', { join_rule: 'public' }, creator, [create, first, levels]).eventId;
  add('m.room.name', '', { name: 'A large room' }, creator, [create, first, levels]);
  for (let n = 1; n < members; n++) {
    const userId = `@member${n}:${played.name}`;
    const content = { membership: 'join', displayname: `Member number ${n}`, avatar_url: 'mxc://localhost/abcdefgh' };
    add('m.room.member', userId, content, userId, [create, levels, open]);
    if (n % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  return { roomId, head: head!, auth: [create, first, levels, open], state };
}

function template({ roomId, head, auth: [create = '', , levels = '', open = ''] }: LargeRoom, userId: string): string {
  return JSON.stringify({
    room_version: version,
    event: {
      ...{ type: 'm.room.member', room_id: roomId, sender: userId, state_key: userId, content: { membership: 'join' } },
      ...{ prev_events: [head.eventId], auth_events: [create, levels, open], depth: head.depth + 1 },
      ...{ origin_server_ts: Date.now(), hashes: { sha256: '' }, signatures: {} },
    },
  });
}

function joined({ roomId, state, auth }: LargeRoom, body: string, omits: boolean): string {
  const event = pduText(parsePdu(parseJson(body), rules, { roomId }));
  const told = state.filter(({ isMember, id }) => !omits || !isMember || auth.includes(id)).map(({ text }) => text);
  const chain = state.filter(({ id }) => auth.includes(id)).map(({ text }) => text);
  const more = omits ? `,"members_omitted":true,"servers_in_room":["${played.name}"]` : '';
  return `{"origin":"${played.name}","event":${event},"state":[${told.join()}],"auth_chain":[${chain.join()}]${more}}`;
}

/** Notes long turns of the event loop of a process: when, and for how long by the clock and by the CPU time of its thread. */
const turnsFile = join(folder, 'turns');
await writeFile(
  join(folder, 'turns.mjs'),
  `import { appendFileSync } from 'node:fs';
   let last = performance.now(), cpu = process.threadCpuUsage();
   setInterval(() => {
     const now = performance.now(), used = process.threadCpuUsage();
     const gap = now - last - 5, own = (used.user + used.system - cpu.user - cpu.system) / 1000;
     if (gap > 10) appendFileSync(${JSON.stringify(turnsFile)}, Date.now() + ' ' + gap.toFixed(1) + ' ' + Math.min(gap, own).toFixed(1) + '\\n');
     last = now; cpu = used;
   }, 5).unref();`,
);

interface Turns {
  readonly wallMs: number;
  readonly cpuMs: number;
}
async function longestTurns(fromMs: number): Promise<Turns> {
  const lines = (await readFile(turnsFile, 'utf8').catch(() => '')).split('\n').filter(Boolean);
  const turns = lines.map((line) => line.split(' ').map(Number)).filter(([atMs = 0]) => atMs >= fromMs);
  return {
    wallMs: Math.max(0, ...turns.map(([, wall = 0]) => wall)),
    cpuMs: Math.max(0, ...turns.map(([, , cpu = 0]) => cpu)),
  };
}

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
    ['--import', join(folder, 'turns.mjs')],
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
  [bytes, requests] = [0, 0];
  const [startedMs, startedAt] = [performance.now(), Date.now()];
  const roomId = large!.roomId;
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
  const turns = await longestTurns(startedAt);
  const row = [
    members,
    (usableMs / 1000).toFixed(2),
    (completeMs / 1000).toFixed(1),
    (server.cpuSeconds() - cpuBefore).toFixed(1),
    Math.round(peakMib(server) - rest),
    turns.wallMs.toFixed(0),
    turns.cpuMs.toFixed(0),
    (bytes / 1_048_576).toFixed(1),
    requests,
    (await queries(server)) - queriesBefore,
    `${Math.round((busy / calm) * 100)} %`,
  ];
  if (process.env['BENCH_TURNS']) console.log(await readFile(turnsFile, 'utf8').catch(() => ''));
  await server.stop();
  return row;
}

const rows: (readonly (string | number)[])[] = [];
for (const members of sizes) {
  large = await makeRoom(members);
  rows.push(await measure(members));
}
table(isWhole ? 'Joins of rooms elsewhere, with all of their state' : 'Joins of rooms elsewhere', [
  [
    ...['members', 'usable s', 'complete s', 'CPU s', 'MiB above rest', 'longest turn ms', 'of it CPU ms'],
    ...['MiB received', 'requests', 'queries', "others' sends"],
  ],
  ...rows,
]);
peer.closeAllConnections();
peer.close();
await rm(folder, { recursive: true, force: true });
process.exit(0);
