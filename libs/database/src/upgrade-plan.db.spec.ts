import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { type Migration, migrate, planUpgrade } from './index.js';

const step = (name: string, more: Partial<Migration> = {}): Migration => ({
  version: 1,
  name,
  up: async (tx) => void (await tx.run(`CREATE TABLE ${name} (id BIGINT, text TEXT)`)),
  ...more,
});

eachDatabase('a planned upgrade', (open, kind) => {
  let test: TestDatabase;
  beforeEach(async () => (test = await open()));
  afterEach(() => test.close());

  it('says rows, time and disk of each step, and what cannot be undone, and changes nothing', async () => {
    const old = [step('people')];
    await migrate(test.database, old);
    await test.database.write((tx) =>
      tx.insertMany(
        'people',
        ['id', 'text'],
        Array.from({ length: 5000 }, (_, i) => [i, 'x'.repeat(100)]),
      ),
    );
    const back = async (): Promise<void> => {};
    const plan = await planUpgrade(test.database, [
      ...old,
      step('cheap', { version: 2, servedFrom: 1, back }),
      step('dear', {
        version: 3,
        cost: [
          { tables: ['people'], secondsPerMillion: 20, rewrites: true },
          { on: kind === 'sqlite' ? 'postgres' : 'sqlite', tables: ['people'], secondsPerMillion: 1_000 },
          { tables: ['nowhere'], secondsPerMillion: 1_000 },
        ],
        back: 'it joins what was apart',
        queues: ['sorting'],
      }),
    ]);
    expect(plan).toMatchObject({ from: 1, to: 3, servedFrom: 3, running: [], queues: ['sorting'] });
    const [cheap, dear] = plan.steps;
    expect(cheap).toEqual({ name: 'cheap', version: 2, rows: 0, seconds: 0, diskBytes: 0, final: undefined });
    expect(dear).toMatchObject({ name: 'dear', rows: 5000, seconds: 0.1, final: 'it joins what was apart' });
    expect(dear?.diskBytes).toBeGreaterThan(2 * 5000 * 100);
    expect(dear?.diskBytes).toBeLessThan(10 * 5000 * 100);
    expect(await planUpgrade(test.database, old)).toMatchObject({ from: 1, to: 1, steps: [] });
  });

  it('has nothing to warn of in an empty database', async () => {
    const plan = await planUpgrade(test.database, [step('people', { queues: ['sorting'] })]);
    expect(plan).toMatchObject({ from: undefined, to: 1, running: [], queues: [] });
    expect(
      await test.database.query(
        kind === 'sqlite'
          ? 'SELECT name FROM sqlite_master'
          : "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
      ),
    ).toEqual([]);
  });

  it('refuses what a start would refuse', async () => {
    await migrate(test.database, [step('people'), step('new', { version: 4 })]);
    await expect(planUpgrade(test.database, [step('people')])).rejects.toThrow(/made by a newer Rookery/);
  });
});
