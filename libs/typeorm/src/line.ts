import type { ModuleApi, ModuleTransaction } from '@rookery/module-api';

type Parameter = string | number | boolean | null | Uint8Array;

/** What a statement brought. */
export interface Outcome {
  readonly rows: unknown[];
  /** How many rows were changed. */
  readonly changes: number;
  /** The number that SQLite gave the last row that was put in. */
  readonly lastId: number | undefined;
}

/** What carries out statements: a line to the host, or a notebook. */
export interface Line {
  query(sql: string, parameters?: readonly unknown[]): Promise<Outcome>;
  /** Ends it; a transaction that is open comes to nothing. */
  close(): Promise<void>;
}

const nothing: Outcome = { rows: [], changes: 0, lastId: undefined };
const rolledBack = Symbol('rolled back');

/** A transaction of the host that lasts from one statement to another one. */
class HeldTransaction {
  private constructor(
    readonly tx: ModuleTransaction,
    private readonly end: (error?: unknown) => void,
    private readonly outcome: Promise<void>,
  ) {}

  static begin(api: ModuleApi): Promise<HeldTransaction> {
    return new Promise((begun, refused) => {
      let times = 0;
      const outcome: Promise<void> = api.runDbInteraction('typeorm', (tx) => {
        // The host begins again where two transactions were in each other's way; what was done in this one is not known here.
        if (times++ > 0) return Promise.reject(new Error('The transaction met another one: do it again'));
        return new Promise<void>((resolve, reject) => {
          const end = (error?: unknown): void => (error === undefined ? resolve() : reject(error as Error));
          // Behind the assignment of the promise that this function is a part of.
          queueMicrotask(() => begun(new HeldTransaction(tx, end, outcome)));
        });
      });
      outcome.catch(refused);
    });
  }

  async commit(): Promise<void> {
    this.end();
    await this.outcome;
  }

  async rollback(): Promise<void> {
    this.end(rolledBack);
    await this.outcome.catch((error: unknown) => {
      if (error !== rolledBack) throw error;
    });
  }
}

/**
 * What a query runner takes for its connection: every statement goes through the host, which lets one module's transaction at a time
 * write and keeps statements to the module's own tables. A statement outside of a transaction is one by itself.
 */
export class HostLine implements Line {
  #held: HeldTransaction | undefined;

  constructor(private readonly api: ModuleApi) {}

  async query(sql: string, parameters: readonly unknown[] = []): Promise<Outcome> {
    const word = /^\s*(?:BEGIN|START TRANSACTION|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET TRANSACTION)\b/i.exec(sql)?.[0];
    if (word !== undefined) {
      await this.#control(word.trim().toUpperCase(), sql);
      return nothing;
    }
    if (this.#held) return carryOut(this.#held.tx, sql, parameters);
    return this.api.runDbInteraction('typeorm', (tx) => carryOut(tx, sql, parameters));
  }

  async close(): Promise<void> {
    const held = this.#held;
    this.#held = undefined;
    await held?.rollback();
  }

  async #control(word: string, sql: string): Promise<void> {
    if (
      word === 'SAVEPOINT' ||
      word === 'RELEASE' ||
      word === 'SET TRANSACTION' ||
      /\b(?:SAVEPOINT|ISOLATION)\b/i.test(sql)
    )
      throw new Error(`The host has transactions of one kind, none in another: ${sql}`);
    const held = this.#held;
    if (word === 'COMMIT' || word === 'ROLLBACK') {
      this.#held = undefined;
      if (!held) throw new Error('There is no transaction');
      await (word === 'COMMIT' ? held.commit() : held.rollback());
    } else {
      if (held) throw new Error('There is a transaction already');
      this.#held = await HeldTransaction.begin(this.api);
    }
  }
}

async function carryOut(tx: ModuleTransaction, asked: string, given: readonly unknown[]): Promise<Outcome> {
  const { sql, parameters } = unnumbered(asked, given.map(parameterOf));
  const isQuery = /^\s*(?:SELECT|WITH|VALUES)\b/i.test(sql) || /\bRETURNING\b/i.test(sql);
  if (isQuery) {
    const rows = await tx.query<unknown>(sql, parameters);
    return { rows, changes: rows.length, lastId: undefined };
  }
  const changes = await tx.run(sql, parameters);
  if (tx.dialect !== 'sqlite' || !/^\s*INSERT\b/i.test(sql)) return { rows: [], changes, lastId: undefined };
  const [row] = await tx.query<{ id: number }>('SELECT last_insert_rowid() AS id');
  return { rows: [], changes, lastId: row?.id };
}

/** Texts, quoted names, comments; and numbers of parameters. */
const numbered = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$(\d+)/g;

/** Question marks for parameters in place of PostgreSQL's numbers: the host takes the same on both databases. */
function unnumbered(sql: string, parameters: Parameter[]): { sql: string; parameters: Parameter[] } {
  const inOrder: Parameter[] = [];
  const plain = sql.replace(numbered, (token, number?: string) => {
    if (number === undefined) return token;
    inOrder.push(parameters[Number(number) - 1] ?? null);
    return '?';
  });
  return { sql: plain, parameters: inOrder.length > 0 ? inOrder : parameters };
}

/** @throws TypeError for what no column of both databases can hold */
function parameterOf(value: unknown): Parameter {
  if (value === undefined || value === null) return null;
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Uint8Array || ['string', 'number', 'boolean'].includes(typeof value)) return value as Parameter;
  throw new TypeError(
    `A value of type ${Array.isArray(value) ? 'list' : typeof value} cannot be stored: use simple-json or simple-array`,
  );
}

/** Writes statements down in place of carrying them out. */
export class Notebook implements Line {
  readonly statements: string[] = [];

  async query(sql: string, parameters: readonly unknown[] = []): Promise<Outcome> {
    if (/^\s*(?:SELECT|SHOW|PRAGMA)\b/i.test(sql)) throw new Error(`A migration cannot read what is there: ${sql}`);
    if (parameters.length > 0) throw new Error(`A statement of a migration has no parameters: ${sql}`);
    this.statements.push(sql);
    return nothing;
  }

  async close(): Promise<void> {}
}
