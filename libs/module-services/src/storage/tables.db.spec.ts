import { DatabaseBesideWriter } from '@rookery/database';
import type { ModuleMigration, ModuleTransaction } from '@rookery/module-api';
import { SystemClock } from '@rookery/platform';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { moduleApiMigrations } from './module-api.migration.js';
import { tablePrefix } from './sql-wall.query.js';
import { ModuleTables } from './tables.js';

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
    const other = new ModuleTables(await place.reopen(), clock);
    await Promise.all([new ModuleTables(place.database, clock).migrate('m', steps), other.migrate('m', steps)]);
    expect(await applied()).toEqual(['1', '2']);
    await other.migrate('m', [
      ...steps,
      step('3', 'ALTER TABLE module_m_a ADD COLUMN y TEXT', 'DROP INDEX module_m_a_x'),
    ]);
    expect(await place.database.query('SELECT x, y FROM module_m_a')).toEqual([{ x: 1, y: null }]);
  });

  it('keeps nothing of a step that fails, and takes it again', async () => {
    const tables = new ModuleTables(place.database, clock);
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
    await expect(new ModuleTables(place.database, clock).migrate('m', [step('1', sql)])).rejects.toThrow(problem);
    expect(await place.database.query('SELECT * FROM applied_module_schemas')).toEqual(before);
  });

  it('refuses to take over a table of another module', async () => {
    const tables = new ModuleTables(place.database, clock);
    await tables.migrate('m-n', [step('1', 'CREATE TABLE module_m_n_a (x INTEGER)')]);
    const greedy = step('1', 'CREATE TABLE IF NOT EXISTS "module_m_n_a" (x INTEGER)');
    await expect(tables.migrate('m', [greedy])).rejects.toThrow('belongs to another module');
    await tables.migrate('m-n', [step('2', 'DROP TABLE module_m_n_a')]);
    await tables.migrate('m', [greedy]);
    expect(await applied()).toEqual(['1']);
  });

  describe('the server’s own tables', () => {
    const only = (database: typeof kind, statements: readonly string[]): readonly string[] =>
      kind === database ? statements : [];
    /** What must neither read nor change anything. */
    const attacks = [
      'SELECT password_hash FROM users',
      'SELECT "password_hash" FROM "users"',
      'SELECT count(*) FROM users',
      'SELECT min(name) FROM users',
      'SELECT x FROM module_m_a WHERE EXISTS (SELECT 1 FROM users WHERE admin = 0)',
      'SELECT x FROM module_m_a, users',
      'SELECT a.x FROM module_m_a a JOIN (SELECT * FROM users) u ON 1 = 1',
      'WITH module_m_a AS (SELECT name AS x FROM users) SELECT x FROM module_m_a',
      'SELECT (SELECT password_hash FROM users LIMIT 1) AS module_m_a',
      'SELECT x FROM module_m_a UNION ALL SELECT 1 FROM users',
      'SELECT * FROM module_m_a/**/,/**/users',
      'SELECT * FROM people',
      'UPDATE users SET admin = 1',
      'DELETE FROM users',
      `INSERT INTO users (name, password_hash, admin) VALUES ('x', 'x', 1)`,
      'INSERT INTO module_m_a (y) SELECT password_hash FROM users',
      'UPDATE module_m_a SET y = (SELECT password_hash FROM users LIMIT 1)',
      'DELETE FROM module_m_a WHERE y IN (SELECT name FROM users) RETURNING y',
      'SELECT secret FROM module_other_a',
      'SELECT secret FROM module_m_n_a',
      `UPDATE module_tables SET module_name = 'm'`,
      'SELECT * FROM module_documents',
      ...only('sqlite', [
        `SELECT * FROM 'users'`,
        'SELECT * FROM [users]',
        'SELECT * FROM `users`',
        'SELECT * FROM main.users',
        'SELECT 1 WHERE 1 IN passwords',
        'SELECT * FROM sqlite_master',
        `SELECT * FROM 'sqlite_master'`,
        `SELECT * FROM "sqlite_schema"`,
        `UPDATE 'sqlite_sequence' SET seq = 0`,
        `SELECT * FROM pragma_table_info('users')`,
        `SELECT * FROM 'pragma_table_list'`,
        'SELECT * FROM words',
        `SELECT * FROM json_each('[]'), words`,
        'REPLACE INTO users (name) VALUES (1)',
        'WITH a AS (SELECT 1) UPDATE users SET admin = 1',
      ]),
      ...only('postgres', [
        'SELECT * FROM public.users',
        'SELECT * FROM ONLY users',
        'SELECT * FROM (TABLE users) t',
        'SELECT * FROM U&"\\0075sers"',
        'WITH gone AS (DELETE FROM users RETURNING *) SELECT * FROM gone',
        'WITH a AS (UPDATE users SET admin = 1 RETURNING 1) SELECT 1',
        `SELECT query_to_xml('select * from users', true, true, '')`,
        `SELECT ('select to_tsvector(password_hash) from users'::text).ts_stat`,
        `SELECT ts_stat('select to_tsvector(password_hash) from users')`,
        `SELECT table_to_xml('users', true, true, '')`,
        `SELECT set_config('search_path', 'public', false)`,
        `SELECT "set_config"('role', 'postgres', false)`,
        'SELECT * FROM pg_authid',
        'SELECT most_common_vals FROM pg_stats',
        'SELECT * FROM information_schema.columns',
        `SELECT pg_read_file('/etc/hostname')`,
        `SELECT lo_import('/etc/hostname')`,
        `SELECT nextval('numbers')`,
        'SELECT * FROM numbers',
        'SELECT * INTO module_m_copy FROM module_m_a',
        `SELECT $$a$$`,
        `SELECT E'a'`,
      ]),
    ];
    /** What is none of the allowed statements at all. */
    const others = [
      "ATTACH DATABASE 'x' AS x",
      'PRAGMA writable_schema = 1',
      'SET ROLE postgres',
      'COPY users TO STDOUT',
      'SELECT 1; UPDATE users SET admin = 1',
      'BEGIN',
      'CREATE VIEW module_m_v AS SELECT * FROM users',
      'EXPLAIN SELECT * FROM users',
      'SELECT 1 -- \r; UPDATE users SET admin = 1',
      'SELECT 1 /* /* */ */ FROM users',
      `SELECT 1 /* FROM users`,
    ].filter((sql) => !(kind === 'sqlite' && sql.includes('\r')));
    beforeEach(async () => {
      await place.database.write(async (tx) => {
        await tx.run('CREATE TABLE users (name TEXT PRIMARY KEY, password_hash TEXT, admin INTEGER)');
        await tx.run('CREATE TABLE passwords (hash TEXT)');
        await tx.run(`INSERT INTO users (name, password_hash, admin) VALUES ('alice', 'hash', 0)`);
        await tx.run('CREATE VIEW people AS SELECT name FROM users');
        if (kind === 'sqlite') await tx.run('CREATE VIRTUAL TABLE words USING fts5(body)');
        else await tx.run('CREATE SEQUENCE numbers');
      });
      const tables = new ModuleTables(place.database, clock);
      await tables.migrate('other', [step('1', 'CREATE TABLE module_other_a (secret TEXT)')]);
      await tables.migrate('m-n', [step('1', 'CREATE TABLE module_m_n_a (secret TEXT)')]);
      await tables.migrate('m', [step('1', 'CREATE TABLE module_m_a (x INTEGER, y TEXT)')]);
    });
    const rows = async (): Promise<unknown> => [
      await place.database.query('SELECT * FROM users'),
      await place.database.query('SELECT * FROM module_tables ORDER BY table_name'),
    ];

    it('are out of reach of a transaction', async () => {
      const tables = new ModuleTables(place.database, clock);
      const before = await rows();
      for (const sql of [...attacks, ...others]) {
        for (const how of ['query', 'run'] as const) {
          let given: unknown = 'nothing';
          const attack = tables.run('m', 'attack', async (tx) => {
            await tx.run('INSERT INTO module_m_a (x) VALUES (1)');
            given = await tx[how](sql);
          });
          const outcome = await attack.then(
            () => 'done',
            () => 'refused',
          );
          expect([sql, outcome, given]).toEqual([sql, 'refused', 'nothing']);
        }
      }
      expect(await rows()).toEqual(before);
      expect(await place.database.query('SELECT * FROM module_m_a')).toEqual([]);
    });

    it('stay out of reach of a transaction whose module goes on after it was refused', async () => {
      const tables = new ModuleTables(place.database, clock);
      const before = await rows();
      const attack = tables.run('m', 'attack', async (tx) => {
        await tx.run('UPDATE users SET admin = 1').catch(() => {});
        await tx.query('SELECT 1').catch(() => {});
      });
      await expect(attack).rejects.toThrow(
        'users is no table of this module; the names of its own begin with module_m_',
      );
      expect(await rows()).toEqual(before);
    });

    it('are out of reach of what is not a statement on rows', async () => {
      const tables = new ModuleTables(place.database, clock);
      const before = await rows();
      for (const [i, sql] of [
        'CREATE TABLE module_m_copy AS SELECT * FROM users',
        'CREATE TABLE module_m_f (name TEXT REFERENCES users (name))',
        'CREATE INDEX module_m_i ON users (name)',
        'CREATE TABLE module_m_f (secret TEXT REFERENCES module_other_a (secret))',
        'INSERT INTO module_m_a (y) SELECT password_hash FROM users',
        'DELETE FROM users',
        `UPDATE module_tables SET module_name = 'm'`,
        'DELETE FROM applied_module_schemas',
        'DROP TABLE module_m_a, users',
        'ALTER TABLE users ADD COLUMN more TEXT',
        'ALTER TABLE public.users ADD COLUMN more TEXT',
        'DROP TABLE users',
        'DROP TABLE "users"',
        'DROP TABLE module_m_n_a',
        'ALTER TABLE module_m_n_a ADD COLUMN more TEXT',
        ...only('postgres', [
          'CREATE TABLE module_m_f (LIKE users)',
          'CREATE TABLE module_m_f () INHERITS (users)',
          'ALTER TABLE module_m_a INHERIT passwords',
          `CREATE TABLE module_m_f AS SELECT query_to_xml('select * from users', true, true, '')`,
        ]),
        ...only('sqlite', [
          `CREATE TABLE module_m_f AS SELECT * FROM 'users'`,
          'CREATE TABLE module_m_f AS SELECT * FROM words',
        ]),
      ].entries()) {
        const outcome = await tables.migrate('m', [step(`attack ${i}`, sql)]).then(
          () => 'done',
          () => 'refused',
        );
        expect([sql, outcome, await rows()]).toEqual([sql, 'refused', before]);
      }
      expect(await applied()).toEqual(['1']);
    });

    it('are not meant by names of columns, texts and parameters', async () => {
      const tables = new ModuleTables(place.database, clock);
      await tables.migrate('m', [
        step('1', 'CREATE TABLE module_m_a (x INTEGER, y TEXT)'),
        step(
          '2',
          kind === 'sqlite'
            ? 'CREATE TABLE module_m_b (id INTEGER PRIMARY KEY AUTOINCREMENT, users INTEGER, passwords TEXT UNIQUE)'
            : 'CREATE TABLE module_m_b (id SERIAL PRIMARY KEY, users INTEGER, passwords TEXT UNIQUE)',
          'CREATE TABLE module_m_c (b INTEGER REFERENCES module_m_b (id) ON DELETE CASCADE)',
          'CREATE UNIQUE INDEX module_m_b_users ON module_m_b (users)',
          `INSERT INTO module_m_b (users, passwords) VALUES (1, 'users')`,
          'ALTER TABLE module_m_b ADD COLUMN people INTEGER NOT NULL DEFAULT 0',
          'CREATE TABLE module_m_copy AS SELECT users FROM module_m_b',
        ),
      ]);
      await tables.run('m', 'use', async (tx) => {
        await tx.run('INSERT INTO module_m_b (users, passwords) VALUES (?, ?) ON CONFLICT (users) DO NOTHING', [
          2,
          'people',
        ]);
        await tx.run('INSERT INTO module_m_c (b) SELECT id FROM module_m_b');
        expect(
          await tx.query(
            `WITH users AS (SELECT users, passwords FROM module_m_b WHERE passwords IN ('module_other_a', 'users'))
             SELECT a.users, count(*) AS passwords FROM users a, module_m_b b WHERE a.users = b.users GROUP BY a.users`,
          ),
        ).toEqual([{ users: 1, passwords: 1 }]);
        await tx.run('DELETE FROM module_m_b WHERE users = ?', [1]);
        expect(await tx.query('SELECT b FROM module_m_c')).toEqual([{ b: 2 }]);
        if (kind === 'sqlite')
          expect(await tx.query('SELECT value FROM json_each(?)', ['[7]'])).toEqual([{ value: 7 }]);
        await tx.run('DELETE FROM module_m_a');
      });
    });
  });

  it('does not look at steps again that an older server took, whatever is in them', async () => {
    const tables = new ModuleTables(place.database, clock);
    const old = [
      step('1', `CREATE TABLE module_m_a (x TEXT DEFAULT E'\\n')`, 'COMMENT ON TABLE module_m_a IS $$mine$$'),
      step('2', 'CREATE /* a /* b */ */ INDEX module_m_a_x ON module_m_a (x)', 'DROP TABLE users'),
    ];
    await place.database.write(async (tx) => {
      await tx.run('CREATE TABLE module_m_a (x TEXT)');
      await tx.run(`INSERT INTO module_tables (table_name, module_name) VALUES ('module_m_a', 'm')`);
      for (const { name } of old)
        await tx.run(`INSERT INTO applied_module_schemas (module_name, file) VALUES ('m', ?)`, [name]);
    });
    await tables.migrate('m', [...old, step('3', 'ALTER TABLE module_m_a ADD COLUMN y TEXT')]);
    expect(await applied()).toEqual(['1', '2', '3']);
    await tables.run('m', 'use', (tx) => tx.run(`INSERT INTO module_m_a (x, y) VALUES ('x', 'y')`));
    // Another module, or one whose step was not taken, is judged as ever.
    for (const [module, name] of [
      ['other', '1'],
      ['m', '4'],
    ] as const) {
      await expect(tables.migrate(module, [step(name, 'SELECT $$mine$$')])).rejects.toThrow('A dollar sign');
    }
  });

  it('looks at the statements of its own database only', async () => {
    const other = kind === 'sqlite' ? 'postgres' : 'sqlite';
    const sql = { [kind]: ['CREATE TABLE module_m_a (x TEXT)'], [other]: [`SELECT $$a$$`, 'VACUUM'] };
    await new ModuleTables(place.database, clock).migrate('m', [{ name: '1', sql } as unknown as ModuleMigration]);
    expect(await applied()).toEqual(['1']);
  });

  it('refuses two steps of one name and steps without one', async () => {
    const tables = new ModuleTables(place.database, clock);
    await expect(tables.migrate('m', [step('1', 'SELECT 1'), step('1', 'SELECT 2')])).rejects.toThrow('Two migrations');
    await expect(tables.migrate('m', [step('', 'SELECT 1')])).rejects.toThrow('needs a name');
  });

  it('semicolons in texts and comments are no end of a statement', async () => {
    const tables = new ModuleTables(place.database, clock);
    const rows = await tables.run('m', 'read', (tx) =>
      tx.query(`/* a; b */ SELECT 'it''s; fine' AS "a;b", ? AS x -- and; so on\n;`, ['?']),
    );
    expect(rows).toEqual([{ 'a;b': "it's; fine", x: '?' }]);
  });

  it('a transaction is whole or nothing, and ends', async () => {
    const tables = new ModuleTables(place.database, clock);
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

  it('of a module’s transactions one writes at a time: it sees what those before it left', async () => {
    const [one, other] = [new ModuleTables(place.database, clock), new ModuleTables(place.database, clock)];
    await one.migrate('m', [step('1', 'CREATE TABLE module_m_a (x INTEGER)')]);
    const writeAndCount = async (tx: ModuleTransaction): Promise<number> => {
      await tx.run('INSERT INTO module_m_a (x) VALUES (?)', [1]);
      const [row] = await tx.query<{ n: number }>('SELECT COUNT(*) AS n FROM module_m_a');
      return Number(row?.n);
    };
    /** Where it could write at once, its end; where it cannot, that it waits. */
    const meets = async (): Promise<boolean> => {
      if (kind === 'sqlite') return true;
      const waiting = `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`;
      return (await place.database.query(waiting)).length > 0;
    };
    let begin = (): void => {};
    let isSecondOver = false;
    const second = new Promise<void>((resolve) => (begin = resolve))
      .then(() => other.run('m', 'second', writeAndCount))
      .finally(() => (isSecondOver = true));
    const first = await one.run('m', 'first', async (tx) => {
      const count = await writeAndCount(tx);
      begin();
      while (!isSecondOver && !(await meets())) await tx.query('SELECT 1');
      return count;
    });
    expect([first, await second]).toEqual([1, 2]);
  });

  it('beside the process that writes, a module has its tables as well, and no others', async () => {
    const tables = new ModuleTables(new DatabaseBesideWriter(place.database), clock);
    await tables.migrate('m', [step('1', 'CREATE TABLE module_m_a (x INTEGER)')]);
    const asked = (sql: string): Promise<unknown[]> => tables.run('m', 'ask', (tx) => tx.query(sql));
    expect(await asked('SELECT x FROM module_m_a')).toEqual([]);
    expect(await asked('INSERT INTO module_m_a (x) VALUES (1) RETURNING x')).toEqual([{ x: 1 }]);
    expect(await tables.run('m', 'ask', (tx) => tx.run('DELETE FROM module_m_a'))).toBe(1);
    await expect(asked('SELECT * FROM module_tables')).rejects.toThrow(RangeError);
    await expect(asked('DELETE FROM module_tables')).rejects.toThrow(RangeError);
  });

  it('work that waits for something else is cut off; long work on the database is not', async () => {
    const tables = new ModuleTables(place.database, clock);
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
