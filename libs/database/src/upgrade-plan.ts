import type { Db, Migration, MigrationCost } from './database.js';
import {
  checkServable,
  compatVersionOf,
  pendingMigrations,
  readSchemaState,
  hasTable,
  tablesAmong,
} from './schema-state.js';

/** A step that a start would take. */
export interface PlannedStep {
  readonly name: string;
  readonly version: number;
  /** Rows that it goes over. */
  readonly rows: number;
  readonly seconds: number;
  /** What it occupies while it runs, beyond what is there. */
  readonly diskBytes: number;
  /** Why there is no way back from it; nothing when there is one. */
  readonly final: string | undefined;
}

/** What a start would do to a database. */
export interface UpgradePlan {
  /** Schema version before and after; nothing before in an empty database. */
  readonly from: number | undefined;
  readonly to: number;
  /** The oldest schema version whose programs can serve the database afterwards. */
  readonly servedFrom: number;
  readonly steps: readonly PlannedStep[];
  /** Background updates that are under way, and those that may follow. */
  readonly running: readonly string[];
  readonly queues: readonly string[];
}

// A table of so many rows is counted; of a larger one PostgreSQL knows well enough how many there are.
const counted = 100_000;
// Once in the tables, once in the log.
const copies = 2;

/**
 * What a start would do, before anything changes. Reads only.
 * @throws DatabaseError when a program with these migrations must not serve the database
 */
export async function planUpgrade(db: Db, migrations: readonly Migration[]): Promise<UpgradePlan> {
  const state = await readSchemaState(db);
  checkServable(state, migrations);
  const pending = pendingMigrations(state, migrations);
  const isNew = state.madeBy === 'none';
  const sizes = isNew ? new Map<string, Size>() : await sizesOf(db, pending);
  const steps = pending.map((migration): PlannedStep => {
    const costs = costsOf(migration, db);
    const over = (cost: MigrationCost): Size => sum(cost.tables.map((table) => sizes.get(table) ?? nothing));
    return {
      name: migration.name,
      version: migration.version,
      rows: costs.reduce((rows, cost) => rows + over(cost).rows, 0),
      seconds: costs.reduce((seconds, cost) => seconds + (over(cost).rows / 1_000_000) * cost.secondsPerMillion, 0),
      diskBytes: costs.reduce((bytes, cost) => bytes + (cost.rewrites ? over(cost).bytes * copies : 0), 0),
      final: typeof migration.back === 'function' ? undefined : (migration.back ?? 'there is no way back'),
    };
  });
  const running = (await hasTable(db, 'background_updates'))
    ? await db.query<{ update_name: string }>(
        'SELECT update_name FROM background_updates ORDER BY ordering, update_name',
      )
    : [];
  return {
    from: state.version,
    to: Math.max(state.version ?? 0, ...migrations.map((migration) => migration.version)),
    servedFrom: Math.max(state.compatVersion ?? 1, ...migrations.map(compatVersionOf)),
    steps,
    running: running.map((row) => row.update_name),
    queues: isNew ? [] : [...new Set(pending.flatMap((migration) => migration.queues ?? []))],
  };
}

interface Size {
  readonly rows: number;
  readonly bytes: number;
}

const nothing: Size = { rows: 0, bytes: 0 };
const sum = (sizes: readonly Size[]): Size =>
  sizes.reduce((all, one) => ({ rows: all.rows + one.rows, bytes: all.bytes + one.bytes }), nothing);

const costsOf = (migration: Migration, db: Db): readonly MigrationCost[] =>
  (migration.cost ?? []).filter(({ on = db.dialect.name }) => on === db.dialect.name);

async function sizesOf(db: Db, pending: readonly Migration[]): Promise<Map<string, Size>> {
  const names = [...new Set(pending.flatMap((migration) => costsOf(migration, db).flatMap(({ tables }) => tables)))];
  const sizes = new Map<string, Size>();
  // A query each: names of tables cannot be bound, and they are few.
  for (const table of await tablesAmong(db, names)) {
    sizes.set(table, { rows: await rowsOf(db, table), bytes: await bytesOf(db, table) });
  }
  return sizes;
}

async function rowsOf(db: Db, table: string): Promise<number> {
  if (db.dialect.name === 'postgres') {
    const known = await db.get<{ rows: number }>('SELECT reltuples AS rows FROM pg_class WHERE oid = to_regclass(?)', [
      table,
    ]);
    if (known !== undefined && known.rows > counted) return Math.round(known.rows);
  }
  return Number((await db.get<{ rows: number }>(`SELECT COUNT(*) AS rows FROM ${table}`))?.rows ?? 0);
}

async function bytesOf(db: Db, table: string): Promise<number> {
  const row = await db.get<{ bytes: number | null }>(
    db.dialect.name === 'postgres'
      ? 'SELECT pg_total_relation_size(to_regclass(?)) AS bytes'
      : `SELECT SUM(pgsize) AS bytes FROM dbstat WHERE aggregate = TRUE
           AND name IN (SELECT name FROM sqlite_master WHERE tbl_name = ?)`,
    [table],
  );
  return Number(row?.bytes ?? 0);
}
