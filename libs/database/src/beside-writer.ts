import { OnlyAtWriterError } from '@rookery/platform';
import { Database, type SqlValue, type Tx, type WriteOptions } from './database.js';

/** A database that another process writes: what is not meant for any process is refused, before it begins. */
export class DatabaseBesideWriter extends Database {
  readonly dialect;
  override readonly isBesideWriter = true;

  constructor(private readonly inner: Database) {
    super();
    this.dialect = inner.dialect;
  }

  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return this.inner.query<Row>(sql, params);
  }

  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.inner.get<Row>(sql, params);
  }

  write<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    if (!options.anyProcess) return Promise.reject(new OnlyAtWriterError(options.name ?? 'a write'));
    return this.inner.write(fn, options);
  }

  override reclaim(): Promise<number> {
    return Promise.reject(new OnlyAtWriterError('reclaim'));
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}
