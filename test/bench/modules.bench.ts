/**
 * What modules cost a client that sends. Built servers, each in a process of its own: some without modules, as many with ten
 * of one callback each, loaded by path. They get the same sends over HTTP in short rounds, one server after the other, so that
 * each has the machine to itself and whatever changes in the hour hurts all alike. Two processes of the same program differ by
 * some percent for as long as they live; hence several of each, whose spread says how much a figure means. What counts is the
 * CPU time of the server process per send. Without modules the host's share is what its questions cost ("does anybody
 * listen?"), counted on the send path and timed here.
 *
 * `npm run bench -- modules [rounds] [sends per round] [servers of each kind]`
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { createTestHomeserver } from '@rookery/testing';
import { type BenchServer, type BenchUser, call, register, room, startServer, table } from './support.js';

const rounds = Number(process.argv[2] ?? 20);
const sendsPerRound = Number(process.argv[3] ?? 200);
const serversEach = Number(process.argv[4] ?? 4);
const lanes = 4;
const rooms = 16;
const limits = { none: 0.01, ten: 0.05 };

const spam = `api.registerSpamCheckerCallbacks({
  checkEventForSpam: async ({ content }) => (content.body === 'spam' ? Codes.FORBIDDEN : NOT_SPAM) })`;
const rules = `api.registerThirdPartyRulesCallbacks({
  checkEventAllowed: async ({ type }) => type !== 'org.example.forbidden' })`;
const fields = `api.registerAddExtraFieldsToUnsignedClientEventCallbacks({
  addFieldToUnsigned: async ({ depth }) => ({ 'org.example.depth': depth }) })`;
const states = `api.registerSpamCheckerCallbacks({ userMaySendStateEvent: async () => NOT_SPAM })`;
const news = `api.registerThirdPartyRulesCallbacks({ onNewEvent: async () => {} })`;

/** Ten modules each: all on the way of a message, and as servers have them. */
const sets = {
  'ten that judge each event': Array.from({ length: 10 }, () => spam),
  'ten of five kinds': [spam, spam, spam, rules, rules, states, states, fields, news, news],
};

/** Writes modules of one callback each; the entries for the settings. */
async function writeModules(folder: string, set: string, callbacks: readonly string[]): Promise<object[]> {
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
      return { module };
    }),
  );
}

/** A server and what is sent to it. */
interface Subject {
  readonly server: BenchServer;
  readonly user: BenchUser;
  readonly roomIds: readonly string[];
  txn: number;
}

async function prepare(modules: readonly object[]): Promise<Subject> {
  const server = await startServer({ modules }, process.env['BENCH_NODE_ARGS']?.split(' ') ?? []);
  const user = await register(server.baseUrl, 'bench');
  const roomIds: string[] = [];
  for (let i = 0; i < rooms; i++) roomIds.push(await room(server.baseUrl, [user]));
  return { server, user, roomIds, txn: 0 };
}

interface Figures {
  /** Of the server process, milliseconds. */
  readonly cpuMsPerSend: number;
  readonly perSecond: number;
}

async function send({ server, user, roomIds }: Subject, txn: number): Promise<void> {
  const roomId = encodeURIComponent(roomIds[txn % rooms] ?? '');
  const path = `/_matrix/client/v3/rooms/${roomId}/send/m.room.message/t${txn}`;
  await call(server.baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body: `message ${txn} of ordinary length` });
}

/** So many sends to a server; what each needed of CPU time and of time. */
async function sendRound(subject: Subject, sends: number): Promise<Figures> {
  const cpuBefore = subject.server.cpuSeconds();
  const startedAt = performance.now();
  const end = subject.txn + sends;
  const lane = async (): Promise<void> => {
    while (subject.txn < end) await send(subject, ++subject.txn);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  const seconds = (performance.now() - startedAt) / 1000;
  // What the server does behind the answer belongs to the send.
  await new Promise((resolve) => setTimeout(resolve, 100));
  return { cpuMsPerSend: ((subject.server.cpuSeconds() - cpuBefore) * 1000) / sends, perSecond: sends / seconds };
}

/** Rounds of one server after the other; the figures of each server. */
async function measure(subjects: readonly Subject[]): Promise<Figures[]> {
  const figures = subjects.map((): Figures[] => []);
  for (let i = 0; i < rounds; i++) {
    // Every other round the other way about: nobody always follows the same one.
    const order = [...subjects.keys()];
    for (const n of i % 2 === 0 ? order : order.toReversed()) {
      const subject = subjects[n];
      if (subject) figures[n]?.push(await sendRound(subject, sendsPerRound));
    }
  }
  return figures.map((own) => ({
    cpuMsPerSend: mean(own.map(({ cpuMsPerSend }) => cpuMsPerSend)),
    perSecond: mean(own.map(({ perSecond }) => perSecond)),
  }));
}

/** The mean without the lowest and the highest tenth: single rounds in which the machine did something else do not count. */
function mean(values: readonly number[]): number {
  const cut = Math.floor(values.length / 10);
  const kept = values.toSorted((a, b) => a - b).slice(cut, values.length - cut);
  return kept.reduce((sum, value) => sum + value, 0) / kept.length;
}

const average = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

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

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-modules-'));
let isWithin = true;
const judge = (share: number, limit: number): string => {
  if (!(share < limit)) isWithin = false;
  return `${(share * 100).toFixed(share < 0.01 ? 3 : 1)} % (limit ${limit * 100} %)`;
};
try {
  const questions = await questionsPerSend();
  let hostMs = 0;
  for (const [method, times] of questions) hostMs += times * (await questionMs(method));
  const rows: (string | number)[][] = [['', 'CPU ms per send', 'per second', 'CPU more', 'throughput']];
  let cpuWithout: number | undefined;
  for (const [name, callbacks] of Object.entries(sets)) {
    const modules = await writeModules(folder, name, callbacks);
    const subjects: Subject[] = [];
    try {
      for (let i = 0; i < serversEach; i++) subjects.push(await prepare([]), await prepare(modules));
      // The first sends meet code that is not compiled yet.
      for (const subject of subjects) await sendRound(subject, 3_000);
      const figures = await measure(subjects);
      const [plain, ten] = [0, 1].map((kind) => {
        const own = figures.filter((_, i) => i % 2 === kind);
        const cpus = own.map(({ cpuMsPerSend }) => cpuMsPerSend);
        const cpu = average(cpus);
        const variance = cpus.reduce((sum, value) => sum + (value - cpu) ** 2, 0) / (cpus.length - 1);
        return {
          cpu,
          perSecond: average(own.map(({ perSecond }) => perSecond)),
          error: Math.sqrt(variance / cpus.length),
        };
      });
      if (!plain || !ten) throw new Error('There are no figures');
      // The standard error of the difference: the figure below means no more than that.
      const noise = Math.hypot(plain.error, ten.error) / plain.cpu;
      cpuWithout ??= plain.cpu;
      rows.push([`no module, ${serversEach} servers`, plain.cpu, plain.perSecond, '', '']);
      const verdict = `${judge(ten.cpu / plain.cpu - 1, limits.ten)} ± ${(noise * 100).toFixed(1)}`;
      rows.push([`${name}, ${serversEach} servers`, ten.cpu, ten.perSecond, verdict, ten.perSecond / plain.perSecond]);
    } finally {
      await Promise.all(subjects.map(({ server }) => server.stop()));
    }
  }
  table(`Sends over HTTP, ${rounds} rounds of ${sendsPerRound}, one server after the other`, rows);
  const asked = [...questions].map(([method, times]) => `${times} × ${method}`).join(', ');
  console.log(
    `\nThe host without modules: ${asked || 'nothing'} per send, ${(hostMs * 1000).toFixed(3)} µs: ` +
      judge(hostMs / (cpuWithout ?? NaN), limits.none),
  );
  if (!isWithin) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
process.exit();
