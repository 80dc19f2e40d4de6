import type { Db, Tx } from '@rookery/database';

/** What a user is called at a single sign-on provider. */
export interface ExternalId {
  readonly auth_provider: string;
  readonly external_id: string;
}

/** The user whom a provider knows by an id. */
export async function userOfExternalId(db: Db, authProvider: string, externalId: string): Promise<string | undefined> {
  return (
    await db.get<{ user_id: string }>(
      'SELECT user_id FROM user_external_ids WHERE auth_provider = ? AND external_id = ?',
      [authProvider, externalId],
    )
  )?.user_id;
}

/** What a user is called at the providers, by provider. */
export async function externalIdsOf(db: Db, userId: string): Promise<ExternalId[]> {
  return db.query<ExternalId>(
    'SELECT auth_provider, external_id FROM user_external_ids WHERE user_id = ? ORDER BY auth_provider, external_id',
    [userId],
  );
}

/** @returns whether the id was free, or the user's already */
export async function recordExternalId(
  tx: Tx,
  authProvider: string,
  externalId: string,
  userId: string,
): Promise<boolean> {
  await tx.run(
    'INSERT INTO user_external_ids (auth_provider, external_id, user_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
    [authProvider, externalId, userId],
  );
  return (await userOfExternalId(tx, authProvider, externalId)) === userId;
}

export async function deleteExternalId(tx: Tx, authProvider: string, externalId: string): Promise<void> {
  await tx.run('DELETE FROM user_external_ids WHERE auth_provider = ? AND external_id = ?', [authProvider, externalId]);
}

/** @returns whether the id was the user's */
export async function forgetExternalId(
  tx: Tx,
  authProvider: string,
  externalId: string,
  userId: string,
): Promise<boolean> {
  const deleted = await tx.run(
    'DELETE FROM user_external_ids WHERE auth_provider = ? AND external_id = ? AND user_id = ?',
    [authProvider, externalId, userId],
  );
  return deleted > 0;
}

/**
 * Makes these the only ids that a user has at providers.
 * @returns whether all of them were free, or the user's already; if not, nothing may be kept of the transaction
 */
export async function replaceExternalIds(tx: Tx, userId: string, ids: readonly ExternalId[]): Promise<boolean> {
  await tx.run('DELETE FROM user_external_ids WHERE user_id = ?', [userId]);
  for (const { auth_provider, external_id } of ids)
    if (!(await recordExternalId(tx, auth_provider, external_id, userId))) return false;
  return true;
}
