import type { Database, Migration, Tx } from './database.js';
import { DatabaseError } from './errors.js';
import { type Clock, type Logger, SilentLogger } from '@rookery/platform';

export interface MigrateOptions {
  readonly logger?: Logger | undefined;
  /** Given, a migration that takes long is reported while it runs. */
  readonly clock?: Clock | undefined;
  /**
   * The oldest schema version whose programs can still work with a database of the newest version; 1 unless told. A program
   * older than that refuses to start on it.
   */
  readonly compatVersion?: number | undefined;
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
 * interruption goes on where the last one stopped. Order: by version, then as listed.
 * @throws DatabaseError when the database was made by a newer, incompatible program or by another homeserver
 */
export async function migrate(
  database: Database,
  migrations: readonly Migration[],
  { logger = new SilentLogger(), clock, compatVersion = 1 }: MigrateOptions = {},
): Promise<MigrateResult> {
  const ordered = migrations.toSorted((left, right) => left.version - right.version);
  checkNames(ordered);
  const newest = ordered.at(-1)?.version ?? 0;

  const before = await database.write((tx) => prepare(tx, newest), { name: 'migrate_prepare' });
  const pending = ordered.filter((migration) => !before.applied.has(keyOf(migration)));
  const version = Math.max(before.version ?? 0, newest);
  if (pending.length === 0 && before.version === version && (before.compatVersion ?? 0) >= compatVersion) {
    return { version, applied: [] };
  }

  if (before.version !== undefined && pending.length > 0) {
    logger.info('Upgrading the database', { from: before.version, to: version, steps: pending.length });
  }
  // Before the first step: an older program must not begin to write between the steps.
  await database.write((tx) => raiseCompatVersion(tx, compatVersion), { name: 'migrate_compat' });
  for (const [index, migration] of pending.entries()) {
    const startedAtMs = clock?.monotonicMs() ?? 0;
    const step = { migration: migration.name, step: index + 1, steps: pending.length };
    const ticking = clock?.every(reportEveryMs, () => {
      logger.info('Still upgrading the database', {
        ...step,
        seconds: Math.round((clock.monotonicMs() - startedAtMs) / 1000),
      });
    });
    try {
      await database.write((tx) => apply(tx, migration), { name: 'migrate', limitMs: Infinity });
    } catch (cause) {
      throw new DatabaseError(
        `The migration ${migration.name} of schema version ${migration.version} failed: ${cause instanceof Error ? cause.message : String(cause)}`,
        'Nothing of it was kept. The next start tries it again.',
        { cause },
      );
    } finally {
      ticking?.cancel();
    }
  }
  await database.write((tx) => setVersion(tx, version, before.version !== undefined && before.version < version), {
    name: 'migrate_version',
  });
  return { version, applied: pending.map((migration) => migration.name) };
}

interface Before {
  readonly version: number | undefined;
  readonly compatVersion: number | undefined;
  readonly applied: ReadonlySet<string>;
}

const keyOf = ({ version, name }: Migration): string => `${version} ${name}`;

function checkNames(migrations: readonly Migration[]): void {
  const seen = new Set<string>();
  for (const migration of migrations) {
    if (!Number.isInteger(migration.version) || migration.version < 1)
      throw new Error(`Migration ${migration.name} has no valid version`);
    if (seen.has(keyOf(migration)))
      throw new Error(`Two migrations of version ${migration.version} are called ${migration.name}`);
    seen.add(keyOf(migration));
  }
}

async function lock(tx: Tx): Promise<void> {
  if (tx.dialect.name === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(?)', [advisoryLock]);
}

/** Makes the tables of the bookkeeping where they are missing, and reads what they say. */
async function prepare(tx: Tx, newest: number): Promise<Before> {
  await lock(tx);
  for (const statement of bookkeeping) await tx.run(statement);
  const version = (await tx.get<{ version: number }>('SELECT version FROM schema_version'))?.version;
  const compatVersion = (await tx.get<{ compat_version: number }>('SELECT compat_version FROM schema_compat_version'))
    ?.compat_version;
  const foreign = await tx.get(
    "SELECT 1 AS found FROM applied_schema_deltas WHERE file LIKE '%.sql' OR file LIKE '%.py' LIMIT 1",
  );
  if (foreign !== undefined) {
    throw new DatabaseError(
      'The database belongs to another homeserver',
      'Give Rookery an empty database and import the old one into it; the old one stays as it is.',
    );
  }
  if (compatVersion !== undefined && compatVersion > newest) {
    throw new DatabaseError(
      `The database has schema version ${version ?? compatVersion}, made by a newer Rookery; this one knows versions up to ${newest}`,
      `Start a Rookery that knows schema version ${compatVersion} or newer, or restore the backup made before the upgrade.`,
    );
  }
  const rows = await tx.query<{ version: number; file: string }>('SELECT version, file FROM applied_schema_deltas');
  return { version, compatVersion, applied: new Set(rows.map((row) => `${row.version} ${row.file}`)) };
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
