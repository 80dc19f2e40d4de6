import { type ChildProcess, spawn } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '@rookery/testing';
import { temporaryFolder } from '@rookery/testing/internal';
import pg from 'pg';
import { stringify } from 'yaml';

export type DatabaseKind = 'sqlite' | 'postgres';
export const databaseKinds: readonly DatabaseKind[] = ['sqlite', 'postgres'];

async function withAdministrator<T>(fn: (client: pg.Client) => Promise<T>): Promise<T> {
  const connectionString = process.env['ROOKERY_TEST_POSTGRES'];
  if (!connectionString) throw new Error('ROOKERY_TEST_POSTGRES is not set: run the tests with npm test');
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return await fn(client);
  } finally {
    await client.end();
  }
}

let databaseNumber = 0;

/** Where a database lies: a file of SQLite, or its name in the PostgreSQL of the tests. */
export type DatabasePlace = { readonly file: string } | { readonly name: string };

/** A `database` section for an empty database, where that is, and how to remove it. */
export async function emptyDatabase(
  kind: DatabaseKind,
  folder: string,
): Promise<{ section: object; place: DatabasePlace; drop(): Promise<void> }> {
  if (kind === 'sqlite') {
    const file = join(folder, 'homeserver.db');
    return {
      section: { name: 'sqlite3', args: { database: file } },
      place: { file },
      drop: () => Promise.resolve(),
    };
  }
  databaseNumber += 1;
  const name = `e2e_${process.pid}_${databaseNumber}_${Math.random().toString(36).slice(2)}`;
  await withAdministrator((client) =>
    client.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'`),
  );
  const url = new URL(process.env['ROOKERY_TEST_POSTGRES'] ?? '');
  return {
    section: {
      name: 'psycopg2',
      args: {
        user: url.username,
        password: url.password,
        host: url.hostname,
        port: Number(url.port),
        dbname: name,
        cp_min: 1,
        cp_max: 5,
      },
    },
    place: { name },
    drop: () =>
      withAdministrator((client) => client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)).then(() => undefined),
  };
}

/** A homeserver as its operator runs it: the built program with a settings file, in a folder of its own. */
export class ServerProcess {
  #child: ChildProcess | undefined;
  #output = '';

  private constructor(
    readonly folder: string,
    readonly configFile: string,
    readonly baseUrl: string,
    readonly registrationSecret: string,
    /** Where its rows are, unless the settings name another database. */
    readonly database: DatabasePlace,
    private readonly dropDatabase: () => Promise<void>,
  ) {}

  /** Prepares folder, database and settings; `settings` replace the defaults below. */
  static async prepare(kind: DatabaseKind, settings: object = {}): Promise<ServerProcess> {
    const folder = await temporaryFolder('rookery-e2e-');
    const port = await freePort();
    const database = await emptyDatabase(kind, folder);
    const secret = 'a shared secret for tests';
    const configFile = join(folder, 'homeserver.yaml');
    const defaults = {
      server_name: 'rookery.test',
      report_stats: false,
      public_baseurl: `http://127.0.0.1:${port}/`,
      signing_key_path: join(folder, 'signing.key'),
      media_store_path: join(folder, 'media'),
      registration_shared_secret: secret,
      macaroon_secret_key: 'macaroons',
      form_secret: 'forms',
      enable_registration: true,
      enable_registration_without_verification: true,
      bcrypt_rounds: 4,
      trusted_key_servers: [],
      database: database.section,
      listeners: [
        { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client', 'federation'] }] },
      ],
      ...unlimited,
    };
    await writeFile(configFile, stringify({ ...defaults, ...settings }));
    return new ServerProcess(folder, configFile, `http://127.0.0.1:${port}`, secret, database.place, database.drop);
  }

  /** Everything the program has printed. */
  get output(): string {
    return this.#output;
  }

  /** The process's id. @throws Error when it does not run */
  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error('the server does not run');
    return pid;
  }

  /** Whether it was started and has not ended since. */
  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Sends a signal that does not end it. */
  signal(signal: 'SIGHUP' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal);
  }

  /** Starts the program and waits until it answers. @param nodeArgs for the runtime, in front of the program */
  async start(nodeArgs: readonly string[] = [], variables: NodeJS.ProcessEnv = {}): Promise<void> {
    const main = join(process.cwd(), 'apps', 'homeserver', 'dist', 'bundle', 'main.js');
    const environment = { ...process.env, ...variables };
    delete environment['NODE_OPTIONS'];
    const child = spawn(process.execPath, [...nodeArgs, main, '--config', this.configFile], {
      ...{ cwd: this.folder, env: environment },
    });
    this.#child = child;
    child.stdout.on('data', (data: Buffer) => (this.#output += data.toString()));
    child.stderr.on('data', (data: Buffer) => (this.#output += data.toString()));
    for (let tries = 0; tries < 1_200; tries++) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}:\n${this.#output}`);
      const answer = await fetch(`${this.baseUrl}/health`).catch(() => undefined);
      if (answer?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`the server does not answer:\n${this.#output}`);
  }

  /** Sends a signal and waits for the end; the exit code, or the signal's name when it was killed. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<number | string> {
    const child = this.#child;
    if (child === undefined) return 0;
    this.#child = undefined;
    if (child.exitCode !== null) return child.exitCode;
    if (child.signalCode !== null) return child.signalCode;
    const ended = new Promise<number | string>((resolve) => child.on('exit', (code, by) => resolve(code ?? by ?? 0)));
    child.kill(signal);
    return ended;
  }

  /** Stops the program and removes folder and database. */
  async remove(): Promise<void> {
    await this.stop();
    await this.dropDatabase();
    await rm(this.folder, { recursive: true, force: true });
  }
}

const wide = { per_second: 100_000, burst_count: 100_000 };

/** Rate limits so wide that no test meets them. */
export const unlimited = {
  rc_message: wide,
  rc_registration: wide,
  rc_login: { address: wide, account: wide, failed_attempts: wide },
  rc_joins: { local: wide, remote: wide },
  rc_joins_per_room: wide,
  rc_invites: { per_room: wide, per_user: wide, per_issuer: wide },
  rc_room_creation: wide,
};
