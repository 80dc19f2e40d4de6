import { EventEmitter } from 'node:events';
import { type DataSource, QueryFailedError, QueryResult, type Table, type TableColumn, TypeORMError } from 'typeorm';
import { AbstractSqliteDriver } from 'typeorm/driver/sqlite-abstract/AbstractSqliteDriver.js';
import { AbstractSqliteQueryRunner } from 'typeorm/driver/sqlite-abstract/AbstractSqliteQueryRunner.js';
import { Broadcaster } from 'typeorm/subscriber/Broadcaster.js';
import type { Line } from './line.js';

/** Makes a line for each query runner. */
export type Lines = () => Line;

/** TypeORM's driver for SQLite on top of the host: a query runner of its own for each that asks, so that transactions stay apart. */
export class HostSqliteDriver extends AbstractSqliteDriver {
  constructor(
    source: DataSource,
    private readonly lines: Lines,
  ) {
    super(source);
    this.transactionSupport = 'simple';
  }

  override connect(): Promise<void> {
    return Promise.resolve();
  }

  override disconnect(): Promise<void> {
    return Promise.resolve();
  }

  override createQueryRunner(): HostSqliteQueryRunner {
    return new HostSqliteQueryRunner(this, this.lines());
  }

  protected override createDatabaseConnection(): Promise<void> {
    return Promise.resolve();
  }

  protected override loadDependencies(): void {}
}

class HostSqliteQueryRunner extends AbstractSqliteQueryRunner {
  constructor(
    override readonly driver: HostSqliteDriver,
    private readonly line: Line,
  ) {
    super();
    this.dataSource = driver.dataSource;
    this.broadcaster = new Broadcaster(this);
  }

  override connect(): Promise<Line> {
    return Promise.resolve(this.line);
  }

  override async release(): Promise<void> {
    this.isReleased = true;
    await super.release();
    await this.line.close();
  }

  override async query(sql: string, parameters?: unknown, structured?: boolean): Promise<never> {
    if (this.isReleased) throw new TypeORMError('The query runner was released');
    const { logger } = this.driver.dataSource;
    const given = (parameters as unknown[] | undefined) ?? [];
    logger.logQuery(sql, given, this);
    try {
      const { rows, changes, lastId } = await this.line.query(sql, given);
      const result = new QueryResult();
      result.records = rows;
      result.affected = changes;
      result.raw = lastId ?? rows;
      return (structured ? result : result.raw) as never;
    } catch (error) {
      logger.logQueryError(error as Error, sql, given, this);
      throw new QueryFailedError(sql, given, error as Error);
    }
  }

  /** Without a look at what is there, which would make the table anew. */
  override async addColumn(table: Table | string, column: TableColumn): Promise<void> {
    const name = typeof table === 'string' ? table : table.name;
    await this.query(`ALTER TABLE ${this.escapePath(name)} ADD COLUMN ${this.buildCreateColumnSql(column, false)}`);
  }

  override async dropTable(table: Table | string): Promise<void> {
    await this.query(`DROP TABLE ${this.escapePath(typeof table === 'string' ? table : table.name)}`);
  }
}

/** What the PostgreSQL driver takes for the package `pg`. */
export function hostPg(lines: Lines): object {
  class Connection extends EventEmitter {
    readonly line = lines();

    async query(sql: string, parameters?: unknown[]): Promise<object> {
      // Where the tables of modules are is the host's affair.
      if (/^\s*SELECT\s+(?:\*\s+FROM\s+)?current_schema\(\)/i.test(sql))
        return { command: 'SELECT', rows: [{ current_schema: 'public' }], rowCount: 1 };
      const { rows, changes } = await this.line.query(sql, parameters);
      return { command: /^\s*(\w+)/.exec(sql)?.[1]?.toUpperCase(), rows, rowCount: changes };
    }
  }
  class Pool extends EventEmitter {
    connect(done: (error: undefined, connection: Connection, release: () => void) => void): void {
      const connection = new Connection();
      done(undefined, connection, () => void connection.line.close().catch(() => {}));
    }

    end(done?: () => void): void {
      done?.();
    }
  }
  return { Pool };
}
