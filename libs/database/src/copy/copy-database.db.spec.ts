import { openTestDatabase, type TestDatabase } from '@rookery/testing';
import { type Database, type DialectName, isRestored, markRestored, type Migration } from '../index.js';
import { copyDatabase } from './copy-database.js';

const schema: readonly Migration[] = [
  {
    version: 1,
    name: 'things',
    async up(tx) {
      const { bytesType, identityType, name } = tx.dialect;
      await tx.run(
        `CREATE TABLE things (id BIGINT PRIMARY KEY, text TEXT, flag BOOLEAN NOT NULL, big BIGINT, bytes ${bytesType})`,
      );
      await tx.run(
        `CREATE TABLE keyed (room TEXT NOT NULL, name TEXT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (room, at)) ${name === 'sqlite' ? 'WITHOUT ROWID' : ''}`,
      );
      await tx.run('CREATE INDEX things_text ON things (text) WHERE flag');
      await tx.run('CREATE TABLE keyless (text TEXT, number INTEGER)');
      await tx.run(`CREATE TABLE numbered (id ${identityType}, text TEXT NOT NULL)`);
      await tx.run('CREATE TABLE users (name TEXT PRIMARY KEY)');
      await tx.run('CREATE TABLE derived (text TEXT)');
    },
  },
];
const count = 4_500;

async function fill(database: Database): Promise<void> {
  await database.write(async (tx) => {
    await tx.insertMany(
      'things',
      ['id', 'text', 'flag', 'big', 'bytes'],
      Array.from({ length: count }, (_, i) => [
        i * 3,
        i % 7 === 0 ? null : `Ünï🐦 "${i}" {a,b} \b\f\n\r\t\v\\N \\`,
        i % 2 === 0,
        Number.MAX_SAFE_INTEGER - i,
        i % 5 === 0 ? null : new Uint8Array([0, 255, i % 256]),
      ]),
    );
    await tx.insertMany(
      'keyed',
      ['room', 'name', 'at'],
      Array.from({ length: count }, (_, i) => [`!${i % 10}`, 'n', i]),
    );
    await tx.insertMany(
      'keyless',
      ['text', 'number'],
      [...Array.from({ length: 50 }, () => ['same', 1]), [null, null]],
    );
    await tx.insertMany('numbered', ['text'], [['a'], ['b'], ['c']]);
    await tx.insertMany('derived', ['text'], [['x']]);
  });
}

describe.each([
  ['sqlite', 'postgres'],
  ['postgres', 'sqlite'],
] as const satisfies readonly (readonly [DialectName, DialectName])[])('a copy from %s to %s', (from, to) => {
  let source: TestDatabase;
  let target: TestDatabase;
  beforeEach(async () => {
    source = await openTestDatabase(from);
    target = await openTestDatabase(to);
    await source.migrate(schema);
    await target.migrate(schema);
    await fill(source.database);
  });
  afterEach(async () => {
    await source.close();
    await target.close();
  });
  const derived = new Set(['derived']);
  const all = async (database: Database, table: string, order: string): Promise<unknown[]> =>
    (await database.query<Record<string, unknown>>(`SELECT * FROM ${table} ORDER BY ${order}`)).map((row) => ({
      ...row,
      ...('flag' in row && { flag: Boolean(row['flag']) }),
      ...(row['bytes'] instanceof Uint8Array && { bytes: [...row['bytes']] }),
    }));

  it('brings every row as it was, and lets numbers go on', async () => {
    const copied = await copyDatabase(source.database, target.database, { derived, targetOptions: target.options });
    expect(copied).toEqual([
      { table: 'keyed', rows: count },
      { table: 'keyless', rows: 51 },
      { table: 'numbered', rows: 3 },
      { table: 'things', rows: count },
      { table: 'users', rows: 0 },
    ]);
    for (const [table, order] of [
      ['things', 'id'],
      ['keyed', 'room, at'],
      ['keyless', 'number IS NULL, number'],
      ['numbered', 'id'],
    ] as const) {
      expect(await all(target.database, table, order)).toEqual(await all(source.database, table, order));
    }
    expect(await target.database.query('SELECT * FROM derived')).toEqual([]);
    await target.database.write((tx) => tx.insertMany('numbered', ['text'], [['d']]));
    expect(await target.database.get("SELECT id FROM numbered WHERE text = 'd'")).toEqual({ id: 4 });
    await expect(target.database.query('SELECT * FROM database_move_progress')).rejects.toThrow();
  });

  it('goes on where it was interrupted', async () => {
    let pages = 0;
    const interrupted = copyDatabase(source.database, target.database, {
      derived,
      targetOptions: target.options,
      onProgress: () => {
        if (++pages === 4) throw new Error('power failure');
      },
    });
    await expect(interrupted).rejects.toThrow('power failure');
    const before = pages;
    const copied = await copyDatabase(source.database, target.database, {
      derived,
      targetOptions: target.options,
      onProgress: () => void pages++,
    });
    expect(copied.find(({ table }) => table === 'things')).toEqual({ table: 'things', rows: count });
    expect(await all(target.database, 'things', 'id')).toEqual(await all(source.database, 'things', 'id'));
    expect(await all(target.database, 'keyed', 'room, at')).toEqual(await all(source.database, 'keyed', 'room, at'));
    expect(pages).toBeGreaterThan(before);
  });

  it('is one of a database that was put back where the old one is, unless only some tables are copied', async () => {
    await source.database.write((tx) => markRestored(tx, 7));
    await copyDatabase(source.database, target.database, { only: ['keyed'], targetOptions: target.options });
    expect(await isRestored(target.database)).toBe(false);
    await copyDatabase(source.database, target.database, { derived, targetOptions: target.options });
    expect(await target.database.query('SELECT restored_ts FROM database_restored')).toEqual([{ restored_ts: 7 }]);
    expect(await isRestored(source.database)).toBe(true);
  });

  it('does not go on where the old database has changed meanwhile', async () => {
    const interruptAt = (name: string): Promise<unknown> =>
      copyDatabase(source.database, target.database, {
        derived,
        targetOptions: target.options,
        onProgress: (table) => {
          if (table === name) throw new Error('power failure');
        },
      });
    const goOn = (): Promise<unknown> =>
      copyDatabase(source.database, target.database, { derived, targetOptions: target.options });
    await expect(interruptAt('keyless')).rejects.toThrow('power failure');
    const change = (name: string): Promise<number> =>
      source.database.write((tx) => tx.run("UPDATE keyed SET name = ? WHERE room = '!3' AND at = 3", [name]));
    await change('changed');
    await expect(goOn()).rejects.toThrow('keyed has changed in the old database');
    await change('n');
    // Of this one nothing was copied yet.
    await source.database.write((tx) => tx.run("UPDATE things SET text = 'new' WHERE id = 3"));
    await goOn();
    expect(await all(target.database, 'things', 'id')).toEqual(await all(source.database, 'things', 'id'));
  });

  it('has its keys and indexes at the end, also where making them was interrupted', async () => {
    const indexes = async (): Promise<unknown> =>
      to === 'sqlite'
        ? target.database.query('SELECT name, sql FROM sqlite_master ORDER BY name')
        : target.database.query(
            `SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
             UNION ALL SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype <> 'n' ORDER BY 1, 2`,
          );
    const before = await indexes();
    let isFirst = true;
    const copy = (): Promise<unknown> =>
      copyDatabase(source.database, target.database, {
        derived,
        targetOptions: target.options,
        onProgress: (what) => {
          if (!/keys and indexes|users/.test(what) || !isFirst) return;
          isFirst = what === 'users' && to === 'postgres';
          if (!isFirst) throw new Error('power failure');
        },
      });
    await expect(copy()).rejects.toThrow('power failure');
    await copy();
    expect(await indexes()).toEqual(before);
    expect(await all(target.database, 'things', 'id')).toEqual(await all(source.database, 'things', 'id'));
  });

  it('notices that what arrived is not what was sent', async () => {
    const spoiled = copyDatabase(source.database, target.database, {
      derived,
      targetOptions: target.options,
      // The tables before are there by then.
      onProgress: async (table) => {
        if (table === 'users')
          await target.database.write((tx) => tx.run("UPDATE things SET text = 'forged' WHERE id = 3"));
      },
    });
    await expect(spoiled).rejects.toThrow(/^things did not arrive as it was sent: 4500 rows of 4500, hash/);
  });

  it('takes no database that has something in it, or another schema', async () => {
    await target.database.write((tx) => tx.run("INSERT INTO users VALUES ('@a:b')"));
    await expect(
      copyDatabase(source.database, target.database, { derived, targetOptions: target.options }),
    ).rejects.toThrow(/not empty/);
    await target.database.write((tx) => tx.run("INSERT INTO applied_schema_deltas VALUES (1, 'more')"));
    await expect(
      copyDatabase(source.database, target.database, { derived, targetOptions: target.options }),
    ).rejects.toThrow(/same schema/);
    await source.database.write((tx) => tx.run("INSERT INTO applied_schema_deltas VALUES (1, 'more')"));
    await source.database.write((tx) => tx.run('CREATE TABLE of_a_module (id BIGINT)'));
    await expect(
      copyDatabase(source.database, target.database, { derived, targetOptions: target.options }),
    ).rejects.toThrow(/has no tables of_a_module/);
  });
});
