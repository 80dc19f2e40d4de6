import { eachDatabase, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import { type Database, DatabaseError, type Migration, migrate, planRollback, rollback } from './index.js';

const table = (version: number, name: string, servedFrom = version): Migration => ({
  version,
  name,
  servedFrom,
  up: async (tx) => void (await tx.run(`CREATE TABLE ${name} (id BIGINT)`)),
  back: async (tx) => void (await tx.run(`DROP TABLE ${name}`)),
});

eachDatabase('migrate', (open) => {
  let test: TestDatabase;
  let db: Database;
  beforeEach(async () => {
    test = await open();
    db = test.database;
  });
  afterEach(() => test.close());
  const applied = (): Promise<unknown> =>
    db.query('SELECT version, file FROM applied_schema_deltas ORDER BY version, file');

  it('makes a new schema, once', async () => {
    const steps = [table(2, 'c'), table(1, 'b'), table(1, 'a')];
    expect(await migrate(db, steps)).toEqual({ version: 2, applied: ['b', 'a', 'c'] });
    expect(await migrate(db, steps)).toEqual({ version: 2, applied: [] });
    expect(await applied()).toEqual([
      { version: 1, file: 'a' },
      { version: 1, file: 'b' },
      { version: 2, file: 'c' },
    ]);
    const { version, upgraded } =
      (await db.get<{ version: number; upgraded: unknown }>('SELECT version, upgraded FROM schema_version')) ?? {};
    expect([version, Boolean(upgraded)]).toEqual([2, false]);
    expect(await db.query('SELECT compat_version FROM schema_compat_version')).toEqual([{ compat_version: 2 }]);
  });

  it('makes a new schema in one transaction, and adds to it in one for each step', async () => {
    const made: string[] = [];
    const write: Database['write'] = (fn, options) => {
      made.push(options?.name ?? '');
      return db.write(fn, options);
    };
    const counted = new Proxy(db, {
      get: (target, key) => {
        const value: unknown = key === 'write' ? write : Reflect.get(target, key, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
    const first = [table(1, 'a'), table(1, 'b'), table(2, 'c')];
    await migrate(counted, first);
    expect(made.filter((name) => name === 'migrate')).toHaveLength(1);
    await migrate(counted, [...first, table(2, 'd'), table(3, 'e')]);
    expect(made.filter((name) => name === 'migrate')).toHaveLength(3);
  });

  it('changes nothing where somebody objects to the version that will be needed', async () => {
    await migrate(db, [table(1, 'a')]);
    const steps = [table(1, 'a'), table(3, 'b', 2)];
    const asked: number[] = [];
    const mayRaise = async (_: unknown, compatVersion: number): Promise<void> => {
      asked.push(compatVersion);
      if (asked.length === 1) throw new Error('not yet');
    };
    await expect(migrate(db, steps, { mayRaise })).rejects.toThrow('not yet');
    expect(await applied()).toEqual([{ version: 1, file: 'a' }]);
    expect(await db.query('SELECT compat_version FROM schema_compat_version')).toEqual([{ compat_version: 1 }]);
    expect(await migrate(db, steps, { mayRaise })).toEqual({ version: 3, applied: ['b'] });
    expect(await migrate(db, steps, { mayRaise })).toEqual({ version: 3, applied: [] });
    expect(asked).toEqual([2, 2]);
  });

  it('goes on after an interruption between two steps, and undoes the step that broke', async () => {
    let broken = true;
    const steps = [
      table(1, 'a'),
      {
        version: 1,
        name: 'b',
        up: async (tx) => {
          await tx.run('CREATE TABLE b (id BIGINT)');
          await tx.run('INSERT INTO b VALUES (1)');
          if (broken) throw new Error('power failure');
        },
      } satisfies Migration,
      table(1, 'c'),
    ];
    await expect(migrate(db, steps)).rejects.toThrow(/migration b of schema version 1 failed: power failure/);
    expect(await applied()).toEqual([{ version: 1, file: 'a' }]);
    await expect(db.query('SELECT * FROM b')).rejects.toThrow();
    expect(await db.get('SELECT version FROM schema_version')).toBeUndefined();
    broken = false;
    expect(await migrate(await test.reopen(), steps)).toEqual({ version: 1, applied: ['b', 'c'] });
    expect(await db.query('SELECT id FROM b')).toEqual([{ id: 1 }]);
  });

  it('upgrades and says so', async () => {
    const logger = new RecordingLogger();
    await migrate(db, [table(1, 'a')], { logger });
    expect(logger.lines).toEqual([]);
    expect(await migrate(db, [table(1, 'a'), table(1, 'late'), table(3, 'c', 2)], { logger })).toEqual({
      version: 3,
      applied: ['late', 'c'],
    });
    expect(logger.messages('info')).toEqual(['Upgrading the database']);
    expect(Boolean((await db.get<{ upgraded: unknown }>('SELECT upgraded FROM schema_version'))?.upgraded)).toBe(true);
    expect(await db.query('SELECT compat_version FROM schema_compat_version')).toEqual([{ compat_version: 2 }]);
  });

  it('works with a newer schema that is compatible and refuses one that is not, before it changes anything', async () => {
    await migrate(db, [table(1, 'a'), table(5, 'e', 1)]);
    expect(await migrate(db, [table(1, 'a')])).toEqual({ version: 5, applied: [] });
    await migrate(db, [table(1, 'a'), table(5, 'e', 1), table(5, 'f')]);
    const refusal = await migrate(db, [table(1, 'a'), table(2, 'b')]).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(DatabaseError);
    expect((refusal as DatabaseError).message).toBe(
      'The database has schema version 5, made by a newer Rookery; this one knows versions up to 2',
    );
    expect((refusal as DatabaseError).hint).toMatch(/5 or newer/);
    await expect(db.query('SELECT * FROM b')).rejects.toThrow();
    expect(await db.query('SELECT compat_version FROM schema_compat_version')).toEqual([{ compat_version: 5 }]);
  });

  it('refuses a database with steps that it should know', async () => {
    await migrate(db, [table(1, 'a'), table(1, 'from_a_newer_build'), table(2, 'c', 1)]);
    const refusal = migrate(db, [table(1, 'a'), table(1, 'b')]);
    await expect(refusal).rejects.toThrow(/does not know: from_a_newer_build$/);
    await expect(db.query('SELECT * FROM b')).rejects.toThrow();
    // A step of a version that it need not know does no harm.
    await migrate(db, [table(1, 'a'), table(1, 'from_a_newer_build')]);
  });

  it('goes back by the way of each step, the last one first, and an older program serves it then', async () => {
    const order: string[] = [];
    const step = (version: number, name: string): Migration => ({
      ...table(version, name),
      back: async (tx) => {
        order.push(name);
        await tx.run(`DROP TABLE ${name}`);
      },
    });
    const older = [table(1, 'a')];
    const newer = [...older, step(2, 'b'), step(2, 'first'), step(3, 'c')];
    await migrate(db, newer);
    await expect(migrate(db, older)).rejects.toThrow(/newer Rookery/);
    expect((await planRollback(db, newer, 1)).steps.map(({ name }) => name)).toEqual(['c', 'first', 'b']);
    await rollback(db, newer, 1);
    expect(order).toEqual(['c', 'first', 'b']);
    expect(await migrate(db, older)).toEqual({ version: 1, applied: [] });
    await expect(db.query('SELECT * FROM b')).rejects.toThrow();
    expect(await migrate(db, newer)).toEqual({ version: 3, applied: ['b', 'first', 'c'] });
  });

  it('changes nothing when there is no way back, or when there is no need', async () => {
    const one = table(1, 'a');
    const stuck: Migration = { ...table(3, 'c'), back: 'what it merged cannot be told apart' };
    await migrate(db, [one, table(2, 'b'), stuck]);
    await expect(rollback(db, [one, table(2, 'b'), stuck], 1)).rejects.toThrow(
      /c of schema version 3: what it merged cannot be told apart/,
    );
    expect(await db.query('SELECT * FROM b')).toEqual([]);
    expect(await db.get('SELECT version FROM schema_version')).toEqual({ version: 3 });
    expect(await planRollback(db, [one, table(2, 'b'), stuck], 3)).toMatchObject({ isServable: true, steps: [] });
  });

  it('goes on with going back after an interruption', async () => {
    let broken = true;
    const first: Migration = {
      ...table(2, 'b'),
      back: async (tx) => {
        await tx.run('DROP TABLE b');
        if (broken) throw new Error('power failure');
      },
    };
    const steps = [table(1, 'a'), first, table(3, 'c')];
    await migrate(db, steps);
    await expect(rollback(db, steps, 1)).rejects.toThrow('power failure');
    await expect(migrate(db, [table(1, 'a')])).rejects.toThrow(/newer Rookery/);
    broken = false;
    await rollback(db, steps, 1);
    expect(await migrate(db, [table(1, 'a')])).toEqual({ version: 1, applied: [] });
  });

  it('goes on with going back that was interrupted when all steps were undone', async () => {
    const steps = [table(1, 'a'), table(2, 'b')];
    await migrate(db, steps);
    await rollback(db, steps, 1);
    // The records of the steps are gone, while the database still calls itself newer.
    await db.write(async (tx) => {
      await tx.run('UPDATE schema_version SET version = 2');
      await tx.run('UPDATE schema_compat_version SET compat_version = 2');
    });
    await expect(migrate(db, [table(1, 'a')])).rejects.toThrow(/newer Rookery/);
    expect(await planRollback(db, steps, 1)).toMatchObject({ isServable: false, steps: [], obstacles: [] });
    await rollback(db, steps, 1);
    expect(await migrate(db, [table(1, 'a')])).toEqual({ version: 1, applied: [] });
  });

  it('goes back where an upgrade was interrupted before its first step', async () => {
    const older = [table(1, 'a')];
    await migrate(db, older);
    const up = (): Promise<void> => Promise.reject(new Error('power failure'));
    await expect(migrate(db, [...older, { ...table(2, 'b'), up }])).rejects.toThrow('power failure');
    await expect(migrate(db, older)).rejects.toThrow(/newer Rookery/);
    await rollback(db, [...older, table(2, 'b')], 1);
    expect(await migrate(db, older)).toEqual({ version: 1, applied: [] });
  });

  it('refuses the database of another homeserver', async () => {
    await migrate(db, []);
    await db.write((tx) => tx.run("INSERT INTO applied_schema_deltas VALUES (72, '72/full_schemas/main.sql')"));
    const refusal = migrate(db, [table(99, 'a')]);
    await expect(refusal).rejects.toThrow('The database belongs to another homeserver');
    await expect(db.query('SELECT * FROM a')).rejects.toThrow();
  });

  it('runs each step once when two processes start together', async () => {
    let runs = 0;
    const steps = Array.from({ length: 8 }, (_, i) => ({
      version: 1,
      name: `s${i}`,
      up: async (tx) => {
        runs++;
        await tx.run(`CREATE TABLE s${i} (id BIGINT)`);
      },
    })) satisfies Migration[];
    await Promise.all([migrate(db, steps), migrate(db, steps)]);
    expect(runs).toBe(8);
  });

  it('refuses a list in which two steps could be mistaken for each other', async () => {
    await expect(migrate(db, [table(1, 'a'), table(1, 'a')])).rejects.toThrow(/Two migrations/);
    await expect(migrate(db, [table(0, 'a')])).rejects.toThrow(/version/);
  });

  it('says that it still works while a step takes long', async () => {
    const logger = new RecordingLogger();
    const clock = Object.assign(new SystemClock(), {
      every: (_: number, fn: () => void) => new SystemClock().every(5, fn),
    });
    const slow = { version: 1, name: 'slow', up: () => new Promise<void>((resolve) => setTimeout(resolve, 40)) };
    await migrate(db, [table(1, 'a'), slow], { logger, clock });
    // Making a table may take long enough to be told of as well.
    const line = logger.lines.find(
      (one) => one.message === 'Still upgrading the database' && one.fields['migration'] === 'slow',
    );
    expect(line?.fields).toEqual({ migration: 'slow', step: 2, steps: 2, seconds: expect.any(Number) as number });
  });
});
