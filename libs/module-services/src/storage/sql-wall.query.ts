import type { Database, Tx } from '@rookery/database';
import { sqlTokens } from './sql-tokens.js';

/** How many statements are remembered as harmless, of all modules together. */
const maxKnown = 2_000;

/**
 * Names that no statement of a module has in it, tables of its own or not: the databases' catalogs, and functions that carry out
 * other statements, change settings or sequences, or reach files.
 */
const forbidden = {
  postgres:
    /^(?:pg_|lo_|dblink|binary_upgrade_|(?:query|table|cursor|schema|database)_to_xml|information_schema$|set_config$|ts_stat$|ts_rewrite$|loread$|lowrite$|nextval$|setval$|currval$|lastval$)/,
  sqlite: /^(?:sqlite_|pragma_|dbstat$|load_extension$)/,
} as const;

/** Where a module's steps are written down, in the transaction that takes them. */
const records = new Set(['module_tables', 'applied_module_schemas']);

/** Table-valued functions of SQLite that read nothing but what they are given. */
const harmless = new Set(['json_each', 'json_tree']);

/** What the names of a module's tables and indexes begin with: `module_word_filter_`. */
export const tablePrefix = (module: string): string => `module_${module.replace(/[^a-z0-9]/g, '_')}_`;

/**
 * Keeps the statements of modules to their own tables. Before a statement runs for the first time, the database itself is asked
 * what it touches: SQLite shows the program that it makes of it, with every table and index that it opens; PostgreSQL locks every
 * table that it finds in it. So neither quotes nor common table expressions, views or triggers hide anything. What neither
 * shows, functions that make statements of texts and the catalogs, is refused by name.
 */
export class SqlWall {
  readonly #known = new Set<string>();
  #owners: Promise<ReadonlyMap<string, string>> | undefined;

  constructor(private readonly database: Database) {}

  /** What the module may touch. Asked before a transaction, which must not touch the table of owners itself. */
  async of(module: string): Promise<ModuleWall> {
    this.#owners ??= this.#readOwners();
    const owners = await this.#owners;
    const prefix = tablePrefix(module);
    return new ModuleWall(module, prefix, this.#known, (name) => {
      if (!name.startsWith(prefix)) return false;
      // What belongs to a table, a sequence for example, begins with its name; prefixes of modules may begin with each other's.
      for (let end = name.length; end >= prefix.length; end = name.lastIndexOf('_', end - 1)) {
        const owner = owners.get(name.slice(0, end));
        if (owner !== undefined) return owner === module;
      }
      return true;
    });
  }

  /** To be told when there may be other tables than before. */
  forget(): void {
    this.#owners = undefined;
    this.#known.clear();
  }

  async #readOwners(): Promise<ReadonlyMap<string, string>> {
    try {
      const rows = await this.database.query<{ table_name: string; module_name: string }>(
        'SELECT table_name, module_name FROM module_tables',
      );
      return new Map(rows.map((row) => [row.table_name, row.module_name]));
    } catch (error) {
      this.#owners = undefined;
      throw error;
    }
  }
}

/** What a statement creates, alters or drops. */
export interface Definition {
  /** In capitals, as is the kind. */
  readonly verb: string;
  readonly kind: string;
  /** In lower case; more than one where several are dropped. */
  readonly objects: readonly string[];
}

let probes = 0;

/** The wall around one module, for the time of a transaction. */
export class ModuleWall {
  /** Why the transaction must come to nothing, whatever the module makes of the refusal. */
  broken: RangeError | undefined;

  constructor(
    private readonly module: string,
    private readonly prefix: string,
    private readonly known: Set<string>,
    private readonly isOwn: (name: string) => boolean,
  ) {}

  /**
   * Lets a statement pass that reads or changes rows of the module's own tables.
   * @throws RangeError when it touches anything else
   */
  async check(tx: Tx, sql: string, params: Parameters<Tx['query']>[1]): Promise<void> {
    if (this.broken) throw this.broken;
    const key = `${this.module}\n${sql}`;
    if (this.known.has(key)) return;
    this.checkNames(tx, sql);
    if (tx.dialect.name === 'sqlite') await this.#checkProgram(tx, sql, params, false);
    else {
      const name = `rookery_probe_${(probes += 1)}`;
      await tx.query(`PREPARE ${name} AS ${sql}`);
      await this.#checkLocks(tx);
      await tx.query(`DEALLOCATE ${name}`);
    }
    if (this.known.size >= maxKnown) this.known.clear();
    this.known.add(key);
  }

  /**
   * Carries out a statement of a migration.
   * @param defined what it creates, alters or drops; `undefined` for statements on rows
   * @throws RangeError when it touches anything but the module's own tables
   */
  async migrate(tx: Tx, sql: string, defined: Definition | undefined): Promise<void> {
    this.checkNames(tx, sql);
    // Whether a table that is created is free is seen when it is written down.
    if (defined && defined.verb !== 'CREATE') for (const name of defined.objects) this.#assertOwn(name);
    const isSqlite = tx.dialect.name === 'sqlite';
    if (isSqlite) await this.#checkProgram(tx, sql, [], defined !== undefined);
    await tx.run(sql);
    if (!isSqlite) return this.#checkLocks(tx);
    if (defined?.kind !== 'TABLE') return;
    const referenced = await tx.query<{ name: string }>(
      'SELECT DISTINCT lower("table") AS name FROM pragma_foreign_key_list(?)',
      [defined.objects[0] ?? ''],
    );
    for (const { name } of referenced) this.#assertOwn(name);
  }

  /** @throws RangeError for what may not be in a statement, whatever it touches */
  private checkNames(tx: Tx, sql: string): void {
    const dialect = tx.dialect.name;
    const tokens = sqlTokens(sql, dialect);
    for (const [i, { kind, value }] of tokens.entries()) {
      // A query of PostgreSQL that makes a table of what it finds.
      const isTarget = kind === 'name' && value === 'into' && tokens[i - 1]?.value !== 'insert';
      if (isTarget && dialect === 'postgres') this.#refuse('SELECT INTO is not for statements of modules');
      // SQLite takes a text for a name where it needs one.
      const name = kind === 'name' ? value : dialect === 'sqlite' && kind === 'text' ? value.toLowerCase() : undefined;
      if (name === undefined) continue;
      if (kind === 'text' && !/^\w+$/.test(name)) continue;
      if (forbidden[dialect].test(name) || records.has(name)) this.#refuse(`${name} is not for statements of modules`);
    }
  }

  /** Looks at the program that SQLite makes of a statement. */
  async #checkProgram(tx: Tx, sql: string, params: Parameters<Tx['query']>[1], isDefinition: boolean): Promise<void> {
    const program = await tx.query<{ opcode: string; p1: number; p2: number; p3: number; p5: number }>(
      `EXPLAIN ${sql}`,
      params,
    );
    const objects = await tx.query<{
      rootpage: number;
      type: string;
      name: string;
      tbl_name: string;
      sql: string | null;
    }>('SELECT rootpage, type, name, lower(tbl_name) AS tbl_name, sql FROM sqlite_master');
    const roots = new Map(objects.map(({ rootpage, tbl_name: table }) => [rootpage, table]));
    const touch = (root: number, schema: number): void => {
      const table = root === 1 ? 'sqlite_schema' : schema === 0 ? roots.get(root) : undefined;
      // What is defined is written down there, and numbers that count up by themselves beside it; neither can be named.
      if ((isDefinition && root === 1) || table === 'sqlite_sequence') return;
      this.#assertOwn(table ?? 'something unknown');
    };
    let isVirtual = false;
    for (const { opcode, p1, p2, p3, p5 } of program) {
      // A table that is just being made is known by a register only.
      if (opcode === 'OpenRead' || opcode === 'OpenWrite' || opcode === 'ReopenIdx') (p5 & 16) === 0 && touch(p2, p3);
      else if (opcode === 'Clear') touch(p1, p2);
      else if (opcode === 'Destroy') touch(p1, p3);
      else if (/^V[A-Z]/.test(opcode)) isVirtual = true;
    }
    if (!isVirtual) return;
    // A virtual table shows no page of its own; so nothing may be named that could be one, or have one in it.
    const functions = await tx.query<{ name: string }>('SELECT name FROM pragma_module_list');
    const hidden = objects.filter(({ type, sql: made }) => type === 'view' || /^\s*CREATE\s+VIRTUAL/i.test(made ?? ''));
    const names = new Set([...functions, ...hidden].map(({ name }) => name.toLowerCase()));
    for (const { kind, value } of sqlTokens(sql, 'sqlite')) {
      const name = value.toLowerCase();
      if (kind !== 'mark' && names.has(name) && !harmless.has(name)) this.#assertOwn(name);
    }
  }

  /** Looks at the tables that PostgreSQL has locked since the transaction began. */
  async #checkLocks(tx: Tx): Promise<void> {
    const touched = await tx.query<{ name: string }>(
      `SELECT DISTINCT coalesce(whole.relname, part.relname) AS name
       FROM pg_locks
       JOIN pg_class part ON part.oid = pg_locks.relation
       JOIN pg_namespace space ON space.oid = part.relnamespace
       LEFT JOIN pg_index ON pg_index.indexrelid = part.oid
       LEFT JOIN pg_class whole ON whole.oid = pg_index.indrelid
       WHERE pg_locks.pid = pg_backend_pid() AND pg_locks.locktype = 'relation'
         AND space.nspname NOT IN ('pg_catalog', 'pg_toast', 'information_schema')`,
    );
    for (const { name } of touched) if (!records.has(name)) this.#assertOwn(name);
  }

  #assertOwn(name: string): void {
    if (!this.isOwn(name))
      this.#refuse(`${name} is no table of this module; the names of its own begin with ${this.prefix}`);
  }

  #refuse(reason: string): never {
    this.broken = new RangeError(reason);
    throw this.broken;
  }
}
