import { spawn } from 'node:child_process';
import { SystemClock } from '@rookery/platform';
import { eventually, openTestDatabase, PostgresLine, RecordingLogger, type TestDatabase } from '@rookery/testing';
import {
  claimDatabase,
  databaseMigrations,
  failureLevel,
  isTransient,
  joinProcesses,
  openDatabase,
  type PostgresOptions,
  type ProcessRegistry,
} from '../index.js';

const ttlMs = 1_500;

/** A server's process that writes a row whenever it can, and says what becomes of it. */
const otherProcess = `
  const { joinProcesses, openDatabase } = await import(process.argv[1]);
  const { SystemClock } = await import(process.argv[2]);
  const options = JSON.parse(process.argv[3]);
  const registry = await joinProcesses(options, { name: 'other', version: '1', ttlMs: ${ttlMs}, startTtlMs: 0 });
  const database = await openDatabase(options, new SystemClock(), undefined, undefined, undefined, registry.number);
  void registry.lost.then((reason) => console.log('lost: ' + reason.message));
  console.log('took ' + (await registry.acquire(['typing', 'rooms/1'])).length);
  for (let n = 0; ; n++) {
    try {
      await database.write(async (tx) => {
        await tx.run('INSERT INTO written (n) VALUES (?)', [n]);
        // A transaction that is open when the process is paused, more often than not.
        await tx.get('SELECT pg_sleep(0.05)');
      });
    } catch (error) {
      console.log('refused');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }`;

describe('The processes of a server', () => {
  let test: TestDatabase;
  const joined: ProcessRegistry[] = [];

  beforeEach(async () => {
    test = await openTestDatabase('postgres');
    await test.migrate(databaseMigrations);
    await test.database.write((tx) => tx.run('CREATE TABLE written (n INTEGER)'));
  });
  afterEach(async () => {
    for (const one of joined.splice(0)) await one.leave();
    await test.close();
  });

  const options = (): PostgresOptions => test.options as PostgresOptions;
  const join = async (
    name: string,
    more: Partial<Parameters<typeof joinProcesses>[1]> = {},
  ): Promise<ProcessRegistry> => {
    const one = await joinProcesses(options(), { name, version: '1', ttlMs, startTtlMs: 0, ...more });
    joined.push(one);
    return one;
  };
  const through = ({ port }: PostgresLine): PostgresOptions => ({
    ...options(),
    args: { ...options().args, host: '127.0.0.1', port },
  });
  const names = (registry: ProcessRegistry): string[] => registry.view.processes.map(({ name }) => name);

  it('know each other, what each can do and how to reach it', async () => {
    const one = await join('one', { address: 'tcp://127.0.0.1:1' });
    const two = await join('two');
    await two.offer(['typing']);
    await one.beat();
    expect(one.view.processes).toEqual([
      { number: one.number, name: 'one', address: 'tcp://127.0.0.1:1', version: '1', roles: [] },
      { number: two.number, name: 'two', address: undefined, version: '1', roles: ['typing'] },
    ]);
    expect([one.isTrusted, two.isTrusted]).toEqual([true, true]);
    await two.leave();
    await two.leave();
    await one.beat();
    expect(names(one)).toEqual(['one']);
  });

  it('have names of their own, which are free again at once when their bearers leave in order', async () => {
    const one = await join('one');
    await expect(join('one')).rejects.toThrow('Another process of the name one runs on this database');
    await one.leave();
    expect((await join('one')).number).toBeGreaterThan(one.number);
  });

  it('are missed later while they start', async () => {
    const starting = await join('starting', { startTtlMs: 600_000 });
    const leftMs = async (): Promise<number> => {
      const sql =
        'SELECT expires_ts - extract(epoch FROM clock_timestamp()) * 1000 AS left_ms FROM processes WHERE number = ?';
      return Number((await test.database.get<{ left_ms: number }>(sql, [starting.number]))?.left_ms);
    };
    await starting.beat();
    expect(await leftMs()).toBeGreaterThan(300_000);
    expect(starting.isTrusted).toBe(true);
    await starting.started();
    // The table holds whole milliseconds.
    expect(await leftMs()).toBeLessThanOrEqual(ttlMs + 1);
  });

  it('have a lease one at a time, until it is given up', async () => {
    const [one, two] = [await join('one'), await join('two')];
    expect(await one.acquire(['typing', 'presence'])).toEqual(['presence', 'typing']);
    expect(await two.acquire(['typing', 'media'])).toEqual(['media']);
    expect(await one.acquire(['typing'])).toEqual(['typing']);
    await two.release(['typing']);
    expect(await two.acquire(['typing'])).toEqual([]);
    await one.release(['typing']);
    expect(await two.acquire(['typing'])).toEqual(['typing']);
    await one.beat();
    expect([...one.view.leases]).toEqual(
      expect.arrayContaining([
        ['presence', one.number],
        ['typing', two.number],
        ['media', two.number],
      ]),
    );
    await two.leave();
    expect(await one.acquire(['media', 'typing'])).toEqual(['media', 'typing']);
  });

  it('write nothing once they have left, though they had not closed the database', async () => {
    const [one, two] = [await join('one'), await join('two')];
    await one.acquire(['typing']);
    const database = await openDatabase(options(), new SystemClock(), undefined, undefined, undefined, one.number);
    const [begun, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const written = database.write(async (tx) => {
      await tx.run('INSERT INTO written (n) VALUES (?)', [1]);
      begun.resolve();
      await go.promise;
    });
    const outcome = written.then(
      () => 'written',
      () => 'refused',
    );
    await begun.promise;
    await one.leave();
    await eventually(async () => {
      await two.beat();
      return (await two.acquire(['typing'])).length === 1;
    });
    go.resolve();
    expect(await outcome).toBe('refused');
    expect(await test.database.query('SELECT n FROM written')).toEqual([]);
    await database.close();
  });

  it('see what there was when they asked, though they were looking already', async () => {
    const [one, two] = [await join('one'), await join('two')];
    const { first, second } = await test.database.write(async (tx) => {
      await tx.run('SELECT 1 FROM processes WHERE number = ? FOR UPDATE', [one.number]);
      const first = one.beat();
      const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%UPDATE processes SET expires_ts%'`;
      await eventually(async () => (await test.database.query(waiting)).length > 0);
      await two.acquire(['typing']);
      return { first, second: one.beat() };
    });
    await second;
    expect([...one.view.leases]).toEqual([['typing', two.number]]);
    await first;
  });

  it('compete without ever having the same', async () => {
    const all = await Promise.all(['a', 'b', 'c', 'd'].map((name) => join(name)));
    const wanted = Array.from({ length: 40 }, (_, i) => `rooms/${i}`);
    const taken = await Promise.all(all.map((one) => one.acquire(wanted)));
    expect(taken.flat().toSorted()).toEqual(wanted.toSorted());
  });

  it('cannot write once they were paused and others took over, not even what they had begun', async () => {
    const module = new URL('../../dist/index.js', import.meta.url).href;
    const platform = new URL('../../../platform/dist/index.js', import.meta.url).href;
    const child = spawn(process.execPath, [
      ...['--input-type=module', '-e', otherProcess],
      ...[module, platform, JSON.stringify(options())],
    ]);
    let printed = '';
    child.stdout.on('data', (data: Buffer) => (printed += data.toString()));
    child.stderr.on('data', (data: Buffer) => (printed += data.toString()));
    const written = async (): Promise<number> =>
      (await test.database.get<{ n: number }>('SELECT count(*) AS n FROM written'))?.n ?? 0;
    try {
      await eventually(async () => (await written()) > 3);
      expect(printed).toContain('took 2');
      const one = await join('one');
      expect(names(one)).toEqual(['other', 'one']);
      expect(await one.acquire(['typing'])).toEqual([]);
      child.kill('SIGSTOP');
      await eventually(async () => (await one.acquire(['typing', 'rooms/1'])).length === 2);
      const atTakeOver = await written();
      child.kill('SIGCONT');
      await eventually(() => printed.includes('lost: '));
      const refusals = printed.split('refused').length;
      await eventually(() => printed.split('refused').length > refusals + 5);
      expect(await written()).toBe(atTakeOver);
    } finally {
      child.kill('SIGKILL');
    }
  });

  it('are replaced when they are cut off from the database, and learn of it', async () => {
    const line = await PostgresLine.open();
    const logger = new RecordingLogger();
    const far: PostgresOptions = { ...options(), args: { ...options().args, host: '127.0.0.1', port: line.port } };
    const cut = await joinProcesses(far, { name: 'far', version: '1', ttlMs, startTtlMs: 0, logger });
    expect(await cut.acquire(['typing'])).toEqual(['typing']);
    const near = await join('near');
    try {
      line.goDown('silent');
      await eventually(() => !cut.isTrusted);
      await eventually(async () => (await near.acquire(['typing'])).length === 1);
      line.comeBack();
      expect((await cut.lost).message).toMatch(/gave no sign of life/);
      expect(cut.isTrusted).toBe(false);
    } finally {
      await cut.leave();
      line.close();
    }
  });

  it('know who was lost, and do not take for that who left in order', async () => {
    const line = await PostgresLine.open();
    const killed = await joinProcesses(through(line), { name: 'killed', version: '1', ttlMs, startTtlMs: 0 });
    const [one, two, leaving] = [await join('one'), await join('two'), await join('leaving')];
    try {
      expect([one.view.lost, two.view.lost]).toEqual([[], []]);
      await leaving.leave();
      line.goDown('silent');
      for (const other of [one, two]) await eventually(() => other.view.lost.length > 0);
      // Whoever comes later finds it as well.
      const late = await join('late');
      for (const other of [one, two, late]) {
        await other.beat();
        expect(other.view.lost).toEqual([killed.number]);
        expect(names(other)).toEqual(['one', 'two', 'late']);
      }
    } finally {
      line.comeBack();
      await killed.leave();
      line.close();
    }
  });

  describe('that end without a word', () => {
    // So long that nothing below is due to time that has run out, and no longer than a test may wait.
    const longMs = 9_000;
    const long = { ttlMs: longMs, startTtlMs: 0 };
    const leftMs = async (number: number): Promise<number> => {
      const sql =
        'SELECT expires_ts - extract(epoch FROM clock_timestamp()) * 1000 AS left_ms FROM processes WHERE number = ?';
      return Number((await test.database.get<{ left_ms: number }>(sql, [number]))?.left_ms);
    };
    /** Until whoever looks may judge by connections. */
    const whole = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, longMs));

    it('are replaced long before their time is over, since the system closes their connections', async () => {
      const line = await PostgresLine.open();
      const killed = await joinProcesses(through(line), { name: 'killed', version: '1', ...long });
      const near = await join('near', long);
      try {
        await killed.acquire(['typing']);
        await whole();
        line.goDown('silent');
        await eventually(async () => (await near.acquire(['typing'])).length === 1);
        expect(await leftMs(killed.number)).toBeGreaterThan(0);
        expect(names(near)).toEqual(['near']);
        line.comeBack();
        expect((await killed.lost).message).toMatch(/gave no sign of life/);
      } finally {
        await killed.leave();
        line.close();
      }
    }, 60_000);

    it('are not taken for those whose connection only broke, and who have another one at once', async () => {
      const line = await PostgresLine.open();
      const broken = await joinProcesses(through(line), { name: 'broken', version: '1', ...long });
      const near = await join('near', long);
      try {
        await broken.acquire(['typing']);
        await whole();
        line.goDown('silent');
        expect(broken.isTrusted).toBe(true);
        line.comeBack();
        await eventually(() => !broken.isTrusted);
        await eventually(() => broken.isTrusted);
        const untilMs = performance.now() + longMs / 2;
        while (performance.now() < untilMs) {
          await near.beat();
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        expect(names(near)).toEqual(['broken', 'near']);
        expect(await near.acquire(['typing'])).toEqual([]);
      } finally {
        await broken.leave();
        line.close();
      }
    }, 60_000);

    it('are not told from others by one whose own connection broke, as when the database restarts', async () => {
      const lines = await Promise.all([PostgresLine.open(), PostgresLine.open()]);
      const [early, late] = (await Promise.all(
        lines.map((line, n) => joinProcesses(through(line), { name: `p${n}`, version: '1', ...long })),
      )) as [ProcessRegistry, ProcessRegistry];
      try {
        await late.acquire(['typing']);
        await whole();
        for (const line of lines) line.goDown('silent');
        lines[0]!.comeBack();
        await eventually(() => early.isTrusted);
        // Longer than one would wait for whoever has ended.
        const untilMs = performance.now() + longMs / 2;
        while (performance.now() < untilMs) {
          await early.beat();
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        expect(await early.acquire(['typing'])).toEqual([]);
        lines[1]!.comeBack();
        await eventually(() => late.isTrusted);
        expect(names(late).toSorted()).toEqual(['p0', 'p1']);
      } finally {
        for (const one of [early, late]) await one.leave();
        for (const line of lines) line.close();
      }
    }, 60_000);
  });

  it('are not judged by one that could not reach the database itself, before they had the time to come back', async () => {
    const lines = await Promise.all([PostgresLine.open(), PostgresLine.open(), PostgresLine.open()]);
    // Long enough for a busy machine to come back in.
    const longMs = 6_000;
    const [first, second, third] = (await Promise.all(
      lines.map((line, n) =>
        joinProcesses(through(line), { name: `p${n}`, version: '1', ttlMs: longMs, startTtlMs: 0 }),
      ),
    )) as [ProcessRegistry, ProcessRegistry, ProcessRegistry];
    try {
      await third.acquire(['typing']);
      for (const line of lines) line.goDown('silent');
      const living = `SELECT 1 FROM processes WHERE expires_ts > extract(epoch FROM clock_timestamp()) * 1000`;
      await eventually(async () => (await test.database.query(living)).length === 0);
      lines[0]!.comeBack();
      await eventually(() => first.isTrusted);
      lines[1]!.comeBack();
      await eventually(() => second.isTrusted);
      // Who does not come back in that time is replaced.
      await eventually(async () => (await first.acquire(['typing'])).length === 1);
      await Promise.all([first.beat(), second.beat()]);
      // They came at once, so any of them may have come first.
      expect([names(first).toSorted(), names(second).toSorted()]).toEqual([
        ['p0', 'p1'],
        ['p0', 'p1'],
      ]);
    } finally {
      for (const one of [first, second, third]) await one.leave();
      for (const line of lines) line.close();
    }
  });

  it('have the same time to come back where the database goes away again at once', async () => {
    const lines = await Promise.all([PostgresLine.open(), PostgresLine.open()]);
    const longMs = 6_000;
    const [early, late] = (await Promise.all(
      lines.map((line, n) =>
        joinProcesses(through(line), { name: `p${n}`, version: '1', ttlMs: longMs, startTtlMs: 0 }),
      ),
    )) as [ProcessRegistry, ProcessRegistry];
    try {
      await late.acquire(['typing']);
      const living = `SELECT 1 FROM processes WHERE expires_ts > extract(epoch FROM clock_timestamp()) * 1000`;
      for (let time = 1; time <= 2; time++) {
        for (const line of lines) line.goDown('silent');
        await eventually(async () => (await test.database.query(living)).length === 0);
        lines[0]!.comeBack();
        await eventually(() => early.isTrusted);
        // The other one takes its time, though not all that it has.
        const untilMs = performance.now() + longMs / 3;
        while (performance.now() < untilMs) {
          await early.beat();
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        expect(await early.acquire(['typing'])).toEqual([]);
        lines[1]!.comeBack();
        await eventually(() => late.isTrusted);
        await Promise.all([early.beat(), late.beat()]);
      }
      expect([names(early).toSorted(), names(late).toSorted()]).toEqual([
        ['p0', 'p1'],
        ['p0', 'p1'],
      ]);
    } finally {
      for (const one of [early, late]) await one.leave();
      for (const line of lines) line.close();
    }
  });

  it('are not missed because the clock of the database was set forward', async () => {
    await test.database.write(async (tx) => {
      await tx.run('CREATE TABLE clock_ahead (ms INTEGER)');
      await tx.run('INSERT INTO clock_ahead (ms) VALUES (0)');
      await tx.run(`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
        $$ SELECT pg_catalog.clock_timestamp() + (SELECT ms FROM clock_ahead) * interval '1 millisecond' $$`);
      await tx.run(`ALTER DATABASE "${String(options().args?.dbname)}" SET search_path = public, pg_catalog`);
    });
    // Long enough for a busy machine.
    const long = { ttlMs: 6_000 };
    const all = [await join('one', long), await join('two', long), await join('three', long)] as const;
    await all[2].acquire(['typing']);
    await test.database.write((tx) => tx.run('UPDATE clock_ahead SET ms = 60000'));
    for (const one of all) await one.beat();
    for (const one of all) await one.beat();
    for (const one of all) {
      expect([one.isTrusted, names(one), one.view.lost]).toEqual([true, ['one', 'two', 'three'], []]);
      expect([...one.view.leases]).toEqual([['typing', all[2].number]]);
    }
  });

  it('end where the database goes on from another copy, which may lack what they remember', async () => {
    await test.database.write(async (tx) => {
      await tx.run('CREATE TABLE history (timeline TEXT)');
      await tx.run("INSERT INTO history (timeline) VALUES ('00000001')");
      await tx.run(`CREATE FUNCTION pg_walfile_name(pg_lsn) RETURNS TEXT LANGUAGE sql AS
        $$ SELECT timeline || '0000000000000001' FROM history $$`);
      await tx.run(`ALTER DATABASE "${String(options().args?.dbname)}" SET search_path = public, pg_catalog`);
    });
    const line = await PostgresLine.open();
    const far = await joinProcesses(through(line), { name: 'far', version: '1', ttlMs, startTtlMs: 0 });
    const claim = await claimDatabase(through(line), { isShared: true });
    try {
      // Connected anew to the same one it goes on.
      line.goDown('silent');
      await eventually(() => !far.isTrusted);
      line.comeBack();
      await eventually(() => far.isTrusted);
      await test.database.write((tx) => tx.run("UPDATE history SET timeline = '00000002'"));
      line.goDown('silent');
      line.comeBack();
      for (const lost of [far.lost, claim.lost]) expect((await lost).message).toMatch(/went on from another copy/);
      expect(far.isTrusted).toBe(false);
    } finally {
      await far.leave();
      await claim.release();
      line.close();
    }
  });

  it('give their own sign of life while the connections of a lost one do not end', async () => {
    const [one, lost] = [await join('one'), await join('lost')];
    expect(await lost.acquire(['typing'])).toEqual(['typing']);
    const database = await openDatabase(options(), new SystemClock(), undefined, undefined, undefined, lost.number);
    const { pid } = (await database.get<{ pid: number }>('SELECT pg_backend_pid() AS pid'))!;
    // Like one whose disk does not answer: it hears of nothing.
    process.kill(pid, 'SIGSTOP');
    try {
      await test.database.write((tx) => tx.run('UPDATE processes SET fenced = TRUE WHERE number = ?', [lost.number]));
      for (const untilMs = performance.now() + 2 * ttlMs; performance.now() < untilMs;) {
        expect(one.isTrusted).toBe(true);
        expect(await one.acquire(['typing'])).toEqual([]);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await eventually(async () => (await one.acquire(['typing'])).length === 1);
    await database.close();
  });

  it('keep off a server that would be alone, and are kept off by one', async () => {
    const one = await claimDatabase(options(), { isShared: true });
    const two = await claimDatabase(options(), { isShared: true, waitMs: 0 });
    await expect(claimDatabase(options(), { waitMs: 0 })).rejects.toThrow(/Another server runs on the database/);
    await one.release();
    await expect(claimDatabase(options(), { waitMs: 0 })).rejects.toThrow(/Another server/);
    await two.release();
    const alone = await claimDatabase(options());
    await expect(claimDatabase(options(), { isShared: true, waitMs: 0 })).rejects.toMatchObject({
      message: expect.stringMatching(/Another server/),
      hint: expect.stringMatching(/redis\.enabled/),
    });
    await alone.release();
    const file = { name: 'sqlite3', path: 'x.db' } as const;
    await expect(claimDatabase(file, { isShared: true })).rejects.toThrow('SQLite serves one process only');
  });

  it('get no connections under a number that is worth nothing, which passes: another process has one', async () => {
    const refusal: unknown = await openDatabase(
      ...([options(), new SystemClock(), undefined, undefined, undefined, 4711] as const),
    ).catch((error: unknown) => error);
    expect(String(refusal)).toMatch(/has lost its right to write/);
    // Whoever goes on for a moment has made no mistake.
    expect([failureLevel(refusal), failureLevel(new Error('another one'))]).toEqual(['warn', 'error']);
    expect(isTransient(refusal)).toBe(true);
  });
});
