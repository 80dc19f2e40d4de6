import type { Db } from '@rookery/database';

/** The least that a database can be asked; reads nothing. */
export async function ping(db: Db): Promise<void> {
  await db.get('SELECT 1 AS one');
}
