import type { Db, Tx } from '@rookery/database';

/** A user whose rooms may not show their profile as it is. */
export interface ProfileBehind {
  readonly userId: string;
  /** How often it has changed since its rooms have shown it. */
  readonly changes: number;
}

/** Notes that a profile has changed that rooms show. */
export async function noteBehind(tx: Tx, userId: string): Promise<void> {
  await tx.run(
    `INSERT INTO profiles_behind (user_id, changes) VALUES (?, 1)
     ON CONFLICT (user_id) DO UPDATE SET changes = profiles_behind.changes + 1`,
    [userId],
  );
}

/** How often a profile has changed since its rooms have shown it; `undefined`: they show it. */
export async function changesBehind(db: Db, userId: string): Promise<number | undefined> {
  const row = await db.get<{ changes: number }>('SELECT changes FROM profiles_behind WHERE user_id = ?', [userId]);
  return row?.changes;
}

/** Notes that the rooms of a user show the profile as it was after so many changes. */
export async function noteShown(tx: Tx, { userId, changes }: ProfileBehind): Promise<void> {
  await tx.run('DELETE FROM profiles_behind WHERE user_id = ? AND changes = ?', [userId, changes]);
}

/** Users whose rooms may not show their profiles. */
export async function usersBehind(db: Db): Promise<string[]> {
  return (await db.query<{ user_id: string }>('SELECT user_id FROM profiles_behind')).map((row) => row.user_id);
}
