import type { ModuleApi, ModuleMigration } from '@rookery/module-api';
import {
  DataSource,
  type DataSourceOptions,
  DefaultNamingStrategy,
  type MigrationInterface,
  type MixedList,
  type Logger,
  type Table,
  type TableIndex,
} from 'typeorm';
import { HostSqliteDriver, hostPg, type Lines } from './drivers.js';
import { HostLine, Notebook } from './line.js';

/** A migration of TypeORM: a class, whose name it is recorded under. */
export type MigrationClass = new () => MigrationInterface;

/** The tables of a module. */
export interface ModuleDataSourceOptions {
  /** Classes with `@Entity`. The names of their tables get the prefix that those of a module have. */
  readonly entities: readonly (new (...args: never[]) => object)[];
  /**
   * Classes whose `up` makes the tables, in the order in which they run; each runs once. It runs for both databases without one, so
   * it cannot read; `createTable`, `createIndex`, `addColumn`, `dropTable` and `query` are there.
   */
  readonly migrations?: readonly (MigrationClass | ModuleMigration)[];
  /** Classes with `@EventSubscriber`. */
  readonly subscribers?: MixedList<new (...args: never[]) => object>;
  /** Default: errors of statements are thrown, and nothing is written. */
  readonly logger?: Logger;
}

/** What the names of a module's tables begin with: `module_word_filter_`. */
export const tablePrefix = (moduleName: string): string => `module_${moduleName.replace(/[^a-z0-9]/g, '_')}_`;

/** The names that the host asks for, whatever entities and migrations call their tables. */
class ModuleNames extends DefaultNamingStrategy {
  constructor(readonly prefix: string) {
    super();
  }

  prefixed(name: string): string {
    return name.startsWith(this.prefix) ? name : this.prefix + name;
  }

  override tableName(target: string, given: string | undefined): string {
    return this.prefixed(super.tableName(target, given));
  }

  override joinTableName(...names: Parameters<DefaultNamingStrategy['joinTableName']>): string {
    const bare = (name: string): string => (name.startsWith(this.prefix) ? name.slice(this.prefix.length) : name);
    const [first, second, ...rest] = names;
    return this.prefixed(super.joinTableName(bare(first), bare(second), ...rest));
  }

  override indexName(...of: Parameters<DefaultNamingStrategy['indexName']>): string {
    return this.prefixed(super.indexName(...of).toLowerCase());
  }
}

/**
 * Makes the tables of a module and gives TypeORM's `DataSource` for them, on the database of the server, whichever that is. Only
 * while `register` runs. Every statement goes through the host: a transaction is one of the host's, with its limits, and
 * keeps to the module's own tables.
 *
 * ```ts
 * const source = await moduleDataSource(api, { entities: [Note], migrations: [CreateNotes] });
 * const notes = source.getRepository(Note);
 * ```
 * @throws RangeError when a migration touches what is not the module's
 */
export async function moduleDataSource(api: ModuleApi, options: ModuleDataSourceOptions): Promise<DataSource> {
  const names = new ModuleNames(tablePrefix(api.moduleName));
  const migrations: ModuleMigration[] = [];
  for (const one of options.migrations ?? [])
    migrations.push(typeof one === 'function' ? await migrationOf(one, names) : one);
  await api.migrate(migrations);
  const dialect = await api.runDbInteraction('typeorm', (tx) => Promise.resolve(tx.dialect));
  const source = await sourceOf(dialect, () => new HostLine(api), names, options);
  api.onStop(() => source.destroy());
  return source;
}

async function sourceOf(
  dialect: 'postgres' | 'sqlite',
  lines: Lines,
  namingStrategy: ModuleNames,
  { entities, subscribers, logger }: ModuleDataSourceOptions,
): Promise<DataSource> {
  const common = {
    entities: [...entities],
    namingStrategy,
    logging: logger !== undefined,
    ...(subscribers && { subscribers }),
    ...(logger && { logger }),
  } as Partial<DataSourceOptions>;
  const source =
    dialect === 'sqlite'
      ? new DataSource({
          ...common,
          type: 'better-sqlite3',
          database: ':memory:',
          driver: class {},
        } as DataSourceOptions)
      : new DataSource({
          ...{ ...common, type: 'postgres', driver: hostPg(lines) },
          ...{ installExtensions: false, uuidExtension: 'pgcrypto', parseInt8: undefined },
        } as DataSourceOptions);
  if (dialect === 'sqlite') source.driver = new HostSqliteDriver(source, lines);
  // What it would ask the database for.
  else
    Object.assign(source.driver, {
      ...{ version: '14.0', database: 'host', searchSchema: 'public', transactionSupport: 'simple' },
    });
  return source.initialize();
}

/** The statements of a migration on both databases. */
async function migrationOf(type: MigrationClass, names: ModuleNames): Promise<ModuleMigration> {
  const migration = new type();
  const sql = { postgres: [] as string[], sqlite: [] as string[] };
  for (const dialect of ['postgres', 'sqlite'] as const) {
    const notebook = new Notebook();
    const source = await sourceOf(dialect, () => notebook, names, { entities: [] });
    const runner = source.createQueryRunner();
    const nameOf = (table: Table | string): string => {
      if (typeof table === 'string') return names.prefixed(table);
      table.name = names.prefixed(table.name);
      return table.name;
    };
    const { createTable, addColumn, dropTable } = runner;
    runner.createTable = (table, _ifNotExists, constraints, indices) => {
      nameOf(table);
      for (const key of table['foreignKeys']) key.referencedTableName = names.prefixed(key.referencedTableName);
      for (const index of table.indices) if (index.name !== undefined) index.name = names.prefixed(index.name);
      return createTable.call(runner, table, false, constraints, indices);
    };
    runner.createIndex = async (table, index) => {
      const on = nameOf(table);
      const name = names.prefixed(index.name ?? names.indexName(on, index.columnNames, index.where));
      await runner.query(createIndexSql(on, name, index));
    };
    runner.addColumn = (table, column) =>
      dialect === 'sqlite'
        ? addColumn.call(runner, nameOf(table), column)
        : runner.query(
            `ALTER TABLE "${nameOf(table)}" ADD ${(runner as unknown as ColumnSql).buildCreateColumnSql({ name: nameOf(table) } as Table, column)}`,
          );
    runner.dropTable = (table) =>
      dialect === 'sqlite'
        ? dropTable.call(runner, nameOf(table))
        : runner.query(`DROP TABLE "${nameOf(table)}"`).then(() => {});
    await migration.up(runner);
    sql[dialect].push(...notebook.statements);
  }
  return { name: migration.name ?? type.name, sql };
}

interface ColumnSql {
  buildCreateColumnSql(table: Table, column: unknown): string;
}

function createIndexSql(table: string, name: string, { columnNames, isUnique, where }: TableIndex): string {
  const columns = columnNames.map((column) => `"${column}"`).join(', ');
  return `CREATE ${isUnique ? 'UNIQUE ' : ''}INDEX "${name}" ON "${table}" (${columns})${where ? ` WHERE ${where}` : ''}`;
}
