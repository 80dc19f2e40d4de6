import type { ModuleMigration } from '@rookery/module-api';
import { SystemClock } from '@rookery/platform';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { moduleApiMigrations } from './module-api.migration.js';
import { tableBackend, tablePrefix } from './tables.js';

const clock = new SystemClock();

it('a prefix is the module’s name in the letters of SQL', () => {
  expect(tablePrefix('word-filter')).toBe('module_word_filter_');
  expect(tablePrefix('a.b')).toBe('module_a_b_');
});

eachDatabase('tables of modules', (open, kind) => {
  let place: TestDatabase;
  beforeEach(async () => {
    place = await open();
    await place.migrate(moduleApiMigrations);
  });
  afterEach(() => place.close());

  const step = (name: string, ...sql: string[]): ModuleMigration => ({ name, sql });
  const applied = async (): Promise<string[]> =>
    (
      await place.database.query<{ file: string }>(
        `SELECT file FROM applied_module_schemas WHERE module_name = 'm' ORDER BY file`,
      )
    ).map(({ file }) => file);

  it('takes each step once, in order, also when two processes begin together', async () => {
    const steps = [
      step('1', 'CREATE TABLE module_m_a (x INTEGER)', 'INSERT INTO module_m_a (x) VALUES (1)'),
      {
        name: '2',
        sql: {
          postgres: ['CREATE INDEX module_m_a_x ON module_m_a USING btree (x)'],
          sqlite: ['CREATE UNIQUE INDEX IF NOT EXISTS module_m_a_x ON module_m_a (x)'],
        },
      },
    ];
    const other = tableBackend(await place.reopen(), clock);
    await Promise.all([tableBackend(place.database, clock).migrate('m', steps), other.migrate('m', steps)]);
    expect(await applied()).toEqual(['1', '2']);
    await other.migrate('m', [
      ...steps,
      step('3', 'ALTER TABLE module_m_a ADD COLUMN y TEXT', 'DROP INDEX module_m_a_x'),
    ]);
    expect(await place.database.query('SELECT x, y FROM module_m_a')).toEqual([{ x: 1, y: null }]);
  });

  it('keeps nothing of a step that fails, and takes it again', async () => {
    const tables = tableBackend(place.database, clock);
    const bad = step('1', 'CREATE TABLE module_m_a (x INTEGER)', 'INSERT INTO module_m_nowhere (x) VALUES (1)');
    await expect(tables.migrate('m', [bad])).rejects.toThrow(/module_m_nowhere/);
    expect(await applied()).toEqual([]);
    await tables.migrate('m', [step('1', 'CREATE TABLE module_m_a (x INTEGER)')]);
    expect(await applied()).toEqual(['1']);
  });

  it.each([
    ['CREATE TABLE users2 (x INTEGER)', 'has to begin with module_m_'],
    ['drop table users', 'has to begin with module_m_'],
    ['CREATE UNIQUE INDEX IF NOT EXISTS "users_x" ON users (name)', 'has to begin with module_m_'],
    ['ALTER TABLE users ADD COLUMN x TEXT', 'has to begin with module_m_'],
    ['CREATE TRIGGER module_m_t AFTER INSERT ON users BEGIN SELECT 1; END', 'Statements are given one by one'],
    ['ALTER TABLE module_m_a RENAME TO users2', 'names of tables stay'],
    ['/* CREATE TABLE module_m_x */ CREATE TABLE users2 (x INTEGER)', 'has to begin with module_m_'],
    ['CREATE VIEW module_m_v AS SELECT * FROM users', 'only tables and indexes'],
    ['VACUUM', 'A statement begins with'],
    ['CREATE TABLE module_m_a (x INTEGER); DROP TABLE users', 'Statements are given one by one'],
    [42 as unknown as string, 'A statement begins with'],
  ])('refuses the step %s', async (sql, problem) => {
    const before = await place.database.query('SELECT * FROM applied_module_schemas');
    await expect(tableBackend(place.database, clock).migrate('m', [step('1', sql)])).rejects.toThrow(problem);
    expect(await place.database.query('SELECT * FROM applied_module_schemas')).toEqual(before);
  });

  it('refuses to take over a table of another module', async () => {
    const tables = tableBackend(place.database, clock);
    await tables.migrate('m-n', [step('1', 'CREATE TABLE module_m_n_a (x INTEGER)')]);
    const greedy = step('1', 'CREATE TABLE IF NOT EXISTS "module_m_n_a" (x INTEGER)');
    await expect(tables.migrate('m', [greedy])).rejects.toThrow('belongs to another module');
    await tables.migrate('m-n', [step('2', 'DROP TABLE module_m_n_a')]);
    await tables.migrate('m', [greedy]);
    expect(await applied()).toEqual(['1']);
  });

  it('refuses two steps of one name and steps without one', async () => {
    const tables = tableBackend(place.database, clock);
    await expect(tables.migrate('m', [step('1', 'SELECT 1'), step('1', 'SELECT 2')])).rejects.toThrow('Two migrations');
    await expect(tables.migrate('m', [step('', 'SELECT 1')])).rejects.toThrow('needs a name');
  });

  it('semicolons in texts and comments are no end of a statement', async () => {
    const tables = tableBackend(place.database, clock);
    const rows = await tables.run('m', 'read', (tx) =>
      tx.query(`/* a; b */ SELECT 'it''s; fine' AS "a;b", ? AS x -- and; so on\n;`, ['?']),
    );
    expect(rows).toEqual([{ 'a;b': "it's; fine", x: '?' }]);
  });

  it('a transaction is whole or nothing, and ends', async () => {
    const tables = tableBackend(place.database, clock);
    await tables.migrate('m', [step('1', 'CREATE TABLE module_m_a (x INTEGER)')]);
    const failing = tables.run('m', 'fail', async (tx) => {
      expect(tx.dialect).toBe(kind);
      expect(await tx.run('INSERT INTO module_m_a (x) VALUES (?)', [1])).toBe(1);
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    const kept = await tables.run('m', 'keep', async (tx) => tx);
    await expect(kept.query('SELECT x FROM module_m_a')).rejects.toThrow('The transaction has ended');
    expect(await place.database.query('SELECT x FROM module_m_a')).toEqual([]);
  });

  it('work that waits for something else is cut off; long work on the database is not', async () => {
    const tables = tableBackend(place.database, clock);
    const waiting = tables.run('m', 'wait', () => new Promise<void>(() => {}));
    await expect(waiting).rejects.toThrow('waited for something else');
    const asked = await tables.run('m', 'work', async (tx) => {
      let count = 0;
      for (const endMs = performance.now() + 1_500; count <= 10 || performance.now() < endMs; count++) {
        await tx.query('SELECT 1');
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      return count;
    });
    expect(asked).toBeGreaterThan(10);
  });
});
