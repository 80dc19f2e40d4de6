/** Reads, writes, dialects, stream ids, migrations, background updates. */
export { DatabaseBesideWriter } from './beside-writer.js';
export {
  Database,
  type Db,
  type Dialect,
  type DialectName,
  type Migration,
  type MigrationCost,
  type SqlBool,
  type SqlValue,
  type Tx,
  type WriteOptions,
} from './database.js';
export { DataStores } from './data-stores.js';
export { distinctValues } from './distinct-values.query.js';
export { DatabaseError, failureLevel, isStorageFull, isTransient, isUniqueViolation } from './errors.js';
export { type GivenRows, givenRows } from './given-rows.js';
export { holdsText, likeText } from './like.js';
export type { DatabaseClaim } from './claim/claim.js';
export { claimDatabase, claimDatabases } from './claim/database-claim.js';
export { joinProcesses, type ProcessRegistry, type ProcessView, runningProcesses } from './processes/join-processes.js';
export { copyDatabase, finishCopy } from './copy/copy-database.js';
export type { ImagePart } from './image/image.js';
export { isEmptyDatabase, loadImage, takeImage } from './image/take-image.js';
export { openDatabase } from './open-database.js';
export { type DatabaseReader, openReader } from './open-reader.js';
export {
  checkDatabaseOptions,
  type DatabaseOptions,
  parseDatabaseOptions,
  type PostgresOptions,
  type SqliteOptions,
} from './options.js';
export { migrate } from './migrate.js';
export { databaseMigrations, stateDatabaseMigrations } from './migrations.js';
export { planUpgrade, type UpgradePlan } from './upgrade-plan.js';
export { forgetPart, isRestored, markPart, markRestored, partOf, reviveRestored } from './restored.query.js';
export { planRollback, rollback, type SchemaRollback } from './rollback.js';
export {
  checkServable,
  hasTable,
  pendingMigrations,
  readSchemaState,
  type SchemaState,
  tablesAmong,
} from './schema-state.js';
export { Sequence } from './streams/sequence.js';
export { raiseShared, readShared, takeShared } from './streams/shared-positions.query.js';
export { SkippedPositions } from './streams/skipped-positions.query.js';
export { StreamIds } from './streams/stream-ids.js';
export type { StatementObserver, TransactionReport } from './transaction.js';
export {
  type BackgroundUpdate,
  defineBackgroundUpdate,
  queueBackgroundUpdate,
  type UpdateProgress,
} from './background/background-update.js';
export {
  type BackgroundUpdateController,
  type TimedUpdate,
  BackgroundUpdates,
  type BackgroundUpdateSettings,
  backgroundUpdateSettingsOf,
} from './background/background-updates.js';
