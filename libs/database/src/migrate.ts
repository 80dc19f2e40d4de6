import type { Database, Migration, Tx } from './database.js';
import { DatabaseError } from './errors.js';
import {
  checkNames,
  checkServable,
  pendingMigrations,
  readSchemaState,
  type SchemaState,
  servedFrom,
} from './schema-state.js';
import { type Clock, type Logger, SilentLogger } from '@rookery/platform';

export interface MigrateOptions {
  readonly logger?: Logger | undefined;
  /** Given, a migration that takes long is reported while it runs. */
  readonly clock?: Clock | undefined;
  /**
   * Asked before the first change, in the transaction after which only programs that know this schema version or a later one can
   * serve the database. To throw is to change nothing.
   */
  readonly mayRaise?: ((tx: Tx, compatVersion: number) => Promise<void>) | undefined;
}

export interface MigrateResult {
  /** The schema's version afterwards. */
  readonly version: number;
  /** Names of the migrations that ran now, in order. */
  readonly applied: readonly string[];
}

const reportEveryMs = 10_000;
// Two processes that start together must not run a migration twice. Any fixed number will do.
const advisoryLock = 7_246_501;

const bookkeeping = [
  `CREATE TABLE IF NOT EXISTS schema_version (
     lock CHAR(1) NOT NULL DEFAULT 'X' PRIMARY KEY CHECK (lock = 'X'), version INTEGER NOT NULL, upgraded BOOLEAN NOT NULL)`,
  `CREATE TABLE IF NOT EXISTS schema_compat_version (
     lock CHAR(1) NOT NULL DEFAULT 'X' PRIMARY KEY CHECK (lock = 'X'), compat_version INTEGER NOT NULL)`,
  `CREATE TABLE IF NOT EXISTS applied_schema_deltas (
     version INTEGER NOT NULL, file TEXT NOT NULL, UNIQUE (version, file))`,
];

/**
 * Brings the schema up to date. Each migration runs in a transaction together with its record, so that a start after an
 * interruption goes on where the last one stopped; where there is no schema yet, all share a transaction. Order: by version, then
 * as listed.
 * @throws DatabaseError when the database was made by a newer, incompatible program or by another homeserver; what `mayRaise` throws
 */
export async function migrate(
  database: Database,
  migrations: readonly Migration[],
  { logger = new SilentLogger(), clock, mayRaise }: MigrateOptions = {},
): Promise<MigrateResult> {
  checkNames(migrations);
  const newest = Math.max(0, ...migrations.map((migration) => migration.version));

  const before = await database.write((tx) => prepare(tx, migrations), { name: 'migrate_prepare' });
  const pending = pendingMigrations(before, migrations);
  const version = Math.max(before.version ?? 0, newest);
  const compatVersion = servedFrom(before, migrations);
  if (pending.length === 0 && before.version === version && (before.compatVersion ?? 0) >= compatVersion) {
    return { version, applied: [] };
  }

  if (before.version !== undefined && pending.length > 0) {
    logger.info('Upgrading the database', { from: before.version, to: version, steps: pending.length });
  }
  // Before the first step: an older program must not begin to write between the steps.
  await database.write(
    async (tx) => {
      await mayRaise?.(tx, compatVersion);
      await raiseCompatVersion(tx, compatVersion);
    },
    { name: 'migrate_compat' },
  );
  const steps = pending.map((migration, index) => ({ migration, step: index + 1, steps: pending.length }));
  const isNew = before.version === undefined && pending.length === migrations.length;
  if (!isNew || !(await takeAtOnce(database, steps, { logger, clock })))
    for (const step of steps) await takeStep(database, step, { logger, clock });
  await database.write((tx) => setVersion(tx, version, before.version !== undefined && before.version < version), {
    name: 'migrate_version',
  });
  return { version, applied: pending.map((migration) => migration.name) };
}

/** One migration among those that are to run. */
interface Step {
  readonly migration: Migration;
  readonly step: number;
  readonly steps: number;
}

interface Reporting {
  readonly logger: Logger;
  readonly clock: Clock | undefined;
}

/**
 * Runs all steps in one transaction: where nothing is stored yet, what costs is the flush to disk behind each.
 * @returns whether it did. Nothing of it was kept otherwise; one by one, the steps then say what is wrong and keep what is not.
 */
async function takeAtOnce(database: Database, steps: readonly Step[], reporting: Reporting): Promise<boolean> {
  try {
    await database.write(
      async (tx) => {
        for (const step of steps) await told(step, reporting, () => apply(tx, step.migration));
      },
      { name: 'migrate', limitMs: Infinity },
    );
    return true;
  } catch (err) {
    reporting.logger.debug('The tables could not be made at once', { err });
    return false;
  }
}

/** Runs one step in a transaction of its own. @throws DatabaseError that names it */
async function takeStep(database: Database, step: Step, reporting: Reporting): Promise<void> {
  const { migration } = step;
  try {
    await told(step, reporting, () =>
      database.write((tx) => apply(tx, migration), { name: 'migrate', limitMs: Infinity }),
    );
  } catch (cause) {
    throw new DatabaseError(
      `The migration ${migration.name} of schema version ${migration.version} failed: ${cause instanceof Error ? cause.message : String(cause)}`,
      'Nothing of it was kept. The next start tries it again.',
      { cause },
    );
  }
}

/** Says that a step still runs while it takes long. */
async function told(step: Step, { logger, clock }: Reporting, run: () => Promise<void>): Promise<void> {
  const startedAtMs = clock?.monotonicMs() ?? 0;
  const ticking = clock?.every(reportEveryMs, () => {
    logger.info('Still upgrading the database', {
      ...{ migration: step.migration.name, step: step.step, steps: step.steps },
      seconds: Math.round((clock.monotonicMs() - startedAtMs) / 1000),
    });
  });
  try {
    await run();
  } finally {
    ticking?.cancel();
  }
}

/** Two processes that change the schema do so one after the other. */
export async function lock(tx: Tx): Promise<void> {
  if (tx.dialect.name === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(?)', [advisoryLock]);
}

/** Makes the tables of the bookkeeping where they are missing, and reads what they say. */
async function prepare(tx: Tx, migrations: readonly Migration[]): Promise<SchemaState> {
  await lock(tx);
  for (const statement of bookkeeping) await tx.run(statement);
  const state = await readSchemaState(tx);
  checkServable(state, migrations);
  return state;
}

async function apply(tx: Tx, migration: Migration): Promise<void> {
  await lock(tx);
  const record = [migration.version, migration.name];
  // Another process may have been quicker.
  if (await tx.get('SELECT 1 AS found FROM applied_schema_deltas WHERE version = ? AND file = ?', record)) return;
  await migration.up(tx);
  await tx.run('INSERT INTO applied_schema_deltas (version, file) VALUES (?, ?)', record);
}

async function raiseCompatVersion(tx: Tx, compatVersion: number): Promise<void> {
  await tx.run(
    `INSERT INTO schema_compat_version (compat_version) VALUES (?) ON CONFLICT (lock) DO UPDATE
       SET compat_version = excluded.compat_version WHERE schema_compat_version.compat_version < excluded.compat_version`,
    [compatVersion],
  );
}

async function setVersion(tx: Tx, version: number, upgraded: boolean): Promise<void> {
  await tx.run(
    `INSERT INTO schema_version (version, upgraded) VALUES (?, ?) ON CONFLICT (lock) DO UPDATE
       SET version = excluded.version, upgraded = excluded.upgraded WHERE schema_version.version < excluded.version`,
    [version, upgraded],
  );
}
