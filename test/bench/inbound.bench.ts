/**
 * What it costs to take events of other servers. A built server runs in a process of its own; fifty others are played here, each
 * with a key of its own, and send transactions of events of many rooms: first as fast as they are answered, then at a rate.
 * Then forty of them go on at that rate while ten mean no good: rubbish, gaps that never end or are never filled, forks, large events in a
 * room of thousands; with and without them by turns. Measured are the events that are in their rooms in a second, the CPU time
 * of the server for each and what it is spent on, and how long an event takes from being sent until it is in its room.
 *
 * `npm run bench -- inbound [events a second] [seconds of a stretch] [members of the large room] [rounds] [kind]`
 *
 * `BENCH_PROFILE=FOLDER` keeps the profiles of the main thread.
 */
import type { RoomEvent } from '@rookery/events';
import type { TestHomeserver } from '@rookery/testing';
import { freePort } from '@rookery/testing';
import Sqlite from 'better-sqlite3';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hostile, largeRoom, type Origin, PlayedWorld, SharedRoom } from './inbound-origins.js';
import { profileOf } from './profile.js';
import { call, percentiles, register, room, startServer, table } from './support.js';
import { deliver, type Transaction } from './transactions.js';

const [rate = 300, seconds = 10, members = 2_000, rounds = 1] = process.argv.slice(2, 6).map(Number);
/** For looking closer: one kind of those who mean no good, by its name. */
const only = process.argv[6];
const [goodOrigins, badOrigins] = [40, 10];
/** Events of a transaction, one of each room that its server is in; a transaction of each server is a turn. */
const roomsOfEach = 5;
/** One of so many events changes a member's name. */
const stateEvery = 25;
/** The least time between two transactions of one who means no good, milliseconds, and the events in each. */
const [pauseMs, manyPdus] = [100, 50];
const homeName = 'bench.test';

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const world = await PlayedWorld.listen([
  ...Array.from({ length: goodOrigins + badOrigins }, () => 'good' as const),
  ...Array.from({ length: badOrigins }, (_, n) => hostile[n % hostile.length]!),
]);
const good = world.origins.filter(({ temper }) => temper === 'good');
const bad = world.origins.filter(({ temper }) => temper !== 'good');
const large = bad.find(({ temper }) => temper === 'huge')!;
world.large = largeRoom(large, members);

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-inbound-'));
const file = join(folder, 'homeserver.db');
const inspector = await freePort();
const server = await startServer(
  {
    ...{ database: { name: 'sqlite3', args: { database: file } }, log_level: 'error' },
    ...{ ip_range_whitelist: ['127.0.0.0/8'], federation_verify_certificates: false, trusted_key_servers: [] },
    presence: { enabled: false },
  },
  [`--inspect=127.0.0.1:${inspector}`],
  // Not the bundle: what a file belongs to is to be seen.
  'main.js',
);
const { baseUrl } = server;
const home = { baseUrl, server: { config: { serverName: homeName } } } as unknown as TestHomeserver;
const user = await register(baseUrl, 'bench');

const rooms = await Promise.all(good.map(async () => new SharedRoom(await room(baseUrl, [user]))));
/** Each server is in as many rooms, each room has as many servers. */
const roomsOf = new Map<Origin, SharedRoom[]>();
for (const [n, origin] of good.entries())
  roomsOf.set(
    origin,
    Array.from({ length: roomsOfEach }, (_, k) => rooms[(n + k) % rooms.length]!),
  );
for (const shared of rooms)
  await shared.join(
    home,
    good.filter((origin) => roomsOf.get(origin)!.includes(shared)),
  );
for (const origin of bad.filter((each) => each !== large)) {
  origin.room = new SharedRoom(await room(baseUrl, [user], { power_level_content_override: { state_default: 0 } }));
  await origin.room.join(home, [origin]);
}
const path = `/_matrix/client/v3/join/${encodeURIComponent(world.large.events[0]!.roomId)}?via=${large.name}`;
await call(baseUrl, 'POST', path, user.token, {});
large.room = SharedRoom.of(large, home, world.large.events);
const database = new Sqlite(file, { readonly: true });
const newest = database.prepare('SELECT MAX(stream_ordering) AS top FROM events');
const newer = database.prepare('SELECT stream_ordering, event_id FROM events WHERE stream_ordering > ?');

// ---- what is sent

let made = 0;
/** Transactions of servers, turn by turn: what is sent in one builds upon all of the turn before. */
function traffic(origins: readonly Origin[], turns: number): Transaction[][] {
  return Array.from({ length: turns }, () => {
    const heads = new Map<SharedRoom, RoomEvent[]>();
    const turn = origins.map((origin) => {
      const events = roomsOf.get(origin)!.map((shared) => {
        const isState = ++made % stateEvery === 0;
        const event = isState
          ? shared.make(
              ...([origin, 'm.room.member', { membership: 'join', displayname: `Name ${made}` }] as const),
              ...([shared.heads, origin.userId] as const),
            )
          : shared.message(origin, `message ${made}, of ordinary length`);
        heads.set(shared, [...(heads.get(shared) ?? []), event]);
        return event;
      });
      return origin.transaction(events, homeName);
    });
    for (const [shared, events] of heads) shared.heads = events;
    return turn;
  });
}

const somewhere = (): number => (made += 1);
/** A transaction of one who means no good. */
function mischief(origin: Origin): Transaction {
  const shared = origin.room!;
  const pdus = Array.from({ length: manyPdus }, (_, n): RoomEvent | string => {
    const body = `mischief ${somewhere()}`;
    switch (origin.temper) {
      case 'rubbish': {
        if (n % 2 === 0) return `{"depth":${n},"room_id":"${shared.roomId}","type":"${'x'.repeat(500)}"}`;
        const event = shared.message(origin, body);
        return JSON.stringify({ ...event.pdu, origin_server_ts: made });
      }
      case 'endless':
      case 'silent': {
        const unknown = shared.message(origin, `${body}, before`);
        const gap = [shared.message(origin, `${body}, between`, [unknown])];
        for (let k = 0; k < 19; k++) gap.push(shared.message(origin, `${body}, ${k}`, [gap.at(-1)!]));
        const event = shared.message(origin, body, [gap.at(-1)!]);
        if (n === 0) world.before(event, gap);
        return event;
      }
      case 'forks': {
        const isName = n % 2 === 0;
        return shared.make(
          origin,
          isName ? 'm.room.topic' : `x.y.${made % 97}`,
          { topic: body },
          shared.heads,
          isName ? '' : String(made % 31),
        );
      }
      default:
        return shared.message(origin, `${body}${'x'.repeat(60_000)}`);
    }
  });
  return origin.transaction(pdus, homeName);
}

// ---- how it is measured

interface Stretch {
  readonly events: number;
  readonly elapsedMs: number;
  readonly cpuMs: number;
  readonly tookMs: readonly number[];
  /** What the server's main thread has worked in that time: of what came before, whatever else the machine does. */
  readonly workedMs: readonly number[];
  readonly missing: number;
}

/** CPU time of the server's main thread. */
const mainThreadMs = (): number =>
  Number(readFileSync(`/proc/${server.pid}/task/${server.pid}/schedstat`, 'utf8').split(' ', 1)[0]) / 1e6;

/** Sends turns, each once the one before is answered and its time has come, and waits until all of it is in its rooms. */
async function stretch(turns: readonly (readonly Transaction[])[], everyMs: number): Promise<Stretch> {
  const sent = new Map<string, { readonly atMs: number; readonly workedMs: number }>();
  const [tookMs, workedMs]: [number[], number[]] = [[], []];
  let { top } = newest.get() as { top: number };
  let events = 0;
  const look = (): void => {
    const [nowMs, worked] = [performance.now(), mainThreadMs()];
    // Of what is written at the same time, the later may be there first.
    for (const row of newer.all(top - 1_000) as { stream_ordering: number; event_id: string }[]) {
      top = Math.max(top, row.stream_ordering);
      const at = sent.get(row.event_id);
      if (at === undefined) continue;
      tookMs.push(nowMs - at.atMs);
      workedMs.push(worked - at.workedMs);
      sent.delete(row.event_id);
    }
  };
  const timer = setInterval(look, 5);
  const [startedMs, cpu] = [performance.now(), server.cpuSeconds()];
  for (const [n, turn] of turns.entries()) {
    await pause(Math.max(0, startedMs + n * everyMs - performance.now()));
    // Spread over the turn, as servers that know nothing of each other do.
    const sending = turn.map(async (transaction, k) => {
      await pause((everyMs * k) / turn.length);
      const at = { atMs: performance.now(), workedMs: mainThreadMs() };
      for (const id of transaction.eventIds) sent.set(id, at);
      events += transaction.eventIds.length;
      while ((await deliver({ baseUrl }, transaction)) !== 200) await pause(200);
    });
    await Promise.all(sending);
  }
  for (const untilMs = performance.now() + 30_000; sent.size > 0 && performance.now() < untilMs;) await pause(5);
  clearInterval(timer);
  const cpuMs = (server.cpuSeconds() - cpu) * 1_000;
  return { events, elapsedMs: performance.now() - startedMs, cpuMs, tookMs, workedMs, missing: sent.size };
}

/** Until the server has nothing to do any more. */
async function rest(): Promise<void> {
  for (let n = 0, last = -1, now = server.cpuSeconds(); n < 40 && now - last >= 0.05; n++) {
    last = now;
    await pause(500);
    now = server.cpuSeconds();
  }
}

const parts: readonly (readonly [name: string, path: RegExp])[] = [
  ['storage', /\/better-sqlite3\/|\/libs\/database\/|\.query\.js|batch-committer|group-commit/],
  [
    'auth rules and state',
    /\/libs\/state-res\/|\/rooms\/dist\/state\/|event-context|remote-stager|draft-builder|own-auth/,
  ],
  ['format, hashes, signatures', /\/libs\/(events|federation-client)\//],
  ['the rest of the way into a room', /\/libs\/(rooms|push|push-rules|search|e2ee|sync)\//],
  [
    'HTTP, JSON',
    /\/libs\/http\/|fastify|find-my-way|avvio|node:_?http|node:net|node:internal\/streams|\/libs\/federation\/dist\/inbound/,
  ],
];

/** What the main thread does meanwhile: the share of each part, by the innermost function that belongs to one. */
async function profiled<T>(
  name: string,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly shares: Map<string, number> }> {
  const { result, profile } = await profileOf(name, inspector, work);
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node.id])));
  const partOf = (from: number): string => {
    for (let at: number | undefined = from; at !== undefined; at = parents.get(at)) {
      const { functionName, url } = nodes.get(at)!.callFrame;
      if (['(idle)', '(program)', '(garbage collector)'].includes(functionName)) return functionName.slice(1, -1);
      const part = parts.find(([, pattern]) => pattern.test(url));
      if (part) return part[0];
    }
    return 'other';
  };
  const shares = new Map<string, number>();
  for (const [n, sample] of profile.samples.entries()) {
    const part = partOf(sample);
    shares.set(part, (shares.get(part) ?? 0) + profile.timeDeltas[n]! / 1_000);
  }
  return { result, shares };
}

// ---- the stretches

const heading = [
  '',
  'events',
  'a second',
  'CPU ms each',
  'p50 ms',
  'p95 ms',
  'p99 ms',
  'p50 work',
  'p99 work',
  'missing',
];
const row = (name: string, { events, elapsedMs, cpuMs, tookMs, workedMs, missing }: Stretch): (string | number)[] => {
  const { p50, p95, p99 } = percentiles(tookMs);
  const perSecond = Math.round((tookMs.length / elapsedMs) * 1_000);
  const worked = percentiles(workedMs);
  const times = [p50, p95, p99, worked.p50, worked.p99].map((ms) => Math.round(ms).toString());
  return [name, events.toString(), perSecond, (cpuMs / events).toFixed(2), ...times, missing.toString()];
};

const eachTurn = (origins: readonly Origin[]): number => origins.length * roomsOfEach;
const turnsOf = (origins: readonly Origin[]): number => Math.ceil((rate * seconds) / eachTurn(origins));
const everyMs = (origins: readonly Origin[]): number => (eachTurn(origins) / rate) * 1_000;

await stretch(traffic(good, 10), 0);
await rest();
const fast = traffic(good, turnsOf(good));
const { result: full, shares } = await profiled('fast', () => stretch(fast, 0));
await rest();
const paced = await stretch(traffic(good, turnsOf(good)), everyMs(good));
table(`${good.length} servers in ${rooms.length} rooms`, [
  heading,
  row('as fast as they are answered, profiled', full),
  row(`${rate} a second`, paced),
]);
// What is no JavaScript is mostly waiting for a core.
for (const part of ['idle', 'program']) shares.delete(part);
const busyMs = [...shares.values()].reduce((sum, ms) => sum + ms, 0);
table('What the main thread does for them', [
  ['', 'share'],
  ...[...shares]
    .toSorted(([, left], [, right]) => right - left)
    .map(([part, ms]) => [part, `${Math.round((ms / busyMs) * 100)} %`]),
]);

const forty = good.slice(0, goodOrigins);
let sentByBad = 0;
let refusedOfBad = 0;
async function beside<T>(which: readonly Origin[], work: () => Promise<T>): Promise<T> {
  let isOver = false;
  const lanes = which.map(async (origin) => {
    // As many as are needed, made before: the machine is to be busy with the server.
    const ready = Array.from({ length: 10 }, () => mischief(origin));
    for (let n = 0; !isOver; n++) {
      const next = ready[n] ?? mischief(origin);
      const status = await deliver({ baseUrl }, next).catch(() => 0);
      if (status === 200) sentByBad += manyPdus;
      else refusedOfBad++;
      await pause(pauseMs);
    }
  });
  const result = await work();
  isOver = true;
  await Promise.all(lanes);
  return result;
}

/** Alone, beside two of each kind, and beside all of them. */
const groups: readonly (readonly [string, readonly Origin[]])[] = [
  ...hostile.map((kind): [string, Origin[]] => [kind, bad.filter(({ temper }) => temper === kind)]),
  ['all of them', bad],
];
const rows: (readonly (string | number)[])[] = [];
for (let n = 0; n < rounds; n++) {
  await rest();
  rows.push([...row('alone', await stretch(traffic(forty, turnsOf(forty)), everyMs(forty))), '', '']);
  for (const [name, which] of groups) {
    if (only !== undefined && !name.startsWith(only)) continue;
    await rest();
    const turns = traffic(forty, turnsOf(forty));
    [sentByBad, refusedOfBad] = [0, 0];
    const { result } = await profiled(name, () => beside(which, () => stretch(turns, everyMs(forty))));
    rows.push([...row(`${which.length}: ${name}`, result), sentByBad.toString(), refusedOfBad.toString()]);
    console.log(rows.at(-1)!.join('  '));
  }
}
table(`${forty.length} servers at ${rate} a second, alone and beside those that mean no good`, [
  [...heading, 'of those taken', 'transactions refused'],
  ...rows,
]);
console.log(`\n  resident: ${Math.round(server.residentMib())} MiB`);
database.close();
await server.stop();
await rm(folder, { recursive: true, force: true });
process.exit(0);
