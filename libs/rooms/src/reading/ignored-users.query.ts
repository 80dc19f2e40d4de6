import type { Db } from '@rookery/database';

/** Whom a user does not want to hear. */
export async function selectIgnored(db: Db, userId: string): Promise<Set<string>> {
  const rows = await db.query<{ ignored_user_id: string }>(
    'SELECT ignored_user_id FROM ignored_users WHERE ignorer_user_id = ?',
    [userId],
  );
  return new Set(rows.map((row) => row.ignored_user_id));
}
