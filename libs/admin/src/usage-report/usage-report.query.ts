import type { Db } from '@rookery/database';

/** The version of the database, as it says it itself; empty where it says nothing. */
export async function databaseVersion(db: Db): Promise<string> {
  const statement = db.dialect.name === 'sqlite' ? 'SELECT sqlite_version() AS version' : 'SHOW server_version';
  const row = await db.get<{ version?: string; server_version?: string }>(statement);
  return row?.version ?? row?.server_version ?? '';
}
