import { type Logger, SilentLogger } from '@rookery/platform';
import type { Database, Db, Migration } from './database.js';
import { DatabaseError } from './errors.js';
import { lock } from './migrate.js';
import {
  type AppliedDelta,
  checkServable,
  compatVersionOf,
  readSchemaState,
  type SchemaState,
} from './schema-state.js';

/** What going back to an older schema takes. */
export interface SchemaRollback {
  /** From what, and to what schema version. */
  readonly from: number;
  readonly to: number;
  /** Programs of that version can serve the database as it is: nothing needs to change. */
  readonly isServable: boolean;
  /** Steps to undo, the last one first; none where an interruption left nothing but a wrong version. */
  readonly steps: readonly Migration[];
  /** Why it cannot be; empty when it can. */
  readonly obstacles: readonly string[];
}

/**
 * What has to be undone so that a program of an older schema version can serve the database. Reads only.
 * @throws DatabaseError when the database is not one that a program with these migrations could serve
 */
export async function planRollback(db: Db, migrations: readonly Migration[], to: number): Promise<SchemaRollback> {
  return planOf(await readSchemaState(db), migrations, to);
}

function planOf(state: SchemaState, migrations: readonly Migration[], to: number): SchemaRollback {
  checkServable(state, migrations);
  const from = state.version ?? 0;
  const isServable = (state.compatVersion ?? 1) <= to;
  const named = new Map(migrations.map((migration) => [`${migration.version} ${migration.name}`, migration]));
  const steps: Migration[] = [];
  const obstacles: string[] = [];
  for (const row of isServable ? [] : stepsAbove(state, to)) {
    const migration = named.get(`${row.version} ${row.file}`);
    if (migration === undefined) {
      obstacles.push(`${row.file} of schema version ${row.version}: this program does not know it`);
      continue;
    }
    steps.push(migration);
    if (typeof migration.back !== 'function')
      obstacles.push(`${row.file} of schema version ${row.version}: ${migration.back ?? 'there is no way back'}`);
  }
  // In the opposite order of that in which they were made.
  const order = new Map(migrations.map((migration, index) => [migration, index]));
  steps.sort((a, b) => b.version - a.version || (order.get(b) ?? 0) - (order.get(a) ?? 0));
  return { from, to, isServable, steps, obstacles };
}

const stepsAbove = (state: SchemaState, to: number): AppliedDelta[] =>
  state.applied.filter((row) => row.version > to).toReversed();

/**
 * Undoes what {@link planRollback} lists, each step in a transaction together with its record, so that it can be gone on with
 * after an interruption, to the last: that the older program may serve the database. No server may run on it. Changes nothing when
 * that one can serve it as it is.
 * @throws DatabaseError before anything is changed when a step has no way back
 */
export async function rollback(
  database: Database,
  migrations: readonly Migration[],
  to: number,
  { logger = new SilentLogger() }: { readonly logger?: Logger } = {},
): Promise<SchemaRollback> {
  const plan = await planRollback(database, migrations, to);
  if (plan.obstacles.length > 0) {
    throw new DatabaseError(
      `The database cannot go back to schema version ${to}: ${plan.obstacles.join('; ')}`,
      'Nothing was changed. Restore the backup made before the upgrade.',
    );
  }
  for (const step of plan.steps) {
    logger.info('Going back', { migration: step.name });
    await database.write(
      async (tx) => {
        await lock(tx);
        const record = [step.version, step.name];
        if ((await tx.run('DELETE FROM applied_schema_deltas WHERE version = ? AND file = ?', record)) === 0) return;
        if (typeof step.back === 'function') await step.back(tx);
      },
      { name: 'rollback', limitMs: Infinity },
    );
  }
  if (!plan.isServable) {
    const left = new Set(plan.steps);
    // Last: until then the program that made the steps is the one that knows what is there.
    const compat = Math.max(
      1,
      ...migrations.filter((one) => one.version <= to && !left.has(one)).map((one) => compatVersionOf(one)),
    );
    await database.write(
      async (tx) => {
        await tx.run('UPDATE schema_version SET version = ?', [to]);
        await tx.run('UPDATE schema_compat_version SET compat_version = ?', [compat]);
      },
      { name: 'rollback_version' },
    );
  }
  return plan;
}
