import {
  checkServable,
  claimDatabase,
  type Database,
  DatabaseBesideWriter,
  type DatabaseClaim,
  type DatabaseOptions,
  isRestored,
  migrate,
  openDatabase,
  pendingMigrations,
  readSchemaState,
  reviveRestored,
} from '@rookery/database';
import type { Clock, Config, Logger, Metrics } from '@rookery/platform';
import { stateGroupEdges } from '@rookery/rooms';
import { migrations, revivals } from '../schema.js';
import { databaseObservers } from '../server-metrics.js';
import { StartupError } from '../startup-error.js';

/** Where the database of a server is, and what the server is to it. */
export interface ServedDatabaseOptions {
  readonly options: DatabaseOptions;
  /** Another process writes: nothing is changed, neither rows nor tables. */
  readonly isBesideWriter: boolean;
  /** By which the database knows this process among others. Whoever has one has the right to write by that. */
  readonly processNumber: number | undefined;
  /** Another server has taken the database over. */
  readonly onLost: (reason: Error) => void;
}

/** What opening a database takes beside knowing where it is. */
export interface OpeningParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
}

/** The database of a server from opening to closing: claimed, in the shape that this version knows, fit to be served from. */
export class ServedDatabase {
  #database: Database | undefined;
  #claim: DatabaseClaim | undefined;
  #schemaVersion: number | undefined;

  constructor(private readonly served: ServedDatabaseOptions) {}

  /** Which version of the schema it has; `undefined` before it is open, and in a process that does not write. */
  get schemaVersion(): number | undefined {
    return this.#schemaVersion;
  }

  /** @throws DatabaseError or StartupError when it cannot be served from; {@link close} then closes what is open */
  async open({ config, clock, logger: parent, metrics }: OpeningParts): Promise<Database> {
    const { options, isBesideWriter, processNumber, onLost } = this.served;
    const logger = parent.child('database');
    const observers = databaseObservers(config, metrics, logger);
    const database = await openDatabase(
      ...([options, clock, logger, observers?.onTransaction, observers?.onStatement] as const),
      processNumber,
    );
    this.#database = database;
    if (isBesideWriter) {
      const beside = new DatabaseBesideWriter(database);
      this.#database = beside;
      await checkSchema(beside);
      return beside;
    }
    if (processNumber === undefined) {
      const claim = (this.#claim = await claimDatabase(options, { logger }));
      void claim.lost.then((reason) => {
        logger.error('Another server has the database now: this one stops', { reason: reason.message });
        onLost(reason);
      });
    }
    ({ version: this.#schemaVersion } = await migrate(database, migrations, { logger, clock }));
    if (await reviveRestored(database, revivals, clock.nowMs()))
      logger.warn(
        'The database was restored: its counters skip ahead, one-time keys count as used, devices are announced anew',
      );
    if (await stateGroupEdges.queueRepair(database))
      logger.warn(
        'The index that keeps rows of state_group_edges from being doubled is missing: it is made in the background',
      );
    return database;
  }

  /** Closes what is open, and lets others have the database. */
  async close(): Promise<void> {
    await this.#database?.close();
    await this.#claim?.release();
  }
}

/** A process beside the one that writes changes no schema. @throws StartupError when that one has yet to */
async function checkSchema(database: Database): Promise<void> {
  const state = await readSchemaState(database);
  checkServable(state, migrations);
  const pending = pendingMigrations(state, migrations);
  if (await isRestored(database))
    throw new StartupError(
      'The database was restored: start the process that writes first, which makes it fit to go on',
    );
  if (pending.length > 0)
    throw new StartupError('The database needs an upgrade: start the process that writes first, which does that');
}
