import { freePort } from '@rookery/testing';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { stringify } from 'yaml';
import { unlimited } from '../support/server-process.js';

/** A server in a process of its own, for measuring. */
export interface BenchServer {
  readonly baseUrl: string;
  readonly folder: string;
  readonly pid: number;
  /** Seconds of CPU that the process has used. */
  cpuSeconds(): number;
  /** Resident memory, MiB. */
  residentMib(): number;
  stop(): Promise<void>;
}

/**
 * Starts the built server on an empty database; `database` is the section of the settings, SQLite unless given.
 * @param program of the homeserver's `dist`; not the bundle where something beside it reaches into its classes
 */
export async function startServer(
  settings: object = {},
  nodeArgs: readonly string[] = [],
  program = 'bundle/main.js',
): Promise<BenchServer> {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-'));
  const port = await freePort();
  const file = join(folder, 'homeserver.yaml');
  await writeFile(
    file,
    stringify({
      server_name: 'bench.test',
      report_stats: false,
      signing_key_path: join(folder, 'signing.key'),
      media_store_path: join(folder, 'media'),
      registration_shared_secret: 'shared',
      enable_registration: true,
      enable_registration_without_verification: true,
      bcrypt_rounds: 4,
      log_level: 'warn',
      database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } },
      listeners: [
        {
          port,
          bind_addresses: ['127.0.0.1'],
          type: 'http',
          resources: [{ names: ['client', 'federation', 'metrics'] }],
        },
      ],
      ...unlimited,
      ...settings,
    }),
  );
  const environment = { ...process.env };
  delete environment['NODE_OPTIONS'];
  const child: ChildProcess = spawn(
    process.execPath,
    [...nodeArgs, join(process.cwd(), 'apps/homeserver/dist', program), '--config', file],
    { cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  child.stdout?.resume();
  const baseUrl = `http://127.0.0.1:${port}`;
  for (let tries = 0; tries < 12_000; tries++) {
    if ((await fetch(`${baseUrl}/health`).catch(() => undefined))?.ok) break;
    if (child.exitCode !== null) throw new Error(`The server ended with ${child.exitCode}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  const stat = (): string[] => readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return {
    baseUrl,
    folder,
    pid: child.pid ?? NaN,
    cpuSeconds: () => (Number(stat()[11]) + Number(stat()[12])) / 100,
    residentMib: () => (Number(stat()[21]) * 4096) / 1024 / 1024,
    async stop() {
      const ended = new Promise((resolve) => child.on('exit', resolve));
      child.kill('SIGTERM');
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A connection pool that keeps as many sockets as the load needs. */
export const pool = new Agent({
  connections: 4_096,
  pipelining: 1,
  keepAliveTimeout: 60_000,
  bodyTimeout: 0,
  headersTimeout: 0,
});

/** One request with a JSON answer. @throws Error on any other status than 200 */
export async function call<T = Record<string, unknown>>(
  baseUrl: string,
  method: 'GET' | 'PUT' | 'POST',
  path: string,
  token?: string,
  body?: unknown,
): Promise<T> {
  const response = await request(`${baseUrl}${path}`, {
    method,
    dispatcher: pool,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      'content-type': 'application/json',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.body.text();
  if (response.statusCode !== 200) throw new Error(`${method} ${path}: ${response.statusCode} ${text}`);
  return JSON.parse(text) as T;
}

/** An account for the load. */
export interface BenchUser {
  readonly userId: string;
  readonly token: string;
}

/** Makes an account, past the limits that registration by clients has. */
export async function register(
  baseUrl: string,
  username: string,
  admin = false,
  secret = 'shared',
): Promise<BenchUser> {
  const path = '/_synapse/admin/v1/register';
  const { nonce } = await call<{ nonce: string }>(baseUrl, 'GET', path);
  const password = 'a long enough password';
  const mac = createHmac('sha1', secret)
    .update([nonce, username, password, admin ? 'admin' : 'notadmin'].join('\0'))
    .digest('hex');
  const answer = await call<{ user_id: string; access_token: string }>(baseUrl, 'POST', path, undefined, {
    ...{ nonce, username, password, mac, admin },
  });
  return { userId: answer.user_id, token: answer.access_token };
}

/** Makes a public room that all of `users` have joined; the first one creates it. */
export async function room(baseUrl: string, users: readonly BenchUser[], options: object = {}): Promise<string> {
  const [creator] = users;
  const { room_id: roomId } = await call<{ room_id: string }>(
    baseUrl,
    'POST',
    '/_matrix/client/v3/createRoom',
    creator?.token,
    {
      preset: 'public_chat',
      ...options,
    },
  );
  for (const user of users.slice(1)) await call(baseUrl, 'POST', `/_matrix/client/v3/join/${roomId}`, user.token, {});
  return roomId;
}

/** Sorted times and what is read from them. */
export function percentiles(timesMs: readonly number[]): { p50: number; p95: number; p99: number } {
  const sorted = timesMs.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

/** Runs `work` from `parallel` lanes until `durationMs` is over. */
export async function load(
  parallel: number,
  durationMs: number,
  work: (lane: number) => Promise<unknown>,
): Promise<{ readonly perSecond: number; readonly timesMs: readonly number[] }> {
  const timesMs: number[] = [];
  const startedAt = performance.now();
  const lane = async (number: number): Promise<void> => {
    while (performance.now() - startedAt < durationMs) {
      const before = performance.now();
      await work(number);
      timesMs.push(performance.now() - before);
    }
  };
  await Promise.all(Array.from({ length: parallel }, (_, number) => lane(number)));
  return { perSecond: timesMs.length / ((performance.now() - startedAt) / 1000), timesMs };
}

/** Prints rows under headings, columns aligned. */
export function table(title: string, rows: readonly (readonly (string | number)[])[]): void {
  const text = rows.map((row) =>
    row.map((cell) => (typeof cell === 'number' ? cell.toFixed(cell < 10 ? 2 : 0) : cell)),
  );
  const widths = text[0]?.map((_, column) => Math.max(...text.map((row) => row[column]?.length ?? 0))) ?? [];
  console.log(`\n${title}`);
  for (const row of text) console.log(`  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`);
}
