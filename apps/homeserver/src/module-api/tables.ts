import type { Database, Tx } from '@rookery/database';
import type { ModuleMigration, ModuleTransaction } from '@rookery/module-api';
import type { TableBackend } from '@rookery/module-host';
import type { Clock } from '@rookery/platform';
import { inModuleTransaction } from './module-transaction.js';

/** Two processes that start together must not take a step twice. Any fixed number that nobody else uses will do. */
const advisoryLock = 7_246_502;
const maxName = 255;

/** A transaction is ours to begin and end, and settings of a connection outlive it: modules get plain statements only. */
const allowedStatements = new Set(['SELECT', 'WITH', 'VALUES', 'INSERT', 'UPDATE', 'DELETE']);
const allowedSteps = new Set([...allowedStatements, 'CREATE', 'ALTER', 'DROP']);

const definition = /^(CREATE|ALTER|DROP)\s+(?:UNIQUE\s+)?(TABLE|INDEX)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?["`]?(\w+)/i;

/** What the names of a module's tables and indexes begin with: `module_word_filter_`. */
export const tablePrefix = (module: string): string => `module_${module.replace(/[^a-z0-9]/g, '_')}_`;

/** Tables that modules made for themselves, in the server's database. */
export function tableBackend(database: Database, clock: Clock): TableBackend {
  return {
    // The module's name alone is a label of metrics: there may be any number of descriptions.
    run: (module, _description, work) =>
      inModuleTransaction(database, clock, module, `module_${module}`, (tx) => work(moduleTransaction(tx))),
    async migrate(module, migrations) {
      checkSteps(module, migrations);
      for (const migration of migrations) {
        await database.write((tx) => applyStep(tx, module, migration), { name: 'module_migrate', limitMs: Infinity });
      }
    },
  };
}

function moduleTransaction(tx: Tx): ModuleTransaction {
  return Object.freeze({
    dialect: tx.dialect.name,
    query: async (sql, params) => {
      checkStatement(sql, allowedStatements);
      return tx.query(sql, params);
    },
    run: async (sql, params) => {
      checkStatement(sql, allowedStatements);
      return tx.run(sql, params);
    },
  } satisfies ModuleTransaction);
}

function checkSteps(module: string, migrations: readonly ModuleMigration[]): void {
  const seen = new Set<string>();
  const prefix = tablePrefix(module);
  for (const { name, sql } of migrations) {
    if (typeof name !== 'string' || name === '' || name.length > maxName) {
      throw new RangeError(`A migration needs a name of 1 to ${maxName} characters`);
    }
    if (seen.has(name)) throw new RangeError(`Two migrations are called ${name}`);
    seen.add(name);
    const statements = isList(sql) ? sql : [...sql.postgres, ...sql.sqlite];
    for (const statement of statements) {
      if (allowedStatements.has(checkStatement(statement, allowedSteps))) continue;
      const defined = definitionIn(statement);
      if (!defined) throw new RangeError(`${name}: only tables and indexes can be created, altered, dropped`);
      if (!defined.object.startsWith(prefix)) {
        throw new RangeError(`${name}: the name of ${defined.object} has to begin with ${prefix}`);
      }
      if (/\bRENAME\s+TO\b/i.test(bareText(statement)))
        throw new RangeError(`${name}: names of tables stay as they are`);
    }
  }
}

async function applyStep(tx: Tx, module: string, { name, sql }: ModuleMigration): Promise<void> {
  if (tx.dialect.name === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(?)', [advisoryLock]);
  const step = [module, name];
  const known = 'SELECT 1 AS found FROM applied_module_schemas WHERE module_name = ? AND file = ?';
  if ((await tx.get(known, step)) !== undefined) return;
  for (const statement of isList(sql) ? sql : sql[tx.dialect.name]) {
    await tx.run(statement);
    await record(tx, module, definitionIn(statement));
  }
  await tx.run('INSERT INTO applied_module_schemas (module_name, file) VALUES (?, ?)', step);
}

/** Keeps track of whose tables are whose: prefixes of modules may begin with each other's. */
async function record(tx: Tx, module: string, defined: Definition | undefined): Promise<void> {
  if (defined?.kind !== 'TABLE') return;
  const { verb, object } = defined;
  if (verb === 'DROP') await tx.run('DELETE FROM module_tables WHERE table_name = ?', [object]);
  if (verb !== 'CREATE') return;
  const mine = await tx.run(
    `INSERT INTO module_tables (table_name, module_name) VALUES (?, ?) ON CONFLICT (table_name) DO UPDATE
       SET module_name = excluded.module_name WHERE module_tables.module_name = excluded.module_name`,
    [object, module],
  );
  if (mine === 0) throw new RangeError(`The table ${object} belongs to another module`);
}

/** What a statement creates, alters or drops. */
interface Definition {
  /** In capitals, as is the kind. */
  readonly verb: string;
  readonly kind: string;
  /** In lower case. */
  readonly object: string;
}

function definitionIn(statement: string): Definition | undefined {
  // Quoted names are wanted here, comments are not.
  const found = definition.exec(statement.replace(comments, ' ').trim());
  const [, verb = '', kind = '', object = ''] = found ?? [];
  return found ? { verb: verb.toUpperCase(), kind: kind.toUpperCase(), object: object.toLowerCase() } : undefined;
}

const isList = (sql: ModuleMigration['sql']): sql is readonly string[] => Array.isArray(sql);

const comments = /--[^\n]*|\/\*[^]*?\*\//g;
/** Texts, quoted names and comments: what may hold any character without meaning it. */
const opaque = /'(?:[^']|'')*'|"[^"]*"|--[^\n]*|\/\*[^]*?\*\//g;
const bareText = (sql: string): string => String(sql).replace(opaque, ' ').trim();

/** @returns the statement's first word, in capitals */
function checkStatement(sql: string, allowed: ReadonlySet<string>): string {
  const bare = bareText(sql);
  const word = /^\w+/.exec(bare)?.[0].toUpperCase() ?? '';
  if (!allowed.has(word)) throw new RangeError(`A statement begins with one of ${[...allowed].join(', ')}`);
  if (bare.replace(/;$/, '').includes(';')) throw new RangeError('Statements are given one by one');
  return word;
}
