import type { Tx } from '@rookery/database';

/** Users whose rooms do not show their profile as it is, and how often it has changed since they did. */
export async function profilesBehindSchema(tx: Tx): Promise<void> {
  await tx.run('CREATE TABLE profiles_behind (user_id TEXT PRIMARY KEY, changes BIGINT NOT NULL)');
}

/** Programs that do not know the table leave the rest of such a profile unsaid, as they always did. */
export async function dropProfilesBehind(tx: Tx): Promise<void> {
  await tx.run('DROP TABLE profiles_behind');
}
