import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from './eventually.js';
import { freePort } from './free-port.js';
import { describeWhere } from './where.js';

const program = ['redis-server', 'valkey-server'].find((name) => spawnSync(name, ['--version']).status === 0);

/** A suite that needs a Redis server. */
export const describeWithRedis = describeWhere(
  program !== undefined,
  'there is no redis-server or valkey-server on this machine',
);

/** A Redis server of a test's own, which keeps nothing on disk. */
export class TestRedis {
  #child: ChildProcess | undefined;

  private constructor(
    readonly port: number,
    private readonly folder: string,
    private readonly more: readonly string[],
  ) {}

  /** @param more settings on the command line */
  static async start(...more: string[]): Promise<TestRedis> {
    const redis = new TestRedis(await freePort(), await mkdtemp(join(tmpdir(), 'rookery-redis-')), more);
    await redis.up();
    return redis;
  }

  /** Starts it, again after {@link down}, on the same port. */
  async up(): Promise<void> {
    if (program === undefined) throw new Error('There is no redis-server on this machine');
    const settings = ['--port', String(this.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
    this.#child = spawn(program, [...settings, '--dir', this.folder, ...this.more], { stdio: 'ignore' });
    await eventually(() => answers(this.port));
  }

  /** Ends it as a crash does. */
  async down(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** It takes connections and what is written to them, and answers nothing; until {@link goOn}. */
  hang(): void {
    this.#child?.kill('SIGSTOP');
  }

  /** It goes on where it was. */
  goOn(): void {
    this.#child?.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    await this.down();
    await rm(this.folder, { recursive: true, force: true });
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    socket.once('data', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
