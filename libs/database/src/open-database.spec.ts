import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SilentLogger, SystemClock } from '@rookery/platform';
import { makeTestDatabasePlace, openTestDatabase, RecordingLogger, testPostgresUrl } from '@rookery/testing';
import { DatabaseError, type DatabaseOptions, openDatabase, openReader, type PostgresOptions } from './index.js';
import { checkPostgres, type PostgresFacts } from './postgres/postgres-checks.js';
import { checkSqliteVersion } from './sqlite/open-sqlite.js';

async function refusal(options: DatabaseOptions): Promise<DatabaseError> {
  const outcome = await openDatabase(options, new SystemClock()).catch((error: unknown) => error);
  expect(outcome).toBeInstanceOf(DatabaseError);
  const error = outcome as DatabaseError;
  expect(error.message).not.toContain('\n');
  expect(error.hint).toBeTruthy();
  return error;
}

describe('Opening SQLite', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-open-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));
  const sqlite = (path: string): DatabaseOptions => ({ name: 'sqlite3', path });

  it('makes the folder and the file, and opens them again', async () => {
    const path = join(folder, 'deep', 'er', 'home.db');
    for (let i = 0; i < 2; i++) {
      const database = await openDatabase(sqlite(path), new SystemClock());
      await database.write((tx) => tx.run('CREATE TABLE IF NOT EXISTS a (b)'));
      await database.close();
      await database.close();
    }
  });

  it('keeps the file and what lies beside it from others, but for a group that was let in', async () => {
    const path = join(folder, 'home.db');
    const files = [path, `${path}-wal`, `${path}-shm`];
    const modes = async (): Promise<number[]> =>
      Promise.all(files.map(async (file) => (await stat(file)).mode & 0o777));
    const visit = async (): Promise<number[]> => {
      const database = await openDatabase(sqlite(path), new SystemClock());
      await database.write((tx) => tx.run('CREATE TABLE IF NOT EXISTS a (b)'));
      const found = await modes();
      await database.close();
      return found;
    };
    expect(await visit()).toEqual([0o600, 0o600, 0o600]);
    await chmod(path, 0o644);
    expect(await visit()).toEqual([0o600, 0o600, 0o600]);
    await chmod(path, 0o640);
    expect(await visit()).toEqual([0o640, 0o640, 0o640]);
  });

  it('says that it begins anew where the file is empty, and does not where the log holds what the file has lost', async () => {
    const path = join(folder, 'home.db');
    await writeFile(path, '');
    const logger = new RecordingLogger();
    await (await openDatabase(sqlite(path), new SystemClock(), logger)).close();
    expect(logger.messages('warn')).toEqual(['The file of the database is empty: everything begins anew']);
    await writeFile(path, '');
    await writeFile(`${path}-wal`, 'what was written last');
    expect((await refusal(sqlite(path))).message).toMatch(/home.db is empty, but its log .*home.db-wal is not/);
    await expect(openReader(sqlite(path), new SystemClock())).rejects.toThrow('is empty, but its log');
    expect(await readFile(`${path}-wal`, 'utf8')).toBe('what was written last');
  });

  it('refuses what is no database, and leaves it as it was', async () => {
    const path = join(folder, 'letter.txt');
    await writeFile(path, 'Dear reader, this is no database. '.repeat(100));
    expect((await refusal(sqlite(path))).message).toMatch(/letter.txt is damaged or is no SQLite database/);
  });

  it('refuses a damaged database', async () => {
    const path = join(folder, 'home.db');
    const database = await openDatabase(sqlite(path), new SystemClock());
    await database.write((tx) => tx.run('CREATE TABLE things (id)'));
    await database.close();
    const { open } = await import('node:fs/promises');
    const file = await open(path, 'r+');
    await file.write(Buffer.alloc(3000, 0xee), 0, 3000, 100);
    await file.close();
    expect((await refusal(sqlite(path))).message).toMatch(/damaged/);
  });

  it('refuses a folder that can not be', async () => {
    await writeFile(join(folder, 'file'), '');
    expect((await refusal(sqlite(join(folder, 'file', 'home.db')))).message).toMatch(/Cannot open the database/);
    expect((await refusal(sqlite(folder))).message).toMatch(/Cannot open the database/);
  });

  it('refuses a file that it may not write', async () => {
    const path = join(folder, 'home.db');
    const database = await openDatabase(sqlite(path), new SystemClock());
    await database.close();
    await chmod(path, 0o444);
    await chmod(folder, 0o555);
    // The rights of files do not bind root.
    if (process.getuid?.() === 0) await (await openDatabase(sqlite(path), new SystemClock())).close();
    else expect((await refusal(sqlite(path))).message).toMatch(/Cannot open the database/);
    await chmod(folder, 0o755);
  });

  it('refuses memory, which two connections could not share', async () => {
    expect((await refusal(sqlite(':memory:'))).message).toMatch(/needs a file/);
  });

  it('refuses old versions', () => {
    expect(() => checkSqliteVersion('3.26.0')).toThrow('SQLite 3.26.0 is too old');
    checkSqliteVersion('3.27.0');
  });
});

describe('Opening PostgreSQL', () => {
  const with_ = (args: Record<string, unknown>, url = testPostgresUrl()): PostgresOptions => ({
    name: 'psycopg2',
    url,
    args,
  });

  it('opens with separate arguments as well', async () => {
    const { hostname, port, username, password } = new URL(testPostgresUrl());
    const args = {
      host: hostname,
      port: Number(port),
      user: username,
      password,
      database: 'postgres',
      cp_min: 1,
      cp_max: 2,
    };
    const database = await openDatabase({ name: 'psycopg2', args, txnLimit: 2 }, new SystemClock());
    const pids = new Set<number>();
    for (let i = 0; i < 6; i++)
      pids.add((await database.get<{ pid: number }>('SELECT pg_backend_pid() AS pid'))?.pid ?? 0);
    expect(pids.size).toBeGreaterThan(1);
    await database.close();
    await database.close();
  });

  it('says what is wrong in one line', async () => {
    expect((await refusal(with_({ password: 'wrong' }))).message).toMatch(/refused the user rookery/);
    const missing = await refusal(with_({ dbname: 'no "such"', user: 'rookery' }));
    expect(missing.message).toMatch(/has no database no "such"/);
    expect(missing.hint).toBe(
      `Create it: CREATE DATABASE "no ""such""" OWNER rookery ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;`,
    );
    expect((await refusal(with_({ host: 'no-such-host.invalid' }))).message).toMatch(/no-such-host.invalid/);
    expect((await refusal(with_({ sslmode: 'require' }))).message).toMatch(/SSL/);
  });

  it('does not wait for ever for a server that says nothing', async () => {
    const mute = createServer(() => {});
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    const { port } = mute.address() as { port: number };
    expect((await refusal(with_({ host: '127.0.0.1', port, connect_timeout: 1 }))).message).toMatch(
      /Cannot connect.*timeout/,
    );
    mute.close();
    expect((await refusal(with_({ host: '127.0.0.1', port: 1 }))).message).toMatch(/ECONNREFUSED/);
  });

  it('refuses a database that sorts text in another way, unless told to accept it', async () => {
    const place = await makeTestDatabasePlace(
      'postgres',
      "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0",
    );
    const error = await refusal(place.options);
    expect(error.message).toMatch(/has the ICU locale 'en-US' instead of 'C'/);
    expect(error.hint).toMatch(
      /CREATE DATABASE test_\w+ OWNER rookery ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;/,
    );
    const logger = new RecordingLogger();
    const accepted = await openDatabase(
      { ...(place.options as PostgresOptions), allowUnsafeLocale: true },
      new SystemClock(),
      logger,
    );
    expect(logger.messages('warn')).toHaveLength(1);
    await accepted.close();
    await place.remove();
  });

  it('refuses another encoding', async () => {
    const place = await makeTestDatabasePlace(
      'postgres',
      "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    expect((await refusal(place.options)).message).toMatch(/encoding SQL_ASCII instead of UTF8/);
    await place.remove();
  });

  describe('checks', () => {
    const good: PostgresFacts = {
      version: '16.3',
      collate: 'C',
      ctype: 'C',
      provider: 'c',
      locale: null,
      encoding: 'UTF8',
      database: 'd',
      standby: false,
    };
    const check = (facts: Partial<PostgresFacts>, unsafe = false): void =>
      checkPostgres({ ...good, ...facts }, unsafe, 'u', new SilentLogger());

    it.each([
      [{ version: '11.22' }, /PostgreSQL 11.22 is too old/],
      [{ collate: 'en_US.UTF-8' }, /COLLATE 'en_US.UTF-8' and CTYPE 'C'/],
      [{ ctype: 'C.UTF-8' }, /CTYPE 'C.UTF-8'/],
      [{ standby: true }, /read-only standby/],
    ])('refuses %j', (facts, message) => {
      expect(() => check(facts)).toThrow(message);
    });

    it('accepts what is safe, and what it is told to accept', () => {
      check({});
      check({ version: '12.0', provider: null });
      check({ collate: 'POSIX', ctype: 'POSIX' });
      check({ provider: 'b', locale: 'C.UTF-8', collate: 'en_US.UTF-8' });
      check({ collate: 'de_DE.UTF-8', ctype: 'de_DE.UTF-8' }, true);
      expect(() => check({ version: '9.6', collate: 'de_DE' }, true)).toThrow(/too old/);
    });
  });
});

describe('A test database', () => {
  it('is gone once closed', async () => {
    const test = await openTestDatabase('postgres');
    await test.close();
    expect((await refusal(test.options)).message).toMatch(/has no database/);
  });
});
