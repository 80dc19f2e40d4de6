import type { Db, SqlValue, Tx } from '@rookery/database';

/** The steps of SQLite's plans for some statements, a list for each; none on PostgreSQL, whose plans follow how much there is. What would write is not run. */
export async function plansOf(db: Db, work: (db: Tx) => Promise<unknown>): Promise<string[][]> {
  const asked: (readonly [sql: string, params: readonly SqlValue[] | undefined])[] = [];
  const listening = {
    dialect: db.dialect,
    query: <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> => {
      asked.push([sql, params]);
      return /^\s*(?:DELETE|UPDATE)\b/.test(sql) ? Promise.resolve([]) : db.query<Row>(sql, params);
    },
    get: <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> => {
      asked.push([sql, params]);
      return db.get<Row>(sql, params);
    },
    run: (sql: string, params?: readonly SqlValue[]): Promise<number> => {
      asked.push([sql, params]);
      return Promise.resolve(0);
    },
    insertMany: (): Promise<void> => Promise.resolve(),
    exec: (sql: string, params?: readonly SqlValue[]): Promise<void> => {
      asked.push([sql, params]);
      return Promise.resolve();
    },
  };
  await work(listening as unknown as Tx);
  if (asked.length === 0) throw new Error('Nothing was asked');
  const plans: string[][] = [];
  for (const [sql, params] of db.dialect.name === 'sqlite' ? asked : [])
    plans.push((await db.query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, params)).map(({ detail }) => detail));
  return plans;
}

/**
 * What SQLite would go through from one end to the other for some statements, by the name that they give it; and what it would sort into
 * an index of its own beforehand. A list among the parameters does not count. Nothing on PostgreSQL, whose plans follow how much there
 * is. What would write is not run, and touches no row.
 */
export async function scansOf(db: Db, work: (db: Tx) => Promise<unknown>): Promise<string[]> {
  const scans: string[] = [];
  for (const detail of (await plansOf(db, work)).flat())
    if ((detail.startsWith('SCAN ') && !detail.startsWith('SCAN json_each')) || detail.includes('AUTOMATIC'))
      scans.push(detail);
  return scans;
}
