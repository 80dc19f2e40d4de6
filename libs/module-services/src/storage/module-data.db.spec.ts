import { Metrics, SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { InProcessRpc } from '@rookery/replication';
import { eachDatabase } from '@rookery/testing';
import { ModuleDocuments } from './documents.query.js';
import { JobRunner } from '../jobs/jobs.js';
import { deleteModuleData } from './module-data.query.js';
import { moduleApiMigrations } from './module-api.migration.js';
import { ModuleTables } from './tables.js';

eachDatabase('what a module kept', (open) => {
  it('goes when the module is removed, and nothing of another one', async () => {
    const { database, migrate, close } = await open();
    await migrate(moduleApiMigrations);
    const parts = { database, clock: new SystemClock(), ids: new SystemIds(), logger: new SilentLogger() };
    const documents = new ModuleDocuments(database, parts.clock);
    const tables = new ModuleTables(database, parts.clock);
    const jobs = new JobRunner(
      database,
      parts.clock,
      parts.ids,
      parts.logger,
      new InProcessRpc(),
      new Metrics('example.org'),
    );
    for (const module of ['word-filter', 'word-filter-2']) {
      await documents.put(module, 'a', '1');
      await documents.put(module, 'b', '2');
      await jobs.runAt(module, 'x', 1e15, 'null', 'key');
      const name = `module_${module.replace(/\W/g, '_')}_things`;
      await tables.migrate(module, [{ name: '1', sql: [`CREATE TABLE ${name} (x INTEGER)`] }]);
    }
    expect(await database.write((tx) => deleteModuleData(tx, 'word-filter'))).toBe(2);
    expect(await documents.list('word-filter', '', undefined, 10)).toEqual([]);
    expect(await documents.list('word-filter-2', '', undefined, 10)).toHaveLength(2);
    expect(await jobs.cancel('word-filter', 'x', 'key')).toBe(false);
    expect(await jobs.cancel('word-filter-2', 'x', 'key')).toBe(true);
    await expect(database.query('SELECT x FROM module_word_filter_things')).rejects.toThrow();
    expect(await database.query('SELECT x FROM module_word_filter_2_things')).toEqual([]);
    expect(await database.query('SELECT module_name FROM applied_module_schemas')).toEqual([
      { module_name: 'word-filter-2' },
    ]);
    await close();
  });

  it('goes where its tables refer to each other', async () => {
    const { database, migrate, close } = await open();
    await migrate(moduleApiMigrations);
    const tables = new ModuleTables(database, new SystemClock());
    const sql = ['a', 'b', 'c'].flatMap((name, i) => [
      `CREATE TABLE module_tree_${name} (
         id INTEGER PRIMARY KEY,
         parent INTEGER NOT NULL REFERENCES module_tree_${'aab'[i]} (id) ON DELETE ${i === 1 ? 'RESTRICT' : 'CASCADE'}
       )`,
      `INSERT INTO module_tree_${name} (id, parent) VALUES (1, 1)`,
    ]);
    await tables.migrate('tree', [{ name: '1', sql }]);
    // In a ring: whichever goes first, another one refers to it.
    const ring = {
      postgres: ['ALTER TABLE module_tree_a ADD FOREIGN KEY (id) REFERENCES module_tree_c (id)'],
      sqlite: [
        'ALTER TABLE module_tree_a ADD COLUMN c INTEGER REFERENCES module_tree_c (id)',
        'UPDATE module_tree_a SET c = 1',
      ],
    };
    await tables.migrate('tree', [{ name: '2', sql: ring }]);
    await database.write((tx) => deleteModuleData(tx, 'tree'));
    for (const name of ['a', 'b', 'c'])
      await expect(database.query(`SELECT id FROM module_tree_${name}`)).rejects.toThrow();
    expect(await database.query('SELECT table_name FROM module_tables')).toEqual([]);
    await close();
  });

  it('is not changed between what a transaction reads and what it writes, by a lone write either', async () => {
    const { database, migrate, close } = await open();
    await migrate(moduleApiMigrations);
    const documents = new ModuleDocuments(database, new SystemClock());
    await documents.put('counter', 'k', '1');
    for (const lone of ['put', 'delete'] as const) {
      const hasRead = Promise.withResolvers<void>();
      const counted = documents.transaction('counter', async (tx) => {
        const before = Number(await tx.get('counter', 'k'));
        hasRead.resolve();
        await new Promise((resolve) => setTimeout(resolve, 300));
        await tx.put('counter', 'k', String(before + 1));
      });
      await hasRead.promise;
      await (lone === 'put' ? documents.put('counter', 'k', '10') : documents.delete('counter', 'k'));
      await counted;
      // As if it had come after it.
      expect(await documents.get('counter', 'k')).toBe(lone === 'put' ? '10' : undefined);
    }
    await close();
  });

  it('waits for its turn to be written, but not without end', async () => {
    const { database, migrate, close } = await open();
    await migrate(moduleApiMigrations);
    const documents = new ModuleDocuments(database, new SystemClock());
    const began = Array.from({ length: 1_010 }, (_, n) =>
      documents.transaction('hasty', async (tx) => tx.put('hasty', `k${n}`, '1')),
    );
    const refused = (await Promise.allSettled(began)).filter(({ status }) => status === 'rejected');
    const atOnce = database.dialect.name === 'sqlite' ? 1 : 4;
    expect(refused).toHaveLength(10 - atOnce);
    expect(refused[0]).toMatchObject({ reason: { message: '1000 transactions of this module wait already' } });
    // Whoever comes afterwards is not kept out.
    await documents.transaction('hasty', async (tx) => tx.put('hasty', 'last', '1'));
    expect(await documents.list('hasty', 'last', undefined, 10)).toHaveLength(1);
    await close();
  });
});
