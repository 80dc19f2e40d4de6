import {
  checkServable,
  claimDatabases,
  type Database,
  DatabaseBesideWriter,
  DataStores,
  type DatabaseClaim,
  type DatabaseOptions,
  isRestored,
  type Migration,
  migrate,
  openDatabase,
  pendingMigrations,
  readSchemaState,
  reviveRestored,
} from '@rookery/database';
import { type Clock, type Config, type Ids, type Logger, type Metrics, settingError } from '@rookery/platform';
import { stateStore } from '@rookery/rooms';
import { migrations, revivals, stateMigrations } from '../schema.js';
import { databaseObservers } from '../server-metrics.js';
import { StartupError } from '../startup-error.js';

/** Where the database of a server is, and what the server is to it. */
export interface ServedDatabaseOptions {
  readonly options: DatabaseOptions;
  /** Where state has a database of its own. */
  readonly state?: DatabaseOptions | undefined;
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
  readonly ids: Ids;
  readonly logger: Logger;
  readonly metrics: Metrics;
}

/** The databases of a server, mostly one, from opening to closing: claimed, in the shape that this version knows, fit to be served from. */
export class ServedDatabase {
  #database: Database | undefined;
  #state: Database | undefined;
  #claim: DatabaseClaim | undefined;
  #schemaVersion: number | undefined;

  constructor(private readonly served: ServedDatabaseOptions) {}

  /** Which version of the schema it has; `undefined` before it is open, and in a process that does not write. */
  get schemaVersion(): number | undefined {
    return this.#schemaVersion;
  }

  /** @throws DatabaseError, SettingsError or StartupError when it cannot be served from; {@link close} then closes what is open */
  async open(parts: OpeningParts): Promise<DataStores> {
    const { config, clock, ids, logger: parent, metrics } = parts;
    const { options, isBesideWriter, processNumber, onLost } = this.served;
    const logger = parent.child('database');
    const observers = databaseObservers(config, metrics, logger);
    const database = await openDatabase(
      ...([options, clock, logger, observers?.onTransaction, observers?.onStatement] as const),
      processNumber,
    );
    this.#database = database;
    // It needs no process number: whoever may not write to the main one can make nothing count that is in it.
    const state = (this.#state =
      this.served.state &&
      (await openDatabase(this.served.state, clock, logger, observers?.onTransaction, observers?.onStatement)));
    if (isBesideWriter) {
      const stores = new DataStores(new DatabaseBesideWriter(database), state && new DatabaseBesideWriter(state));
      await checkSchema(stores.main, migrations);
      if (state !== undefined) await checkSchema(stores.state, stateMigrations);
      await checkState(stores, config);
      return stores;
    }
    if (processNumber === undefined) {
      const all = this.served.state ? [options, this.served.state] : [options];
      const claim = (this.#claim = await claimDatabases(all, { logger }));
      void claim.lost.then((reason) => {
        logger.error('The server cannot go on with its database: it stops', { reason: reason.message });
        onLost(reason);
      });
    }
    ({ version: this.#schemaVersion } = await migrate(database, migrations, { logger, clock }));
    const stores = new DataStores(database, state);
    // Looked at before anything is made in it: it may be somebody else's.
    await checkState(stores, config);
    if (state !== undefined) await migrate(state, stateMigrations, { logger, clock });
    await stateStore.join(stores, config.serverName, ids.letters(24));
    if (await reviveRestored(database, revivals, clock.nowMs()))
      logger.warn(
        'The database was restored: its counters skip ahead, one-time keys count as used, devices are announced anew',
      );
    if (await stateStore.edges.queueRepair(stores.state))
      logger.warn(
        'The index that keeps rows of state_group_edges from being doubled is missing: it is made in the background',
      );
    return stores;
  }

  /** Closes what is open, and lets others have the database. */
  async close(): Promise<void> {
    await this.#database?.close();
    await this.#state?.close();
    await this.#claim?.release();
  }
}

/** @throws SettingsError when the state is not where the settings say */
async function checkState(stores: DataStores, config: Config): Promise<void> {
  const problem = await stateStore.problem(stores, config.serverName);
  if (problem === undefined) return;
  throw settingError(config, config.get('databases') === undefined ? 'database.name' : 'databases', [], problem);
}

/** A process beside the one that writes changes no schema. @throws StartupError when that one has yet to */
async function checkSchema(database: Database, known: readonly Migration[]): Promise<void> {
  const state = await readSchemaState(database);
  checkServable(state, known);
  const pending = pendingMigrations(state, known);
  if (await isRestored(database))
    throw new StartupError(
      'The database was restored: start the process that writes first, which makes it fit to go on',
    );
  if (pending.length > 0)
    throw new StartupError('The database needs an upgrade: start the process that writes first, which does that');
}
