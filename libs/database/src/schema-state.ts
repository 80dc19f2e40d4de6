import type { Db, Migration } from './database.js';
import { DatabaseError } from './errors.js';

/** What a database says about its schema. */
export interface SchemaState {
  /** `none`: nothing that either made. `another`: another homeserver's of this family. */
  readonly madeBy: 'rookery' | 'another' | 'none';
  readonly version: number | undefined;
  /** The oldest schema version whose programs can serve it. */
  readonly compatVersion: number | undefined;
  /** Steps that it has, in the order of their versions and names. */
  readonly applied: readonly AppliedDelta[];
}

/** A row of `applied_schema_deltas`. */
export interface AppliedDelta {
  readonly version: number;
  readonly file: string;
}

/** Reads it, without changing anything. */
export async function readSchemaState(db: Db): Promise<SchemaState> {
  const tables = await tablesAmong(db, ['schema_version', 'schema_compat_version', 'applied_schema_deltas']);
  const version = tables.has('schema_version')
    ? (await db.get<{ version: number }>('SELECT version FROM schema_version'))?.version
    : undefined;
  const compatVersion = tables.has('schema_compat_version')
    ? (await db.get<{ compat_version: number }>('SELECT compat_version FROM schema_compat_version'))?.compat_version
    : undefined;
  const applied = tables.has('applied_schema_deltas')
    ? await db.query<AppliedDelta>('SELECT version, file FROM applied_schema_deltas ORDER BY version, file')
    : [];
  // Those of others are files; ours have names.
  const isOther = applied.some(({ file }) => /\.(?:sql|py)(?:\.\w+)?$/.test(file));
  const madeBy = isOther ? 'another' : version === undefined && applied.length === 0 ? 'none' : 'rookery';
  return { madeBy, version, compatVersion, applied };
}

/** Which of these tables are there. */
export async function tablesAmong(db: Db, names: readonly string[]): Promise<ReadonlySet<string>> {
  const rows = await db.query<{ name: string }>(
    db.dialect.name === 'sqlite'
      ? `SELECT name FROM sqlite_master WHERE type = 'table' AND ${db.dialect.anyOf('name')}`
      : `SELECT table_name AS name FROM information_schema.tables
          WHERE table_schema = current_schema() AND ${db.dialect.anyOf('table_name')}`,
    [names],
  );
  return new Set(rows.map((row) => row.name));
}

/** Whether there is such a table. */
export const hasTable = async (db: Db, name: string): Promise<boolean> => (await tablesAmong(db, [name])).has(name);

/**
 * Whether a program with these migrations may serve a database, and raise its schema.
 * @throws DatabaseError when it was made by another homeserver, needs a newer program, or has steps that this one should know
 */
export function checkServable(state: SchemaState, migrations: readonly Migration[]): void {
  const newest = Math.max(0, ...migrations.map((migration) => migration.version));
  if (state.madeBy === 'another') {
    throw new DatabaseError(
      'The database belongs to another homeserver',
      'Give Rookery an empty database and import the old one into it; the old one stays as it is.',
    );
  }
  if (state.compatVersion !== undefined && state.compatVersion > newest) {
    throw new DatabaseError(
      `The database has schema version ${state.version ?? state.compatVersion}, made by a newer Rookery; this one knows versions up to ${newest}`,
      `Start a Rookery that knows schema version ${state.compatVersion} or newer, go back with its "rookery rollback", or restore the backup made before the upgrade.`,
    );
  }
  const known = new Set(migrations.map(keyOf));
  // Steps of later versions are allowed for: the compatibility version says that they do no harm.
  const unknown = state.applied.filter((row) => row.version <= newest && !known.has(keyOfRow(row)));
  if (unknown.length > 0) {
    const more = unknown.length > 3 ? ` and ${unknown.length - 3} more` : '';
    throw new DatabaseError(
      `The database has steps of its schema that this Rookery does not know: ${unknown
        .slice(0, 3)
        .map((row) => row.file)
        .join(', ')}${more}`,
      'A newer Rookery, or one with changes, has made them. Start that one, or restore the backup made before.',
    );
  }
}

/** What a database still lacks, in the order in which it will be done. */
export function pendingMigrations(state: SchemaState, migrations: readonly Migration[]): readonly Migration[] {
  const applied = new Set(state.applied.map(keyOfRow));
  return migrations
    .toSorted((left, right) => left.version - right.version)
    .filter((migration) => !applied.has(keyOf(migration)));
}

/** The oldest schema version whose programs can serve the database once it has all of these migrations. */
export function servedFrom(state: Pick<SchemaState, 'compatVersion'>, migrations: readonly Migration[]): number {
  return Math.max(state.compatVersion ?? 1, ...migrations.map(compatVersionOf));
}

/** The oldest schema version whose programs can serve a database with this step. */
export const compatVersionOf = ({ version, servedFrom: from }: Migration): number => from ?? version;

/** @throws Error when two steps could be mistaken for each other, or one has no version */
export function checkNames(migrations: readonly Migration[]): void {
  const seen = new Set<string>();
  for (const migration of migrations) {
    if (!Number.isInteger(migration.version) || migration.version < 1)
      throw new Error(`Migration ${migration.name} has no valid version`);
    if (seen.has(keyOf(migration)))
      throw new Error(`Two migrations of version ${migration.version} are called ${migration.name}`);
    seen.add(keyOf(migration));
  }
}

const keyOf = ({ version, name }: Migration): string => `${version} ${name}`;
const keyOfRow = ({ version, file }: AppliedDelta): string => `${version} ${file}`;
