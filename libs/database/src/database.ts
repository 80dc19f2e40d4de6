import { OnlyAtWriterError } from '@rookery/platform';

/** A value that may be bound to a statement. Booleans become 0/1 on SQLite; a list is for {@link Db.anyOf}. */
export type SqlValue = string | number | bigint | boolean | null | Uint8Array | readonly string[] | readonly number[];

/** A boolean as it comes back: `true`/`false` from PostgreSQL, 1/0 from SQLite. Test it for truth only. */
export type SqlBool = boolean | 0 | 1;

export type DialectName = 'postgres' | 'sqlite';

/** What differs between the two databases, for the few statements that need it. */
export interface Dialect {
  readonly name: DialectName;
  /** Type of a column of bytes: `BYTEA` or `BLOB`. */
  readonly bytesType: string;
  /** Column definition of a self-numbering primary key. */
  readonly identityType: string;
  /**
   * `column IN (list)` as one bound parameter, so that the statement's text does not depend on the list's length:
   * `query(`SELECT … WHERE ${db.dialect.anyOf('event_id')}`, [ids])`.
   */
  anyOf(column: string): string;
  /** `column NOT IN (list)` in the same way. */
  noneOf(column: string): string;
}

/**
 * Reads. Statements use `?` for parameters on both databases. Rows are plain objects with the columns' names; 64-bit
 * integers arrive as numbers; JSON is kept as text.
 */
export interface Db {
  readonly dialect: Dialect;
  /** All rows. */
  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]>;
  /** The first row, or `undefined` when there is none. */
  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined>;
}

/** A transaction: reads see its own writes; everything in it becomes durable together or not at all. */
export interface Tx extends Db {
  // A statement that fails spoils the transaction on both databases: what follows throws, and nothing is committed even
  // when the failure was caught. Use `ON CONFLICT` where a duplicate is an expected outcome.

  /** Runs a statement that changes rows; the number of rows changed. */
  run(sql: string, params?: readonly SqlValue[]): Promise<number>;
  /**
   * The same where nobody asks for the number: on PostgreSQL the statement then travels with those after it. Its failure may
   * show with a later statement, at the latest with the commit; later statements see what it did.
   */
  exec(sql: string, params?: readonly SqlValue[]): Promise<void>;
  /**
   * Inserts many rows in as few statements as possible. `rows` are arrays in the order of `columns`.
   * `suffix` is put behind the values: `ON CONFLICT (…) DO NOTHING`. With `DO UPDATE` no two rows may share a key. A failure
   * may show later, as with {@link exec}.
   */
  insertMany(
    table: string,
    columns: readonly string[],
    rows: readonly (readonly SqlValue[])[],
    suffix?: string,
  ): Promise<void>;
  /** Registers a function to run once the transaction is durable, in order of registration. It must not throw. */
  afterCommit(fn: () => void): void;
  /**
   * The same, and also when nobody can tell whether the transaction is durable, because the connection broke at its very end:
   * to forget what was remembered, or to say that there may be news. It must do no harm when nothing has changed.
   */
  unlessRolledBack(fn: () => void): void;
  /** Registers a function to run when the transaction came to nothing, or nobody can tell, for example before it is tried again. It must not throw. */
  afterRollback(fn: () => void): void;
}

/** Told with a transaction, for logs and metrics. */
export interface WriteOptions {
  /** Name in metrics and slow-query logs, snake_case; not user data. */
  readonly name?: string;
  /**
   * After this time the transaction is rolled back and its caller refused, so that one that hangs cannot block others;
   * 60,000 unless told. `Infinity` for migrations.
   */
  readonly limitMs?: number;
  /**
   * Tells whether the transaction is in the database. Asked when the connection broke before its commit was answered, as soon
   * as the server is back, which the caller waits for: the transaction then counts as done, or is tried again. Without it the
   * caller gets the connection's error, whatever became of the transaction.
   */
  readonly happened?: (db: Db) => Promise<boolean>;
  /**
   * Where several processes share the database: any of them may write this. Everything else is written by one alone; the others
   * are refused with an `OnlyAtWriterError`.
   */
  readonly anyProcess?: boolean;
  /**
   * What is deleted is meant to be gone: SQLite overwrites it in the file, which costs time, and once {@link Database.reclaim}
   * has nothing more to do no older copy lies in its log or in unused pages. PostgreSQL does as much when it vacuums, by itself.
   */
  readonly erase?: boolean;
}

/**
 * The server's database: PostgreSQL or SQLite behind one face.
 *
 * On SQLite, writes run one after the other on the single writer connection (waiting ones share a commit, in
 * savepoints of their own), reads use a second, read-only connection. On PostgreSQL both come from a pool, writes at
 * READ COMMITTED, retried when the server reports a deadlock or a serialisation failure.
 */
export abstract class Database implements Db {
  abstract readonly dialect: Dialect;
  /** Whether another process writes, and this one only where any may ({@link WriteOptions.anyProcess}). */
  readonly isBesideWriter: boolean = false;
  /**
   * For what is only done to be stored, or is known in memory to the process that writes: refuses it elsewhere before it begins.
   * @throws OnlyAtWriterError where {@link isBesideWriter}; the request goes to the process that writes
   */
  onlyAtWriter(what: string): void {
    if (this.isBesideWriter) throw new OnlyAtWriterError(what);
  }
  abstract query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]>;
  abstract get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined>;
  /**
   * Runs `fn` in a transaction and resolves once that is durable. When `fn` rejects, everything is rolled back and the
   * rejection passed on. `fn` may run more than once (deadlock): it must have no effect beyond `tx`. Never await network,
   * timers or another `write` in it: a nested `write` throws.
   */
  abstract write<T>(fn: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T>;
  /**
   * Gives a bounded part of the unused space back to the file system. Call it again, with pauses, while there is more.
   * PostgreSQL does that by itself (autovacuum).
   * @returns bytes given back; 0 when there is no more
   */
  reclaim(): Promise<number> {
    return Promise.resolve(0);
  }
  abstract close(): Promise<void>;
}

/** What a step costs on a database that holds something: told to operators before they upgrade. */
export interface MigrationCost {
  /** The database on which it costs that; both unless told. */
  readonly on?: DialectName;
  /** Tables over whose rows it goes, under the names from before the step. */
  readonly tables: readonly string[];
  /** How long it takes for a million of their rows, on a plain disk. */
  readonly secondsPerMillion: number;
  /** It writes the tables anew: while it runs they occupy their size on disk once more. */
  readonly rewrites?: boolean;
}

/** A forward-only step of the schema. Each lib exports its list; the app concatenates them. */
export interface Migration {
  /** The schema version it belongs to. */
  readonly version: number;
  /** Unique name within the version, with the lib's name first: `users_01_accounts`. Recorded in `applied_schema_deltas`. */
  readonly name: string;
  /**
   * The oldest schema version whose programs can serve a database that has this step. Its own unless told: programs that do
   * not know the step refuse the database.
   */
  readonly servedFrom?: number;
  /** What it goes over; nothing where it only makes tables, columns without values, and their indexes. */
  readonly cost?: readonly MigrationCost[];
  /** Background updates that it may queue, which go on while the server runs. */
  readonly queues?: readonly string[];
  /** The way back, in a transaction of its own; a text says why there is none. Nothing told: there is none. */
  readonly back?: ((tx: Tx) => Promise<void>) | string;
  /** Must finish in seconds: moving many rows is a background update. Runs in a transaction of its own. */
  up(tx: Tx): Promise<void>;
}
