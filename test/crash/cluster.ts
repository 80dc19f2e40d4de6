import { eventually, TestRedis } from '@rookery/testing';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { ServerProcess } from '../support/server-process.js';
import { type DurablePostgres, startDurablePostgres } from './durable-postgres.js';
import { Line } from './line.js';
import { pick } from '../support/random.js';

/** One process of the server, with lines of its own to PostgreSQL and Redis. */
export interface Member {
  readonly process: ServerProcess;
  readonly toPostgres: Line;
  readonly toRedis: Line;
}

const short = (line: string): string => line.slice(0, 400);

/** A server of several processes that one test can harm in every way, and mend again, as an operator's machines would. */
export class Cluster {
  private constructor(
    readonly members: readonly Member[],
    readonly postgres: DurablePostgres,
    readonly redis: TestRedis,
    private readonly folder: string,
  ) {}

  /** @param settings besides those that several processes need */
  static async start(count: number, settings: object): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), 'rookery-cluster-'));
    const [postgres, redis] = await Promise.all([startDurablePostgres(), TestRedis.start()]);
    const members: Member[] = [];
    for (let n = 0; n < count; n++) {
      const toPostgres = await Line.open(() => postgres.section.args.port);
      const toRedis = await Line.open(() => redis.port);
      const process = await ServerProcess.prepare('sqlite', {
        ...settings,
        log_level: 'warn',
        ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
        public_baseurl: 'http://127.0.0.1/',
        database: { ...postgres.section, args: { ...postgres.section.args, port: toPostgres.port } },
        redis: { enabled: true, host: '127.0.0.1', port: toRedis.port },
      });
      members.push({ process, toPostgres, toRedis });
    }
    const cluster = new Cluster(members, postgres, redis, folder);
    // One makes the tables and the keys; the others come as they like.
    await members[0]?.process.start();
    await cluster.isWhole();
    return cluster;
  }

  /** Where a request goes: to any process. */
  readonly baseUrl = (random: () => number): string => pick(this.members, random)?.process.baseUrl ?? '';

  /** The process that writes, as the database has it; `undefined` while there is none. */
  async writer(): Promise<Member | undefined> {
    const writes = (await this.registered()).find((one) => one.writes);
    return this.members.find(({ process }) => process.isRunning && process.pid === writes?.pid);
  }

  /** Processes that the database believes to live. */
  async registered(): Promise<readonly { readonly pid: number; readonly writes: boolean; readonly untilMs: number }[]> {
    const rows = await this.query<{ name: string; writes: boolean; until: string }>(
      `SELECT name, expires_ts AS until, number IS NOT DISTINCT FROM (SELECT holder FROM leases WHERE name = 'writer') AS writes
         FROM processes WHERE NOT fenced AND expires_ts > extract(epoch FROM clock_timestamp()) * 1000`,
    );
    return rows.map(({ name, writes, until }) => ({
      ...{ pid: Number(/\d+$/.exec(name)?.[0]), writes, untilMs: Number(until) },
    }));
  }

  /** Asks the database, past the server. */
  async query<Row extends object>(text: string): Promise<Row[]> {
    const client = new pg.Client({ connectionString: this.postgres.url });
    client.on('error', () => {});
    await client.connect();
    try {
      return (await client.query<Row>(text)).rows;
    } finally {
      await client.end();
    }
  }

  /** Undoes every harm: starts what has ended, lets go on what was held up, and waits until all processes are there and one writes. */
  async mend(): Promise<void> {
    for (const { process, toPostgres, toRedis } of this.members) {
      toPostgres.mend();
      toRedis.mend();
      if (process.isRunning) process.signal('SIGCONT');
    }
    await this.isWhole();
  }

  /** Resolves once all processes are there, known to each other, and one of them writes. */
  async isWhole(): Promise<void> {
    const starts = new Map<Member, Promise<void>>();
    /** Whoever was just let go is there for the database until it is replaced: a sign of life from now on counts. */
    const before = new Map<number, number>();
    await eventually(async () => {
      for (const member of this.members) {
        if (member.process.isRunning || starts.has(member)) continue;
        // One that cannot start is started again, as whoever watches over processes does.
        const start = member.process.start().catch(() => undefined);
        starts.set(
          member,
          start.finally(() => starts.delete(member)),
        );
      }
      if (starts.size > 0) {
        await Promise.all(starts.values());
        return false;
      }
      const registered = await this.registered().catch(() => []);
      const running = new Set(this.members.flatMap(({ process }) => (process.isRunning ? process.pid : [])));
      for (const { pid, untilMs } of registered) if (!before.has(pid)) before.set(pid, untilMs);
      const isAlive = registered.every(({ pid, untilMs }) => untilMs > (before.get(pid) ?? Infinity));
      const isKnown = registered.length === running.size && registered.every(({ pid }) => running.has(pid));
      return running.size === this.members.length && isKnown && isAlive && registered.some(({ writes }) => writes);
    }, 300_000);
    await Promise.all(
      this.members.map(({ process }) =>
        eventually(async () => (await fetch(`${process.baseUrl}/health`).catch(() => undefined))?.ok),
      ),
    );
  }

  /** Who runs, and whom the database knows. */
  async state(): Promise<object> {
    const running = this.members.map(({ process }) => (process.isRunning ? process.pid : undefined));
    return { running, registered: await this.registered().catch(String) };
  }

  /** What the processes said last, of what is worth saying. */
  get complaints(): string {
    return this.members
      .map(({ process }, n) => `process ${n}:\n${process.output.split('\n').slice(-20).map(short).join('\n')}`)
      .join('\n');
  }

  async remove(): Promise<void> {
    for (const { process, toPostgres, toRedis } of this.members) {
      if (process.isRunning) process.signal('SIGCONT');
      await process.stop('SIGKILL');
      await process.remove();
      toPostgres.close();
      toRedis.close();
    }
    await this.redis.stop();
    await this.postgres.remove();
    await rm(this.folder, { recursive: true, force: true });
  }
}
