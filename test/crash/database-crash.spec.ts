import { describeWithRedis, eventually } from '@rookery/testing';
import { ServerProcess } from '../support/server-process.js';
import { CrashClient } from './client.js';
import { Cluster } from './cluster.js';
import { type DurablePostgres, startDurablePostgres } from './durable-postgres.js';
import { roomBody } from './load.js';

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What becomes of PostgreSQL, and how it comes back. */
const crashes: readonly (readonly [
  name: string,
  crash: (postgres: DurablePostgres) => Promise<void>,
  downMs: number,
])[] = [
  ['one of its own processes is killed', (postgres) => postgres.killBackend(), 0],
  ['it is killed', (postgres) => postgres.kill(), 3_000],
  // Longer than a process may be without a sign of life.
  ['it crashes, and is away for long', (postgres) => postgres.crash(), 12_000],
];
const lanes = 4;

/** An answer that was not the one that was wanted, or none. */
interface Refusal {
  readonly status: number | undefined;
  readonly body: unknown;
}

/** Sends until it is told to end; says each message again until it is taken, as clients do. */
class Sender {
  readonly taken: string[] = [];
  readonly refusals: Refusal[] = [];
  #isEnded = false;

  constructor(
    private readonly client: CrashClient,
    private readonly roomId: string,
    private readonly name: string,
  ) {}

  async run(): Promise<void> {
    for (let n = 0; !this.#isEnded; n++) {
      const message = `${this.name}-${n}`;
      const path = `/rooms/${this.roomId}/send/m.room.message/${message}`;
      for (;;) {
        const answer = await this.client
          .request('PUT', path, { msgtype: 'm.text', body: message })
          .catch((error: unknown) => ({ status: undefined, body: String(error) }));
        if (answer.status === 200) break;
        this.refusals.push(answer);
        await sleep(100);
      }
      this.taken.push(message);
      await sleep(20);
    }
  }

  end(): void {
    this.#isEnded = true;
  }
}

/** @param processes those that must still be there afterwards */
async function outlivesAll(
  postgres: DurablePostgres,
  processes: readonly ServerProcess[],
  random: () => number,
): Promise<void> {
  const baseUrl = (): string => processes[Math.floor(random() * processes.length)]!.baseUrl;
  const alice = await CrashClient.register(baseUrl, 'alice');
  const { room_id: roomId } = await alice.ok<{ room_id: string }>('POST', '/createRoom', roomBody('room'));
  const pids = processes.map(({ pid }) => pid);
  const taken: string[] = [];
  for (const [index, [name, crash, downMs]] of crashes.entries()) {
    const senders = Array.from({ length: lanes }, (_, lane) => new Sender(alice, roomId, `${index}-${lane}`));
    const running = senders.map((sender) => sender.run());
    await eventually(() => senders.every((sender) => sender.taken.length >= 3));
    await crash(postgres);
    if (downMs > 0) {
      // Whoever wants something new is told at once that it cannot be had now, and when to come again; at each of them.
      for (const { baseUrl: own } of processes) {
        const there = await CrashClient.register(() => own, `b${Math.floor(random() * 1e9)}`).catch(String);
        expect(there).toContain('retry_after_ms');
        expect((await fetch(`${own}/health`)).status).toBe(503);
      }
      await sleep(downMs);
      await postgres.recover();
    }
    const before = senders.map((sender) => sender.taken.length);
    await eventually(() => senders.every((sender, lane) => sender.taken.length >= before[lane]! + 5));
    for (const sender of senders) sender.end();
    await Promise.all(running);
    taken.push(...senders.flatMap((sender) => sender.taken));
    const refusals = senders.flatMap((sender) => sender.refusals);
    const others = refusals.filter(
      ({ status, body }) => status !== 503 || !(Number((body as { retry_after_ms?: number }).retry_after_ms) > 0),
    );
    expect({ name, others: others.slice(0, 3) }).toEqual({ name, others: [] });
    await eventually(async () => {
      const healths = await Promise.all(processes.map(({ baseUrl: own }) => fetch(`${own}/health`)));
      return healths.every(({ ok }) => ok);
    });
    // It has healed without anybody who starts it again.
    expect(processes.map(({ isRunning, pid }) => isRunning && pid)).toEqual(pids);
  }
  const said: string[] = [];
  for (let from = ''; ;) {
    const { chunk, end } = await alice.ok<{ chunk: { content: { body?: string } }[]; end?: string }>(
      'GET',
      `/rooms/${roomId}/messages?dir=f&limit=500${from}`,
    );
    said.push(...chunk.flatMap(({ content }) => content.body ?? []));
    if (end === undefined) break;
    from = `&from=${end}`;
  }
  // Each once, whatever was said again.
  expect(said.toSorted()).toEqual(taken.toSorted());
}

describe('PostgreSQL that crashes and comes back', () => {
  it('is outlived by a server of one process, which loses nothing and says nothing twice', async () => {
    const postgres = await startDurablePostgres();
    const server = await ServerProcess.prepare('sqlite', { database: postgres.section });
    try {
      await server.start();
      await outlivesAll(postgres, [server], Math.random);
    } finally {
      await server.remove();
      await postgres.remove();
    }
  }, 600_000);
});

describeWithRedis('PostgreSQL that crashes beneath several processes', () => {
  it('is outlived by all of them', async () => {
    const cluster = await Cluster.start(3, {});
    try {
      await outlivesAll(
        cluster.postgres,
        cluster.members.map(({ process }) => process),
        Math.random,
      );
    } catch (error) {
      throw new Error(`${String(error)}\n${cluster.complaints}`, { cause: error });
    } finally {
      await cluster.remove();
    }
  }, 600_000);
});
