import type { Db, Tx } from '@rookery/database';

/** The picture that a user last got from a provider. */
export async function findAvatar(
  db: Db,
  userId: string,
): Promise<{ readonly digest: string; readonly uri: string } | undefined> {
  return db.get('SELECT digest, uri FROM sso_avatars WHERE user_id = ?', [userId]);
}

export async function recordAvatar(tx: Tx, userId: string, digest: string, uri: string): Promise<void> {
  await tx.run(
    `INSERT INTO sso_avatars (user_id, digest, uri) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET digest = excluded.digest, uri = excluded.uri`,
    [userId, digest, uri],
  );
}

/** Nobody has that account any more. */
export async function forgetAvatar(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM sso_avatars WHERE user_id = ?', [userId]);
}
