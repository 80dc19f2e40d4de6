import type { Db } from '@rookery/database';

/** Users of this server who ignore somebody. */
export async function selectIgnorers(db: Db, ignoredUserId: string): Promise<string[]> {
  const rows = await db.query<{ ignorer_user_id: string }>(
    'SELECT ignorer_user_id FROM ignored_users WHERE ignored_user_id = ?',
    [ignoredUserId],
  );
  return rows.map((row) => row.ignorer_user_id);
}
