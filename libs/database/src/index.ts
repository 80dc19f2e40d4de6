/** Reads, writes, dialects, stream ids, migrations, background updates. */
export { Database, type Db, type Dialect, type DialectName, type Migration, type SqlBool, type SqlValue, type Tx, type WriteOptions } from './database.js';
