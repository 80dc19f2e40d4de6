import { Injectable } from '@nestjs/common';
import { Database, type DialectName, type Tx } from '@rookery/database';
import type { ModuleMigration, ModuleTransaction } from '@rookery/module-api';
import type { TableBackend } from '@rookery/module-host';
import { Clock } from '@rookery/platform';
import { inModuleTransaction } from './module-transaction.js';
import { type Definition, type ModuleWall, SqlWall, tablePrefix } from './sql-wall.query.js';
import { type SqlToken, sqlTokens } from './sql-tokens.js';
import { appliedSteps, insertStep, isApplied, lockSteps, lockWrites, releaseTable, takeTable } from './tables.query.js';

const maxName = 255;

/** A transaction is ours to begin and end, and settings of a connection outlive it: modules get plain statements only. */
const allowedStatements = new Set(['SELECT', 'WITH', 'VALUES', 'INSERT', 'UPDATE', 'DELETE']);
/** One of them is in each statement that writes or locks rows; who has one as a column's name writes for no reason. */
const writingWords = new Set(['insert', 'update', 'delete', 'share']);
const allowedSteps = new Set([...allowedStatements, 'CREATE', 'ALTER', 'DROP']);

/** Tables that modules made for themselves, in the server's database. */
@Injectable()
export class ModuleTables implements TableBackend {
  readonly #wall: SqlWall;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
  ) {
    this.#wall = new SqlWall(database);
  }

  async run<T>(module: string, _description: string, work: (tx: ModuleTransaction) => Promise<T>): Promise<T> {
    const own = await this.#wall.of(module);
    const inTransaction = async (tx: Tx): Promise<T> => {
      own.broken = undefined;
      const result = await work(moduleTransaction(tx, own, writing(tx, module)));
      if (own.broken) throw own.broken;
      return result;
    };
    // The module's name alone is a label of metrics: there may be any number of descriptions.
    return inModuleTransaction(this.database, this.clock, module, `module_${module}`, inTransaction);
  }

  async migrate(module: string, migrations: readonly ModuleMigration[]): Promise<void> {
    checkNames(migrations);
    const { database } = this;
    // What was taken once is not looked at again: an older server may have taken what this one would refuse.
    const applied = await appliedSteps(database, module);
    const pending = migrations.filter(({ name }) => !applied.has(name));
    if (pending.length === 0) return;
    for (const migration of pending) checkStep(module, migration, [database.dialect.name]);
    const own = await this.#wall.of(module);
    try {
      for (const migration of pending) {
        const step = (tx: Tx): Promise<void> => applyStep(tx, module, own, migration);
        await database.write(step, { name: 'module_migrate', limitMs: Infinity, anyProcess: true });
      }
    } finally {
      this.#wall.forget();
    }
  }
}

/**
 * Called before each statement that writes, or locks rows to write them. One transaction of a module writes at a time: from there on
 * it sees what those before it left, and those behind it wait, as they do on SQLite from their beginning.
 */
function writing(tx: Tx, module: string): () => Promise<void> {
  let lock: Promise<void> | undefined;
  return () => (lock ??= lockWrites(tx, module));
}

function moduleTransaction(tx: Tx, wall: ModuleWall, writes: () => Promise<void>): ModuleTransaction {
  const checked = async (sql: string, params: Parameters<Tx['query']>[1]): Promise<void> => {
    const tokens = checkStatement(sql, tx.dialect.name, allowedStatements);
    if (tokens.some(({ kind, value }) => kind === 'name' && writingWords.has(value.toLowerCase()))) await writes();
    await wall.check(tx, sql, params);
  };
  return Object.freeze({
    dialect: tx.dialect.name,
    query: async (sql, params) => {
      await checked(sql, params);
      return tx.query(sql, params);
    },
    run: async (sql, params) => {
      await checked(sql, params);
      return tx.run(sql, params);
    },
  } satisfies ModuleTransaction);
}

/** Says what is wrong with the steps of a module, whatever the database, for one that has taken none of them. @throws RangeError */
export function checkSteps(module: string, migrations: readonly ModuleMigration[]): void {
  checkNames(migrations);
  for (const migration of migrations) checkStep(module, migration, ['postgres', 'sqlite']);
}

function checkNames(migrations: readonly ModuleMigration[]): void {
  const seen = new Set<string>();
  for (const { name } of migrations) {
    if (typeof name !== 'string' || name === '' || name.length > maxName) {
      throw new RangeError(`A migration needs a name of 1 to ${maxName} characters`);
    }
    if (seen.has(name)) throw new RangeError(`Two migrations are called ${name}`);
    seen.add(name);
  }
}

function checkStep(module: string, { name, sql }: ModuleMigration, dialects: readonly DialectName[]): void {
  const prefix = tablePrefix(module);
  for (const dialect of dialects) {
    for (const statement of isList(sql) ? sql : sql[dialect]) {
      const tokens = checkStatement(statement, dialect, allowedSteps);
      if (allowedStatements.has(firstWord(tokens))) continue;
      const defined = definitionIn(tokens);
      if (!defined) throw new RangeError(`${name}: only tables and indexes can be created, altered, dropped`);
      for (const object of defined.objects) {
        if (!object.startsWith(prefix)) {
          throw new RangeError(`${name}: the name of ${object} has to begin with ${prefix}`);
        }
      }
      if (tokens.some(({ kind, value }, i) => kind === 'name' && value === 'rename' && tokens[i + 1]?.value === 'to'))
        throw new RangeError(`${name}: names of tables stay as they are`);
    }
  }
}

async function applyStep(tx: Tx, module: string, wall: ModuleWall, { name, sql }: ModuleMigration): Promise<void> {
  await lockSteps(tx);
  if (await isApplied(tx, module, name)) return;
  for (const statement of isList(sql) ? sql : sql[tx.dialect.name]) {
    const defined = definitionIn(sqlTokens(statement, tx.dialect.name));
    await wall.migrate(tx, statement, defined);
    await record(tx, module, defined);
  }
  await insertStep(tx, module, name);
}

/** Keeps track of whose tables are whose: prefixes of modules may begin with each other's. */
async function record(tx: Tx, module: string, defined: Definition | undefined): Promise<void> {
  if (defined?.kind !== 'TABLE') return;
  const { verb, objects } = defined;
  for (const object of objects) {
    if (verb === 'DROP') await releaseTable(tx, object);
    if (verb !== 'CREATE') continue;
    if (!(await takeTable(tx, module, object))) throw new RangeError(`The table ${object} belongs to another module`);
  }
}

function definitionIn(tokens: readonly SqlToken[]): Definition | undefined {
  const words = tokens.map(({ kind, value }) => (kind === 'text' ? "'" : value));
  let at = 0;
  const takes = (...wanted: string[]): boolean => {
    if (!wanted.every((word, i) => words[at + i] === word)) return false;
    at += wanted.length;
    return true;
  };
  const verb = words[at++]?.toUpperCase() ?? '';
  if (verb !== 'CREATE' && verb !== 'ALTER' && verb !== 'DROP') return undefined;
  takes('unique');
  const kind = words[at++]?.toUpperCase() ?? '';
  if (kind !== 'TABLE' && kind !== 'INDEX') return undefined;
  if (!takes('if', 'not', 'exists')) takes('if', 'exists');
  const objects: string[] = [];
  do {
    if (tokens[at]?.kind !== 'name') return undefined;
    objects.push(words[at++]!);
  } while (verb === 'DROP' && takes(','));
  // The name of a schema, or of another database.
  return words[at] === '.' ? undefined : { verb, kind, objects };
}

const isList = (sql: ModuleMigration['sql']): sql is readonly string[] => Array.isArray(sql);

const firstWord = ([first]: readonly SqlToken[]): string => (first?.kind === 'name' ? first.value.toUpperCase() : '');

/** One statement of a kind that is allowed. @throws RangeError */
function checkStatement(sql: string, dialect: DialectName, allowed: ReadonlySet<string>): SqlToken[] {
  const tokens = sqlTokens(String(sql), dialect);
  if (!allowed.has(firstWord(tokens)))
    throw new RangeError(`A statement begins with one of ${[...allowed].join(', ')}`);
  const end = tokens.findIndex(({ kind, value }) => kind === 'mark' && value === ';');
  if (end >= 0 && end < tokens.length - 1) throw new RangeError('Statements are given one by one');
  return tokens;
}
