import { Injectable } from '@nestjs/common';
import { Database, type Db, type Tx } from '@rookery/database';
import type { DocumentBackend, DocumentRows } from '@rookery/module-host';
import { Clock } from '@rookery/platform';
import { inModuleTransaction } from './module-transaction.js';

/** Any fixed number that nobody else uses will do. */
const advisoryLockClass = 7_246_503;

const name = 'module_documents';

/** `api.store` of all modules in the table `module_documents`. */
@Injectable()
export class ModuleDocuments implements DocumentBackend {
  readonly #rows: DocumentRows;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
  ) {
    this.#rows = rowsOf(database, (module, work) => {
      const inTransaction = async (tx: Tx): ReturnType<typeof work> => {
        await lockDocuments(tx, module);
        return work(tx);
      };
      return database.write(inTransaction, { name, anyProcess: true });
    });
  }

  get(...args: Parameters<DocumentRows['get']>): ReturnType<DocumentRows['get']> {
    return this.#rows.get(...args);
  }

  put(...args: Parameters<DocumentRows['put']>): ReturnType<DocumentRows['put']> {
    return this.#rows.put(...args);
  }

  delete(...args: Parameters<DocumentRows['delete']>): ReturnType<DocumentRows['delete']> {
    return this.#rows.delete(...args);
  }

  list(...args: Parameters<DocumentRows['list']>): ReturnType<DocumentRows['list']> {
    return this.#rows.list(...args);
  }

  transaction<T>(module: string, work: (rows: DocumentRows) => Promise<T>): Promise<T> {
    const inTransaction = (tx: Tx): Promise<T> => {
      const rows = rowsOf(tx, (_, statement) => statement(tx));
      return work(serialized(tx, rows));
    };
    return inModuleTransaction(this.database, this.clock, module, name, inTransaction);
  }
}

/**
 * Of what writes documents of a module, or reads them to write, one runs at a time, whichever the process, as on SQLite: what a
 * transaction has read must not change before it is written.
 */
async function lockDocuments(tx: Tx, module: string): Promise<void> {
  if (tx.dialect.name === 'postgres')
    await tx.query('SELECT pg_advisory_xact_lock(?, hashtext(?))', [advisoryLockClass, module]);
}

/** {@link lockDocuments} before the first statement. */
function serialized(tx: Tx, rows: DocumentRows): DocumentRows {
  let lock: Promise<void> | undefined;
  const locked = (module: string): Promise<void> => (lock ??= lockDocuments(tx, module));
  return {
    get: async (module, ...rest) => (await locked(module), rows.get(module, ...rest)),
    put: async (module, ...rest) => (await locked(module), rows.put(module, ...rest)),
    delete: async (module, ...rest) => (await locked(module), rows.delete(module, ...rest)),
    list: async (module, ...rest) => (await locked(module), rows.list(module, ...rest)),
  };
}

function rowsOf(db: Db, inTransaction: <T>(module: string, work: (tx: Tx) => Promise<T>) => Promise<T>): DocumentRows {
  return {
    async get(module, key) {
      const row = await db.get<{ json: string }>('SELECT json FROM module_documents WHERE module = ? AND doc_key = ?', [
        module,
        key,
      ]);
      return row?.json;
    },
    async put(module, key, json) {
      await inTransaction(module, (tx) =>
        tx.run(
          `INSERT INTO module_documents (module, doc_key, json) VALUES (?, ?, ?)
           ON CONFLICT (module, doc_key) DO UPDATE SET json = excluded.json`,
          [module, key, json],
        ),
      );
    },
    delete: (module, key) =>
      inTransaction(
        module,
        async (tx) =>
          (await tx.run('DELETE FROM module_documents WHERE module = ? AND doc_key = ?', [module, key])) > 0,
      ),
    async list(module, prefix, after, limit) {
      const conditions = ['module = ?', 'doc_key >= ?'];
      const params: (string | number)[] = [module, prefix];
      const end = endOfPrefix(prefix);
      if (end !== undefined) {
        conditions.push('doc_key < ?');
        params.push(end);
      }
      if (after !== undefined) {
        conditions.push('doc_key > ?');
        params.push(after);
      }
      const rows = await db.query<{ doc_key: string; json: string }>(
        `SELECT doc_key, json FROM module_documents WHERE ${conditions.join(' AND ')} ORDER BY doc_key LIMIT ?`,
        [...params, limit],
      );
      return rows.map((row) => ({ key: row.doc_key, json: row.json }));
    },
  };
}

/**
 * The first text behind all that begin with a prefix, in the order of UTF-8 bytes, which is that of code points;
 * `undefined` when nothing can lie behind them.
 */
export function endOfPrefix(prefix: string): string | undefined {
  const points = Array.from(prefix, (character) => character.codePointAt(0)!);
  while (points.at(-1) === 0x10ffff) points.pop();
  const last = points.pop();
  if (last === undefined) return undefined;
  // Surrogates are no characters: UTF-8 goes on behind them.
  return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1);
}
