import { mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { spawn } from 'node:child_process';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SystemClock } from '@rookery/platform';
import {
  asPostgresAdmin,
  eachDatabase,
  eventually,
  openTestDatabase,
  PostgresLine,
  RecordingLogger,
  type TestDatabase,
} from '@rookery/testing';
import { claimDatabase, claimDatabases, openDatabase, type PostgresOptions } from '../index.js';

const otherProcess = `
  const { claimDatabase } = await import(process.argv[1]);
  const claim = await claimDatabase(JSON.parse(process.argv[2]), { waitMs: 0 });
  console.log('taken');
  setInterval(() => {}, 1000);
  void claim;`;

eachDatabase('A claim on a database', (open) => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await open();
  });

  it('is had by one at a time, and by the next once it is given up', async () => {
    const first = await claimDatabase(test.options);
    const refused = await claimDatabase(test.options, { waitMs: 0 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({
      name: 'DatabaseError',
      message: expect.stringMatching(/^Another server runs on the database /),
      hint: expect.stringMatching(/^Stop that one first/),
    });
    const waiting = claimDatabase(test.options, { waitMs: 30_000 });
    await first.release();
    await first.release();
    const second = await waiting;
    await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await second.release();
  });

  it('is had on several databases, or on none', async () => {
    const other = await open();
    const all = [test.options, other.options];
    const held = await claimDatabase(other.options);
    await expect(claimDatabases(all, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await (await claimDatabase(test.options, { waitMs: 0 })).release();
    await held.release();
    const claim = await claimDatabases(all);
    for (const options of all) await expect(claimDatabase(options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await claim.release();
    await (await claimDatabases(all, { waitMs: 0 })).release();
    await other.close();
  });

  it('leaves other connections to their work', async () => {
    const claim = await claimDatabase(test.options);
    const command = await test.reopen();
    await command.write((tx) => tx.run('CREATE TABLE written_beside (n INTEGER)'));
    await test.database.write((tx) => tx.run('INSERT INTO written_beside VALUES (1)'));
    expect(await command.query('SELECT n FROM written_beside')).toEqual([{ n: 1 }]);
    await claim.release();
  });

  it('ends with the process that had it, though it was killed', async () => {
    const module = new URL('../../dist/index.js', import.meta.url).href;
    const child = spawn(process.execPath, [
      ...['--input-type=module', '-e', otherProcess],
      ...[module, JSON.stringify(test.options)],
    ]);
    let printed = '';
    child.stdout.on('data', (data: Buffer) => (printed += data.toString()));
    child.stderr.on('data', (data: Buffer) => (printed += data.toString()));
    try {
      await eventually(() => printed !== '');
      expect(printed).toBe('taken\n');
      await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    } finally {
      child.kill('SIGKILL');
    }
    await (await claimDatabase(test.options, { waitMs: 30_000 })).release();
  });
});

describe('A claim on a file', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-claim-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it('holds by whatever name the file is reached, and shows nobody anything', async () => {
    const path = join(folder, 'homeserver.db');
    const database = await openDatabase({ name: 'sqlite3', path }, new SystemClock());
    await symlink(path, join(folder, 'other.db'));
    const claim = await claimDatabase({ name: 'sqlite3', path });
    await expect(claimDatabase({ name: 'sqlite3', path: join(folder, 'other.db') }, { waitMs: 0 })).rejects.toThrow(
      /Another server runs on the database .*other\.db/,
    );
    expect((await stat(`${path}.lock`)).mode & 0o077).toBe(0);
    await claim.release();
    await database.close();
  });

  it('says when the lock cannot be made', async () => {
    const path = join(folder, 'homeserver.db');
    await writeFile(path, '');
    await writeFile(`${path}.lock`, "this is somebody's letter".repeat(50));
    await expect(claimDatabase({ name: 'sqlite3', path }, { waitMs: 0 })).rejects.toThrow(/Cannot lock the database/);
  });
});

describe('A claim on PostgreSQL', () => {
  let test: TestDatabase;
  let line: PostgresLine;
  let logger: RecordingLogger;
  /** The database by way of a line that can be cut. */
  let byLine: PostgresOptions;

  beforeEach(async () => {
    test = await openTestDatabase('postgres');
    line = await PostgresLine.open();
    logger = new RecordingLogger();
    const options = test.options as PostgresOptions;
    byLine = { ...options, args: { ...options.args, host: '127.0.0.1', port: line.port } };
  });
  afterEach(async () => {
    line.close();
    await test.close();
  });
  const again = (): boolean => logger.messages('info').includes('The database is kept from other servers again');

  it('is taken anew when its connection is ended, or cut', async () => {
    const claim = await claimDatabase(byLine, { logger });
    const dbname = String((test.options as PostgresOptions).args?.['dbname']);
    await asPostgresAdmin(
      `SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND d.datname = '${dbname}'`,
    );
    await eventually(again);
    await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    logger.lines.length = 0;
    line.goDown('silent');
    await eventually(() => logger.messages('warn').length > 0);
    line.comeBack();
    await eventually(again);
    await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await claim.release();
    await (await claimDatabase(test.options, { waitMs: 30_000 })).release();
  });

  it('is taken back from the session that the server still believes in', async () => {
    const far: Socket[] = [];
    const near: Socket[] = [];
    const halfOpen = createServer((client) => {
      const server = connect(line.port, '127.0.0.1');
      near.push(client.on('error', () => {}));
      far.push(server.on('error', () => {}));
      client.on('data', (chunk) => server.write(chunk));
      server.on('data', (chunk) => client.write(chunk)).on('close', () => client.destroy());
    });
    await new Promise<void>((resolve) => halfOpen.listen(0, '127.0.0.1', resolve));
    const { port } = halfOpen.address() as { port: number };
    const claim = await claimDatabase({ ...byLine, args: { ...byLine.args, port } }, { logger });
    // The server hears nothing of this.
    near[0]?.destroy();
    await eventually(again);
    expect(logger.messages('warn')).toHaveLength(1);
    await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await claim.release();
    halfOpen.close();
    for (const socket of far) socket.destroy();
  });

  it('is lost when another server took the database meanwhile', async () => {
    const claim = await claimDatabase(byLine, { logger });
    line.goDown('silent');
    const other = await claimDatabase(test.options, { waitMs: 30_000 });
    line.comeBack();
    expect((await claim.lost).message).toMatch(/Another server runs on the database/);
    await expect(claimDatabase(test.options, { waitMs: 0 })).rejects.toThrow(/Another server/);
    await claim.release();
    await other.release();
  });

  it('is not had by servers with schemas of their own in one database', async () => {
    const options = test.options as PostgresOptions;
    await test.database.write((tx) => tx.run('CREATE SCHEMA second'));
    const first = await claimDatabase(options);
    const second = await claimDatabase(
      { ...options, args: { ...options.args, options: '-csearch_path=second' } },
      { waitMs: 0 },
    );
    await first.release();
    await second.release();
  });
});
