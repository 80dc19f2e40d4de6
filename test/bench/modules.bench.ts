/**
 * What modules cost a client that sends. A built server in a process of its own gets the same sends over HTTP, now with ten
 * modules of one callback each, now without: they are put in force and taken out by a reload of the settings, as an operator
 * does it. Two processes of the same program differ by some percent for as long as they live, one from itself does not; and
 * short stretches, each beside its counterpart, are hurt alike by whatever changes in the hour. What counts is how long the
 * client waits: the median of its sends, one after the other. Beside it stands the CPU time of all threads of the process per
 * send, which has in it what modules do behind the answer, news of events above all. Memory is collected before each stretch,
 * so that no collection of everything falls into one: there is one in more than a thousand sends, it costs as much as two
 * hundred of them, and would hide what is looked for.
 *
 * Without modules the host's share is what its questions cost ("does anybody listen?"), counted on the send path and timed
 * here.
 *
 * `npm run bench -- modules [pairs of stretches] [sends per stretch] [judges | kinds | isolated]`
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { Codes, type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { callbackContext, ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { createTestHomeserver } from '@rookery/testing';
import { type BenchServer, type BenchUser, call, percentiles, register, room, startServer, table } from './support.js';

const pairs = Number(process.argv[2] ?? 40);
const sendsPerStretch = Number(process.argv[3] ?? 600);
const only = process.argv[4];
const warmUps = 4;
const sendsToWarmUp = 2_500;
/** A reload makes the engine throw away what it had compiled of the way to the modules; servers run for months after one. */
const sendsToSettle = 600;
const rooms = 16;
const limits = { none: 0.01, ten: 0.05, isolated: 0.4 };

const spam = `api.registerSpamCheckerCallbacks({
  checkEventForSpam: async ({ content }) => (content.body === 'spam' ? Codes.FORBIDDEN : NOT_SPAM) })`;
const rules = `api.registerThirdPartyRulesCallbacks({
  checkEventAllowed: async ({ type }) => type !== 'org.example.forbidden' })`;
const fields = `api.registerAddExtraFieldsToUnsignedClientEventCallbacks({
  addFieldToUnsigned: async ({ depth }) => ({ 'org.example.depth': depth }) })`;
const states = `api.registerSpamCheckerCallbacks({ userMaySendStateEvent: async () => NOT_SPAM })`;
const news = `api.registerThirdPartyRulesCallbacks({ onNewEvent: async () => {} })`;

/** Ten modules each: all on the way of a message, as servers have them, and in threads of their own. */
const sets: Readonly<
  Record<string, { readonly name: string; readonly callbacks: readonly string[]; readonly isolate?: 'thread' }>
> = {
  judges: { name: 'ten that judge each event', callbacks: Array.from({ length: 10 }, () => spam) },
  kinds: { name: 'ten of five kinds', callbacks: [spam, spam, spam, rules, rules, states, states, fields, news, news] },
  isolated: {
    name: 'ten that judge each event, in threads',
    callbacks: Array.from({ length: 10 }, () => spam),
    isolate: 'thread',
  },
};

/** Writes modules of one callback each; the entries for the settings. */
async function writeModules(
  folder: string,
  set: string,
  callbacks: readonly string[],
  isolate?: 'thread',
): Promise<object[]> {
  return Promise.all(
    callbacks.map(async (callback, i) => {
      const name = `${set.replaceAll(' ', '-')}-${i}`;
      const module = join(folder, `${name}.mjs`);
      await writeFile(
        module,
        `import { Codes, defineModule, NOT_SPAM } from '@rookery/module-api';
void [Codes, NOT_SPAM];
export default defineModule({ name: '${name}', register(api) { ${callback}; } });\n`,
      );
      return isolate ? { module, isolate } : { module };
    }),
  );
}

/** A server, what is sent to it, and the modules that it is told to have. */
interface Subject {
  readonly server: BenchServer;
  readonly user: BenchUser;
  readonly roomIds: readonly string[];
  readonly modules: readonly object[];
  txn: number;
}

/** Said by `modules-switch.mjs`, which the server runs beside itself. */
const said = { installed: 'modules-installed', collected: 'memory-collected' };

async function prepare(modules: readonly object[]): Promise<Subject> {
  const beside = join(process.cwd(), 'test/bench/modules-switch.mjs');
  const more = process.env['BENCH_NODE_ARGS']?.split(' ') ?? [];
  const server = await startServer({ modules }, ['--expose-gc', '--import', beside, ...more], 'main.js');
  const user = await register(server.baseUrl, 'bench');
  const roomIds: string[] = [];
  for (let i = 0; i < rooms; i++) roomIds.push(await room(server.baseUrl, [user]));
  return { server, user, roomIds, modules, txn: 0 };
}

/** Signals the server and waits until it says that it has done what the signal means. */
async function tell({ server }: Subject, signal: 'SIGHUP' | 'SIGUSR2', answer: string): Promise<void> {
  const file = join(server.folder, answer);
  rmSync(file, { force: true });
  process.kill(server.pid, signal);
  for (let tries = 0; !existsSync(file); tries++) {
    if (tries === 12_000) throw new Error(`The server does not answer ${signal}`);
    await pause(5);
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Puts the modules in force or takes them out, and leaves no garbage of that. */
async function change(subject: Subject, withModules: boolean): Promise<void> {
  const file = join(subject.server.folder, 'homeserver.yaml');
  const settings = parse(readFileSync(file, 'utf8')) as object;
  writeFileSync(file, stringify({ ...settings, modules: withModules ? subject.modules : [] }));
  await tell(subject, 'SIGHUP', said.installed);
  // Whatever else a reload does.
  await pause(100);
  await sendMany(subject, sendsToSettle);
  await tell(subject, 'SIGUSR2', said.collected);
}

interface Figures {
  /** Of all threads of the server process, milliseconds. */
  readonly cpuMs: number;
  /** From a request to its answer, the median. */
  readonly waitMs: number;
}

async function send({ server, user, roomIds }: Subject, txn: number): Promise<void> {
  const roomId = encodeURIComponent(roomIds[txn % rooms] ?? '');
  const path = `/_matrix/client/v3/rooms/${roomId}/send/m.room.message/t${txn}`;
  await call(server.baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body: `message ${txn} of ordinary length` });
}

/** Sends, one after the other; how long each took. */
async function sendMany(subject: Subject, sends: number): Promise<number[]> {
  const timesMs: number[] = [];
  for (let i = 0; i < sends; i++) {
    const startedAt = performance.now();
    await send(subject, ++subject.txn);
    timesMs.push(performance.now() - startedAt);
  }
  return timesMs;
}

/** CPU time of all threads of a process, in milliseconds. */
function cpuMs(pid: number): number {
  const times = readdirSync(`/proc/${pid}/task`).map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return times.reduce((sum, nanoseconds) => sum + nanoseconds, 0) / 1e6;
}

/** A stretch of sends; what each needed. */
async function stretch(subject: Subject, withModules: boolean): Promise<Figures> {
  await change(subject, withModules);
  const { pid } = subject.server;
  const before = cpuMs(pid);
  const { p50 } = percentiles(await sendMany(subject, sendsPerStretch));
  // What the server does behind the answer belongs to the send.
  await pause(150);
  return { cpuMs: (cpuMs(pid) - before) / sendsPerStretch, waitMs: p50 };
}

interface Pair {
  readonly without: Figures;
  readonly with: Figures;
}

/** Stretches with and without modules, by pairs: with or without first in turn. */
async function measure(subject: Subject): Promise<Pair[]> {
  for (let i = 0; i < warmUps; i++) {
    await change(subject, i % 2 === 1);
    await sendMany(subject, sendsToWarmUp);
  }
  const measured: Pair[] = [];
  for (let i = 0; i < pairs; i++) {
    if (i % 2 === 0) measured.push({ without: await stretch(subject, false), with: await stretch(subject, true) });
    else measured.push({ with: await stretch(subject, true), without: await stretch(subject, false) });
  }
  return measured;
}

const average = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * The mean without the lowest and the highest tenth, for in single stretches the machine does something else; and its
 * standard error.
 */
function middle(values: readonly number[]): { readonly mean: number; readonly error: number } {
  const cut = Math.floor(values.length / 10);
  const sorted = values.toSorted((a, b) => a - b);
  const kept = sorted.slice(cut, sorted.length - cut);
  // What was left out counts for the spread as the nearest that was not.
  const spread = sorted.map((value) => Math.min(Math.max(value, kept[0] ?? NaN), kept.at(-1) ?? NaN));
  const center = average(spread);
  const variance = spread.reduce((sum, value) => sum + (value - center) ** 2, 0) / (spread.length - 1);
  return { mean: average(kept), error: Math.sqrt(variance) / (kept.length / values.length) / Math.sqrt(values.length) };
}

/** How often one send asks the host something, by method. */
async function questionsPerSend(): Promise<Map<string, number>> {
  const asked = new Map<string, number>();
  const prototype = ModuleDispatcher.prototype as unknown as Record<string, (...args: unknown[]) => unknown>;
  const names = ['has', 'gate', 'transform', 'notify', 'provide', 'addFieldToUnsigned'];
  const originals = names.map((name) => [name, prototype[name]] as const);
  const homeserver = await createTestHomeserver({});
  try {
    const user = await homeserver.registerUser('bench');
    const { body } = await user.request<{ room_id: string }>('POST', '/createRoom', {});
    const path = `/rooms/${encodeURIComponent(body.room_id)}/send/m.room.message/`;
    const say = (txn: number): Promise<unknown> =>
      user.request('PUT', `${path}${txn}`, { msgtype: 'm.text', body: 'x' });
    await say(0);
    for (const [name, original] of originals) {
      prototype[name] = function (...args) {
        asked.set(name, (asked.get(name) ?? 0) + 1);
        return original?.apply(this, args);
      };
    }
    for (let txn = 1; txn <= 100; txn++) await say(txn);
  } finally {
    for (const [name, original] of originals) if (original) prototype[name] = original;
    await homeserver.stop();
  }
  return new Map([...asked].map(([name, times]) => [name, times / 100]));
}

/** What a question costs when nobody listens, milliseconds. */
async function questionMs(method: string): Promise<number> {
  const dispatcher = new ModuleDispatcher();
  const context = callbackContext(undefined);
  const times = 200_000;
  let best = Infinity;
  for (let round = 0; round < 7; round++) {
    let heard = 0;
    const startedAt = performance.now();
    for (let i = 0; i < times; i++) {
      if (method === 'has') heard += dispatcher.has(i % 2 === 0 ? 'checkEventForSpam' : 'checkEventAllowed') ? 1 : 0;
      else await dispatcher.notify('onUserLogin', context, '@bench:bench.test', undefined, undefined);
    }
    if (heard > 0) throw new Error('Somebody listens');
    best = Math.min(best, (performance.now() - startedAt) / times);
  }
  return best;
}

/**
 * What it costs to ask ten judges once all of it is compiled, milliseconds: the shortest of many rounds, which is the same
 * however busy the machine is.
 */
async function judgesMs(): Promise<number> {
  const registry = new ModuleRegistry(() => {});
  for (let i = 0; i < 10; i++) {
    registry.addModule(`judge-${i}`);
    registry.add(`judge-${i}`, { onError: 'deny', timeLimitMs: undefined }, 'spamChecker', {
      checkEventForSpam: async ({ content }) => (content['body'] === 'spam' ? Codes.FORBIDDEN : NOT_SPAM),
    });
  }
  const dispatcher = new ModuleDispatcher();
  dispatcher.install(registry.seal());
  const context = callbackContext(undefined);
  const event = Object.freeze({ type: 'm.room.message', content: Object.freeze({ body: 'of ordinary length' }) });
  const times = 500;
  let best = Infinity;
  for (let round = 0; round < 200; round++) {
    const startedAt = performance.now();
    for (let i = 0; i < times; i++)
      await dispatcher.gate('checkEventForSpam', context, event as unknown as ModuleEvent);
    best = Math.min(best, (performance.now() - startedAt) / times);
  }
  return best;
}

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-modules-'));
let isWithin = true;
const percent = (share: number, error: number): string =>
  `${(share * 100).toFixed(share < 0.01 ? 3 : 1)}${error === 0 ? '' : ` ± ${(error * 100).toFixed(1)}`} %`;
const judge = (share: number, error: number, limit: number): string => {
  if (!(share + 2 * error < limit)) isWithin = false;
  return `${percent(share, error)} (limit ${limit * 100} %)`;
};
/** How much more one of the figures is with modules, and what it is without. */
function difference(
  measured: readonly Pair[],
  figure: keyof Figures,
): { without: number; more: number; error: number } {
  const without = middle(measured.map((pair) => pair.without[figure])).mean;
  const { mean, error } = middle(measured.map((pair) => pair.with[figure] - pair.without[figure]));
  return { without, more: mean / without, error: error / without };
}
try {
  const questions = await questionsPerSend();
  let hostMs = 0;
  for (const [method, times] of questions) hostMs += times * (await questionMs(method));
  const rows: (string | number)[][] = [['', 'ms per send', 'CPU ms per send', 'slower', 'CPU more']];
  let waitWithoutMs = NaN;
  for (const [set, { name, callbacks, isolate }] of Object.entries(sets)) {
    if (only !== undefined && only !== set) continue;
    const subject = await prepare(await writeModules(folder, set, callbacks, isolate));
    try {
      const measured = await measure(subject);
      const wait = difference(measured, 'waitMs');
      const cpu = difference(measured, 'cpuMs');
      waitWithoutMs = wait.without;
      rows.push(['no module', wait.without, cpu.without, '', '']);
      const limit = isolate ? limits.isolated : limits.ten;
      const verdict = judge(wait.more, wait.error, limit);
      const [waitMs, cpuMs] = [wait.without * (1 + wait.more), cpu.without * (1 + cpu.more)];
      rows.push([name, waitMs, cpuMs, verdict, percent(cpu.more, cpu.error)]);
    } finally {
      await subject.server.stop();
    }
  }
  table(`Sends over HTTP, one after the other, ${pairs} pairs of ${sendsPerStretch}; ± is the standard error`, rows);
  const asked = [...questions].map(([method, times]) => `${times} × ${method}`).join(', ');
  const share = judge(hostMs / waitWithoutMs, 0, limits.none);
  console.log(`\nThe host without modules: ${asked || 'nothing'} per send, ${(hostMs * 1000).toFixed(3)} µs: ${share}`);
  const judging = await judgesMs();
  const part = percent(judging / waitWithoutMs, 0);
  console.log(`Ten judges, compiled, and nothing around them: ${(judging * 1000).toFixed(1)} µs, ${part} of a send`);
  if (!isWithin) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
process.exit();
