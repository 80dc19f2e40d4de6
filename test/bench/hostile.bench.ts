// What the worst request to every route costs the server: the longest turn of its event loop, CPU seconds and resident memory;
// then slow senders and readers that come by the thousand, and a summary: the ten worst of each. Without arguments all of it; a
// word chooses the routes of clients that hold it, `federation` those of other servers, `web` the paths of modules, `crowds` the
// thousands, of which more words choose: `crowds slow readers`. Ends with 1 when
// a turn or the memory is over its bound.
//
// The server runs in this process, the load in another. The longest turn is the CPU time that the main thread used between
// two looks of a timer, so that a busy machine does not lengthen it.
import { canonicalJson } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { type ChildProcess, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { FederationWorld, type PlayedServer } from '../e2e/federation/federation-world.js';
import { examples } from '../e2e/hostile/examples.js';
import { type Route, routesOf } from '../e2e/hostile/routes.js';
import { makeWorld, startUnlimited, type World } from '../e2e/hostile/world.js';
import { web } from '../e2e/modules/fixtures/web.js';
import { table } from './support.js';

/** The longest turn that a request, or what a thousand connections bring at once, may take, milliseconds. */
const longestTurnMs = 50;
/**
 * What resident memory may grow by from the first request on, MiB: the bodies, unread answers and answers of modules that
 * are not whole yet that are held at most (768 MiB), what a collector leaves lying about as well, and what the server keeps of the rooms.
 */
const largestGrowthMib = 1_024;

/** A body as the other process is to make it. */
interface Shape {
  readonly name: string;
  /** Text before, a repeated part in which `#` becomes a number, text after. */
  readonly parts: readonly [head: string, part: string, tail: string];
}
interface Load {
  readonly port: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: { readonly shape: Shape; readonly bytes: number } | string;
  /** `once`: one request; `slow-send`: half a body each; `slow-read`: none reads its answer. */
  readonly mode: 'once' | 'slow-send' | 'slow-read';
  readonly connections?: number;
  readonly holdMs?: number;
}

function textOf({ parts: [head, part, tail] }: Shape, bytes: number): string {
  const pieces = [head];
  let length = Buffer.byteLength(head) + Buffer.byteLength(tail);
  for (let i = 0; ; i++) {
    const piece = (i === 0 ? '' : ',') + part.replaceAll('#', String(i));
    length += Buffer.byteLength(piece);
    if (length > bytes) break;
    pieces.push(piece);
  }
  return pieces.join('') + tail;
}

// ---- the other process

async function serveLoad(): Promise<void> {
  process.on('message', (load: Load) => {
    void run(load).then((answer) => process.send!(answer));
  });
  await Promise.resolve();
}

async function run(load: Load): Promise<string> {
  const body =
    load.body === undefined || typeof load.body === 'string' ? load.body : textOf(load.body.shape, load.body.bytes);
  const bytes = body === undefined ? undefined : Buffer.from(body);
  const head =
    `${load.method} ${load.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n` +
    Object.entries(load.headers)
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('') +
    (bytes === undefined ? '' : `Content-Length: ${bytes.length}\r\n`) +
    '\r\n';
  if (load.mode === 'once') {
    const socket = connect(load.port, '127.0.0.1');
    let answer = '';
    socket.on('data', (chunk: Buffer) => (answer += answer.length < 400 ? chunk.toString() : ''));
    socket.on('error', () => undefined);
    socket.write(head);
    if (bytes !== undefined) socket.write(bytes);
    await Promise.race([
      new Promise((resolve) => socket.on('close', resolve)),
      new Promise((resolve) => setTimeout(resolve, 60_000)),
    ]);
    socket.destroy();
    return `${/^HTTP\/1.1 (\d+)/.exec(answer)?.[1] ?? 'none'} ${/"errcode":"(\w+)"/.exec(answer)?.[1] ?? ''}`.trim();
  }
  const sockets: Socket[] = [];
  for (let i = 0; i < (load.connections ?? 1); i++) {
    const socket = connect(load.port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(head);
    if (load.mode === 'slow-send') socket.write(bytes!.subarray(0, Math.floor(bytes!.length * 0.9)));
    else socket.pause();
    sockets.push(socket);
  }
  await new Promise((resolve) => setTimeout(resolve, load.holdMs ?? 3_000));
  if (load.mode === 'slow-read') return await whatCame(sockets);
  const left = sockets.filter((socket) => !socket.closed && !socket.destroyed).length;
  for (const socket of sockets) socket.destroy();
  return `${left} left`;
}

/** What there is for readers who begin to read at last: whole answers, refusals, answers that were cut off. */
async function whatCame(sockets: readonly Socket[]): Promise<string> {
  const found = { whole: 0, refused: 0, cut: 0, open: 0 };
  const read = async (socket: Socket): Promise<void> => {
    let head = '';
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (head.length < 2_000) head += chunk.toString('latin1');
    });
    const isClosed = await Promise.race([
      new Promise<boolean>((resolve) => socket.once('close', () => resolve(true)).resume()),
      new Promise<boolean>((resolve) => setTimeout(() => resolve(socket.destroyed), 10_000)),
    ]);
    const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Infinity);
    if (bytes > length) found[head.startsWith('HTTP/1.1 429') ? 'refused' : 'whole']++;
    else found[isClosed ? 'cut' : 'open']++;
    socket.destroy();
  };
  await Promise.all(sockets.map(read));
  return Object.entries(found)
    .map(([name, count]) => `${count} ${name}`)
    .join(', ');
}

// ---- this process

/** What the main thread did since the last look. */
class Turns {
  #last = process.threadCpuUsage();
  #longestMs = 0;
  #largestRss = 0;
  readonly #timer = setInterval(() => this.#tick(), 1);

  #tick(): void {
    const now = process.threadCpuUsage();
    const ms = (now.user + now.system - this.#last.user - this.#last.system) / 1000;
    this.#last = now;
    if (ms > this.#longestMs) this.#longestMs = ms;
    this.#largestRss = Math.max(this.#largestRss, process.memoryUsage.rss());
  }
  take(): { turnMs: number; rssMib: number } {
    this.#tick();
    const taken = { turnMs: this.#longestMs, rssMib: this.#largestRss / 1_048_576 };
    this.#longestMs = 0;
    this.#largestRss = 0;
    return taken;
  }
  stop(): void {
    clearInterval(this.#timer);
  }
}

const escaped = (text: string): string => JSON.stringify(text).slice(1, -1).replaceAll('#', '');

/** Bodies of every kind that costs: many keys, many values, escapes, and what the route itself takes, as often as it goes in. */
function shapesFor(example: unknown): Shape[] {
  const shapes: Shape[] = [
    { name: 'keys', parts: ['{', '"k#":1', '}'] },
    { name: 'lists', parts: ['{"a":[', '[]', ']}'] },
    { name: 'objects', parts: ['{"a":[', '{"k#":1}', ']}'] },
    { name: 'escapes', parts: ['{"a":["', '\\u0001\\n', '"]}'] },
    { name: 'numbers', parts: ['{"a":[', '1#e-5', ']}'] },
  ];
  if (typeof example !== 'object' || example === null) return shapes;
  const members = Object.entries(example as JsonObject);
  const others = (name: string): string =>
    members
      .filter(([other]) => other !== name)
      .map(([other, value]) => `${JSON.stringify(other)}:${JSON.stringify(value)},`)
      .join('');
  for (const [name, value] of members) {
    const head = `{${others(name)}${JSON.stringify(name)}:`;
    if (typeof value === 'string') shapes.push({ name: `${name} long`, parts: [`${head}"`, 'é\\"', '"}'] });
    else if (Array.isArray(value))
      shapes.push({ name: `${name} many`, parts: [`${head}[`, numbered(value[0] ?? 'x#'), ']}'] });
    else if (typeof value === 'object' && value !== null) {
      const [first] = Object.entries(value as JsonObject);
      if (first === undefined) continue;
      const key = escaped(first[0]);
      shapes.push({
        name: `${name} many`,
        parts: [`${head}{`, `${numberedKey(key)}:${JSON.stringify(first[1])}`, '}}'],
      });
      if (typeof first[1] !== 'object' || first[1] === null || Array.isArray(first[1])) continue;
      const [inner] = Object.entries(first[1] as JsonObject);
      if (inner === undefined) continue;
      const part = `${numberedKey(escaped(inner[0]))}:${JSON.stringify(inner[1])}`;
      shapes.push({ name: `${name} deep`, parts: [`${head}{"${key}":{`, part, '}}}'] });
      // Sessions of a room in a key backup.
      if (typeof inner[1] !== 'object' || inner[1] === null) continue;
      const [third] = Object.entries(inner[1] as JsonObject);
      if (third === undefined) continue;
      const deepest = `${numberedKey(escaped(third[0]))}:${JSON.stringify(third[1])}`;
      shapes.push({ name: `${name} deeper`, parts: [`${head}{"${key}":{"${inner[0]}":{`, deepest, '}}}}'] });
    }
  }
  return shapes;
}
/** Ids stay ids. */
const numberedKey = (key: string): string => (key.startsWith('@') ? `"@n#${key.slice(1)}"` : `"${key}#"`);
const numbered = (value: unknown): string =>
  typeof value === 'string'
    ? numberedKey(escaped(value)).replace(/^"(.*)"$/, '"$1"')
    : JSON.stringify(value).replace(/"([^"]*)"(?=[,}\]])/, '"$1#"');

interface Limits {
  readonly auth: string;
  readonly bodyLimitBytes?: number;
  readonly ownAuth?: boolean | 'users';
  readonly streamBody?: boolean;
}

/** The limit of a route, as its guard finds it. */
function limitOf(access: Limits): number {
  return access.bodyLimitBytes ?? (access.auth === 'required' && !access.ownAuth ? 262_144 : 65_536);
}

class Bench {
  readonly #child: ChildProcess = fork(fileURLToPath(import.meta.url), ['--load'], { serialization: 'advanced' });
  readonly #turns = new Turns();

  async #send(load: Load): Promise<string> {
    this.#child.send(load);
    const [answer] = (await once(this.#child, 'message')) as [string];
    return answer;
  }

  /** One request; what it cost. @param before what is done first, and not measured */
  async cost(
    load: Load,
    before?: () => Promise<void>,
  ): Promise<{ answer: string; turnMs: number; cpuMs: number; rssMib: number }> {
    await before?.();
    await this.#rest();
    this.#turns.take();
    const start = process.cpuUsage();
    const answer = await this.#send(load);
    const used = process.cpuUsage(start);
    return { answer, ...this.#turns.take(), cpuMs: (used.user + used.system) / 1000 };
  }

  /** {@link cost}; when it is high, the least of three: code that runs for the first time is slow, and so may the collector have made it. */
  async steadyCost(load: Load, before?: () => Promise<void>): Promise<Cost> {
    let least = await this.cost(load, before);
    for (let again = 0; again < 2 && least.turnMs > longestTurnMs / 2; again++) {
      const other = await this.cost(load, before);
      if (other.turnMs < least.turnMs) least = other;
    }
    return least;
  }

  /** Lets what is under way end: the collector, timers. */
  async #rest(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }

  stop(): void {
    this.#turns.stop();
    this.#child.kill();
  }
}

type Row = (string | number)[];
type Cost = Awaited<ReturnType<Bench['cost']>>;
const heading: Row = ['route', 'limit', 'worst request', 'answer', 'turn ms', 'CPU ms', 'RSS MiB'];

/** What a module is handed at most. */
const largestWebBodyBytes = 13_107_200;
/** What a module may answer at most. */
const webAnswerBytes = 104_857_600;

/** Connections of a crowd. */
const crowdSize = 1_000;
const seen: { readonly name: string; readonly cost: Cost }[] = [];
let firstRssMib: number | undefined;

function note(rows: Row[], name: string, limit: number | string, shape: string, cost: Cost): void {
  firstRssMib ??= cost.rssMib;
  rows.push([name, String(limit), shape, cost.answer, cost.turnMs, cost.cpuMs, cost.rssMib]);
  seen.push({ name: `${name} (${shape})`, cost });
  console.error(`${name}, ${shape}: ${cost.answer}, ${cost.turnMs.toFixed(0)} ms, ${cost.rssMib.toFixed(0)} MiB`);
}

/** The ten worst of each figure. @returns what is over its bound */
function summary(): string[] {
  for (const [title, figure] of [
    ['Longest turns, ms', (cost: Cost) => cost.turnMs],
    ['CPU, s', (cost: Cost) => cost.cpuMs / 1000],
    ['Resident, MiB', (cost: Cost) => cost.rssMib],
  ] as const) {
    const worst = seen.toSorted((left, right) => figure(right.cost) - figure(left.cost)).slice(0, 10);
    table(title, [['request', 'answer', 'worst'], ...worst.map(({ name, cost }) => [name, cost.answer, figure(cost)])]);
  }
  const bound = (firstRssMib ?? 0) + largestGrowthMib;
  return seen.flatMap(({ name, cost }) => [
    ...(cost.turnMs > longestTurnMs ? [`${name}: a turn of ${cost.turnMs.toFixed(0)} ms`] : []),
    ...(cost.rssMib > bound ? [`${name}: ${cost.rssMib.toFixed(0)} MiB resident, of ${bound.toFixed(0)}`] : []),
  ]);
}

const portOf = (homeserver: TestHomeserver): number => Number(new URL(homeserver.baseUrl).port);

async function routes(bench: Bench, only: string): Promise<void> {
  const homeserver = await startUnlimited('sqlite');
  const port = portOf(homeserver);
  const rows: Row[] = [heading];
  try {
    let world = await makeWorld(homeserver);
    const all = routesOf(homeserver, [
      '/_matrix/client/',
      '/_matrix/media/',
      '/_matrix/consent',
      '/_matrix/key/',
      '/_synapse/',
    ]);
    for (const route of all) {
      const { access } = route;
      if (access === undefined || !route.name.includes(only)) continue;
      // The route before may have been one that ends sessions.
      if ((await world.user.request('GET', '/account/whoami')).status !== 200) world = await makeWorld(homeserver);
      const limit = route.method === 'GET' ? 16_000 : access.streamBody ? 50_000_000 : limitOf(access as Limits);
      const cost = await worst(bench, port, route, world, limit);
      if (cost !== undefined) note(rows, route.name, limit, cost.shape, cost);
    }
    table('The worst body of each route', [heading, ...rows.slice(1).toSorted((a, b) => Number(b[4]) - Number(a[4]))]);
    if (only === '' || only === 'crowds') await crowds(bench, port, world);
  } finally {
    await homeserver.stop();
  }
}

async function worst(bench: Bench, port: number, route: Route, world: World, limit: number) {
  const path = route.paths[0]!.replace(/:\w+/g, (name) => encodeURIComponent(parameter(name.slice(1), world)));
  const example = examples[route.name]?.(world.names);
  const query = new URLSearchParams(example?.query ?? {}).toString();
  const admin = /^\w+ \/(?:_synapse\/)?admin\//.test(route.name) || path.startsWith('/_synapse/admin');
  const request = { port, method: route.method };
  const plain = `${path}?${query}`;
  const attempts: {
    readonly name: string;
    readonly load: Omit<Load, 'headers'>;
    readonly headers?: Load['headers'];
  }[] =
    route.method === 'GET'
      ? hardQueries(limit - path.length - query.length).map(([name, text, headers]) => ({
          ...{ name, headers },
          load: { ...request, path: `${plain}&${text}`, mode: 'once' },
        }))
      : (route.access?.streamBody ? files : shapesFor(example?.body)).map((shape) => ({
          name: shape.name,
          load: { ...request, path: plain, body: { shape, bytes: limit }, mode: 'once' },
        }));
  let found: (Cost & { shape: string }) | undefined;
  for (const { name, load: attempt, headers: more } of attempts) {
    for (const token of [world.tokens[admin ? 'admin' : 'user'], undefined]) {
      const load: Load = {
        ...attempt,
        headers: { ...more, ...(token !== undefined && { authorization: `Bearer ${token}` }) },
      };
      const cost = await bench.steadyCost(load);
      if (found === undefined || cost.turnMs > found.turnMs)
        found = { ...cost, shape: `${name}${token === undefined ? ', no token' : ''}` };
    }
  }
  return found;
}

/** Files that are none: what looks at them has to see that soon. */
const files: readonly Shape[] = [
  { name: 'no picture', parts: ['\u0089PNG\r\n', 'x#'.padEnd(10_000, 'x'), ''] },
  { name: 'a page', parts: ['<html><head>', '<meta property="og:title" content="#">'.repeat(100), '</head></html>'] },
];

/** Queries of a length, and headers, that cost as much as they can. */
function hardQueries(length: number): (readonly [name: string, query: string, headers?: Record<string, string>])[] {
  const repeated = (part: string, room: number): string => part.repeat(Math.max(1, Math.floor(room / part.length)));
  const filter = (head: string, part: string, tail: string): string => {
    const wrapped = encodeURIComponent(head).length + encodeURIComponent(tail).length + 'filter='.length;
    return `filter=${encodeURIComponent(head)}${repeated(encodeURIComponent(part), length - wrapped)}${encodeURIComponent(tail)}`;
  };
  const text = (name: string): string => `${name}=${'x'.repeat(Math.min(length, 8_000))}`;
  return [
    ['many parameters', Array.from({ length: 90 }, (_, i) => `p${i}=%F0%9F%98%80`).join('&')],
    ['a filter of many types', filter('{"room":{"timeline":{"types":["a"', ',"*a*"', ']}}}')],
    ['a filter of depth', filter('{"a":', '[', '')],
    ['large numbers', 'limit=9007199254740991&timeout=1&ts=9007199254740991&dir=b&at=9007199254740991'],
    ['a large page', 'limit=1000&dir=b&timeout=1&full_state=true&order_by=displayname'],
    ['long texts', [text('from'), text('since').slice(0, Math.max(10, length - 8_010))].join('&')],
    [
      'long headers',
      'timeout=1',
      Object.fromEntries(Array.from({ length: 90 }, (_, i) => [`x-h${i}`, 'x'.repeat(100)])),
    ],
  ];
}

function parameter(name: string, { names }: World): string {
  const known: Record<string, string> = {
    ...{ userId: names.userId, roomId: names.roomId, roomIdOrAlias: names.roomId, roomAlias: names.alias },
    ...{ eventId: names.eventId, deviceId: names.deviceId, version: names.backupVersion, scope: 'global' },
    ...{ kind: 'override', eventType: 'm.room.message', type: 'x.y', field: 'displayname', receiptType: 'm.read' },
    stage: 'm.login.dummy',
  };
  return known[name] ?? 'x';
}

/** A thousand connections that send or read slowly. */
async function crowds(bench: Bench, port: number, { tokens, names }: World): Promise<void> {
  const rows: Row[] = [['what', 'connections', 'how', 'left at the end', 'turn ms', 'CPU ms', 'RSS MiB']];
  const keys: Shape = { name: 'keys', parts: ['{', '"k#":1', '}'] };
  const token = { authorization: `Bearer ${tokens['user']}` };
  const v3 = '/_matrix/client/v3';
  for (let i = 0; i < 60; i++) {
    const body = JSON.stringify({ msgtype: 'm.text', body: 'x'.repeat(60_000) });
    const path = `${v3}/rooms/${encodeURIComponent(names.roomId)}/send/m.room.message/big${i}`;
    await bench.cost({ ...{ port, method: 'PUT', path, headers: token, body }, mode: 'once' });
  }
  const messages = `${v3}/rooms/${encodeURIComponent(names.roomId)}/messages?dir=b&limit=100`;
  const send = (path: string, bytes: number, headers: Record<string, string>): Load => ({
    ...{ port, method: 'PUT', path, headers, body: { shape: keys, bytes }, mode: 'slow-send', connections: 1_000 },
  });
  const crowd: readonly (readonly [string, Load])[] = [
    ['slow senders, no token', { ...send(`${v3}/login`, 65_536, {}), method: 'POST' }],
    ['slow senders, token', send(`${v3}/user/${names.userId}/account_data/x`, 2_097_152, token)],
    ['slow senders, large', send(`${v3}/room_keys/keys?version=${names.backupVersion}`, 8_388_608, token)],
    ['slow uploads', { ...send('/_matrix/media/v3/upload', 1_048_576, token), method: 'POST' }],
    ['slow senders to the administrators', send(`/_synapse/admin/v2/users/${names.userId}`, 262_144, token)],
    ['slow senders of other servers', send('/_matrix/federation/v1/send/t', 13_107_200, {})],
    [
      'slow readers',
      { port, method: 'GET', path: messages, headers: token, mode: 'slow-read', connections: 1_000, holdMs: 75_000 },
    ],
    [
      'slow readers of nothing much',
      { port, method: 'GET', path: '/_matrix/client/versions', headers: {}, mode: 'slow-read', connections: 1_000 },
    ],
  ];
  const chosen = process.argv.slice(3).join(' ');
  for (const [name, load] of crowd) {
    if (!name.startsWith(chosen)) continue;
    const cost = await bench.cost(load);
    note(rows, name, crowdSize, load.mode, cost);
  }
  table('Crowds', rows);
}

/** Requests of other servers: unproven, proven, and written in another way than they were signed. */
async function federation(bench: Bench): Promise<void> {
  const world = await FederationWorld.create();
  const rows: Row[] = [heading];
  try {
    const here = await world.homeserver('here.test');
    const there = await world.played('there.test');
    const port = portOf(here);
    await there.request(here, 'GET', '/_matrix/federation/v1/publicRooms?limit=1');
    const lists = (count: number): unknown[] => Array.from({ length: count }, () => []);
    const keys = (count: number): JsonObject =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 1]));
    const pdus = (content: JsonObject): JsonObject => ({
      edus: [],
      pdus: Array.from({ length: 50 }, () => ({
        ...{ type: 'x', room_id: '!a:b', sender: '@a:there.test', depth: 1, origin_server_ts: 1 },
        ...{ hashes: {}, signatures: {}, auth_events: [], prev_events: [], content },
      })),
    });
    const bodies: readonly (readonly [string, JsonObject])[] = [
      ['nothing', {}],
      ['240,000 lists', { a: lists(240_000) }],
      ['200,000 keys', { a: keys(200_000) }],
      ['24,000 keys', { a: keys(24_000) }],
      ['a text of 13 MB', { a: 'é'.repeat(6_500_000) }],
      ['50 PDUs of lists', pdus({ a: lists(4_900) })],
      ['50 PDUs of keys', pdus(keys(4_900))],
    ];
    let number = 0;
    for (const [name, content] of bodies) {
      const body = canonicalJson({ ...content, origin: 'there.test', origin_server_ts: 1 });
      for (const how of ['signed', 'rewritten', 'not signed', 'of nobody']) {
        const uri = `/_matrix/federation/v1/send/t${number++}`;
        const signed = { ...content, origin: 'there.test', origin_server_ts: 1 };
        const authorization =
          how === 'of nobody'
            ? `X-Matrix origin="nobody.test",destination="here.test",key="ed25519:1",sig="${'a'.repeat(86)}"`
            : there.authorization('PUT', how === 'not signed' ? '/other' : uri, 'here.test', signed);
        const text = how === 'rewritten' || how === 'not signed' ? ` ${body}` : body;
        const cost = await bench.cost({
          ...{ port, method: 'PUT', path: uri, headers: { authorization }, body: text },
          mode: 'once',
        });
        note(rows, `send, ${how}`, text.length, name, cost);
      }
    }
    const large = { a: 'x'.repeat(13_000_000), origin: 'there.test', origin_server_ts: 1 };
    const uri = `/_matrix/federation/v1/send/t${number++}`;
    const slow = await bench.cost({
      ...{ port, method: 'PUT', path: uri, mode: 'slow-send', connections: crowdSize },
      headers: { authorization: there.authorization('PUT', uri, 'here.test', large) },
      body: { shape: { name: 'text', parts: ['{"a":"', 'x#', '"}'] }, bytes: 13_000_000 },
    });
    note(rows, 'send, by slow senders whose signature is good', crowdSize, 'slow-send', slow);
    table('Transactions of other servers', rows);
    await federationRoutes(bench, port, there, here);
  } finally {
    await world.stop();
  }
}

/** The worst signed request to every route for other servers. */
async function federationRoutes(bench: Bench, port: number, there: PlayedServer, here: TestHomeserver): Promise<void> {
  const rows: Row[] = [heading];
  for (const route of routesOf(here, ['/_matrix/federation/'])) {
    const path = route.paths[0]!.replace(/:roomId/g, '!a:here.test')
      .replace(/:userId/g, '@a:here.test')
      .replace(/:\w+/g, 'x');
    let found: (Cost & { shape: string }) | undefined;
    const send = async (shape: string, uri: string, content?: JsonObject): Promise<Cost> => {
      const authorization = there.authorization(route.method, uri, 'here.test', content);
      const body = content === undefined ? {} : { body: canonicalJson(content) };
      const cost = await bench.steadyCost({
        port,
        method: route.method,
        path: uri,
        headers: { authorization },
        ...body,
        mode: 'once',
      });
      if (found === undefined || cost.turnMs > found.turnMs) found = { ...cost, shape };
      return cost;
    };
    if (route.method === 'GET') for (const [name, query] of hardQueries(12_000)) await send(name, `${path}?${query}`);
    else
      for (const shape of shapesFor(undefined).filter(({ name }) => name !== 'numbers'))
        for (const bytes of [1_048_576, 262_144]) {
          const cost = await send(shape.name, path, JSON.parse(textOf(shape, bytes)) as JsonObject);
          if (!cost.answer.startsWith('413')) break;
        }
    if (found !== undefined) note(rows, route.name, '', (found as { shape: string }).shape, found);
  }
  table('The worst request of another server to each route', rows);
}

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;
/** Has everything collected that nobody holds: what an answer consists of may take two rounds. */
async function settle(): Promise<void> {
  for (let round = 0; round < 3; round++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Bytes that are no zeros, which the system would not keep, and that nothing makes shorter. */
function bytesOf(size: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at += noise.length) bytes.set(noise.subarray(0, size - at), at);
  return bytes;
}
const noise = randomBytes(65_536);

/** A body whose pieces are made as they are read, each after a time. */
function streamOf(count: number, size: number, afterMs?: number): ReadableStream<Uint8Array<ArrayBuffer>> {
  // A single one is large: it is made before anybody reads.
  let first = count === 1 ? bytesOf(size) : undefined;
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(to) {
        if (afterMs !== undefined) await new Promise((resolve) => setTimeout(resolve, afterMs));
        if (count-- === 0) return to.close();
        to.enqueue(first ?? bytesOf(size));
        first = undefined;
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * Requests to a path of a module, and answers that it gives, up to their limits; then a thousand of each.
 *
 * The module is in this process, so that what it holds looks like the server's. It therefore holds nothing that it need not: it makes an
 * answer for the request that is measured, no others in advance, and where it can a piece at a time, which it lets go as it hands
 * it over. Pieces are never views of the same bytes, or what the server holds of them would not be seen. What answers before have left to
 * the collector, hundreds of MiB that the module made, is collected before each look; what the server holds of them would stay.
 * Nothing is taken off the figures: what the runtime copies for a `Response` of bytes (two copies) or of text is counted still,
 * though it is not the server's either.
 */
async function webResources(bench: Bench): Promise<void> {
  const module = fileURLToPath(new URL('../e2e/modules/fixtures/web.ts', import.meta.url));
  const listeners = [
    { port: 0, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'], compress: true }] },
  ];
  const homeserver = await createTestHomeserver({ settings: { modules: [{ module }], listeners } });
  const rows: Row[] = [heading];
  const request = { port: portOf(homeserver), path: '/_synapse/client/web/answer', headers: {} };
  try {
    web.answer = () => new Response('seen');
    for (const shape of [...shapesFor(undefined), { name: 'text', parts: ['', 'x'.repeat(1_000), ''] } as const]) {
      const load: Load = { ...request, method: 'POST', body: { shape, bytes: largestWebBodyBytes }, mode: 'once' };
      note(rows, 'POST to a module', largestWebBodyBytes, shape.name, await bench.steadyCost(load));
    }
    const headers = Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`x-h${i}`, 'x'.repeat(1_000)]));
    const packed = { 'accept-encoding': 'gzip' };
    for (const [name, answer, asked] of [
      ['100 MiB in one piece', () => new Response(streamOf(1, webAnswerBytes))],
      ['100 MiB that the runtime copies', () => new Response(bytesOf(webAnswerBytes))],
      ['100 MiB of text', () => new Response('x'.repeat(webAnswerBytes))],
      ['100 MiB in pieces', () => new Response(streamOf(100, 1_048_576))],
      ['100 MiB in awkward pieces', () => new Response(streamOf(3_000, 34_000))],
      ['100 MiB, packed', () => new Response(streamOf(1_600, 65_536)), packed],
      ['100 MiB in one piece, packed', () => new Response(streamOf(1, webAnswerBytes)), packed],
      ['100,000 pieces of a byte', () => new Response(streamOf(100_000, 1))],
      ['more than 100 MiB', () => new Response(streamOf(200, 1_048_576))],
      ['2 MB of headers', () => new Response('', { headers })],
    ] as const) {
      let made: Response | undefined;
      web.answer = () => {
        const given = made ?? answer();
        made = undefined;
        return given;
      };
      // Made before: what making it takes is the module's own time. One for each request, for a module holds no more of them either.
      const cost = await bench.steadyCost(
        { ...request, headers: asked ?? {}, method: 'GET', mode: 'once' },
        async () => {
          made = undefined;
          await settle();
          made = answer();
          await settle();
        },
      );
      note(rows, 'GET from a module', webAnswerBytes, name, cost);
    }
    const text: Shape = { name: 'text', parts: ['', 'x'.repeat(1_000), ''] };
    const body = { shape: text, bytes: largestWebBodyBytes };
    const crowd = { ...request, connections: crowdSize };
    const sent = await bench.cost({ ...crowd, method: 'POST', body, mode: 'slow-send' }, settle);
    note(rows, 'slow senders to a module', crowdSize, 'slow-send', sent);
    const read = { ...crowd, method: 'GET', mode: 'slow-read' } as const;
    // One page for all: the runtime copies it for each.
    const page = bytesOf(4 * 1_048_576);
    web.answer = () => new Response(page);
    note(rows, 'slow readers of a module', crowdSize, 'slow-read', await bench.cost(read, settle));
    let number = 0;
    web.answer = () => new Response(streamOf(64, 65_536, 5 + (number++ % 20)));
    note(
      rows,
      'slow readers of a slow module',
      crowdSize,
      'slow-read',
      await bench.cost({ ...read, holdMs: 10_000 }, settle),
    );
    table('Web resources of modules', rows);
  } finally {
    await homeserver.stop();
  }
}

if (process.argv.includes('--load')) await serveLoad();
else {
  const only = process.argv[2] ?? '';
  const bench = new Bench();
  try {
    if (only === '' || only === 'federation') await federation(bench);
    if (only === '' || only === 'web') await webResources(bench);
    if (only !== 'federation' && only !== 'web') await routes(bench, only);
  } finally {
    bench.stop();
  }
  const over = summary();
  console.log(
    over.length === 0
      ? `\nNo turn of more than ${longestTurnMs} ms, and no more than ${largestGrowthMib} MiB above ${firstRssMib?.toFixed(0)}`
      : `\nOver the bounds:\n  ${over.join('\n  ')}`,
  );
  process.exit(over.length === 0 ? 0 : 1);
}
