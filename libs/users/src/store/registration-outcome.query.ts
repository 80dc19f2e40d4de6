import type { Tx } from '@rookery/database';

/**
 * Whether a session of interactive auth, by the hash of its id, came to an account, and that is still told to whoever has the id; it is
 * until the transaction ends.
 */
export async function isRegistrationHeld(tx: Tx, sessionHash: string, userId: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR SHARE' : '';
  const row = await tx.get(`SELECT 1 AS found FROM ui_auth_sessions WHERE session_hash = ? AND outcome = ?${lock}`, [
    sessionHash,
    userId,
  ]);
  return row !== undefined;
}

/** What a registration came to is told no more. One that is just getting its session is waited for. */
export async function forgetRegistration(tx: Tx, userId: string): Promise<void> {
  await tx.run("UPDATE ui_auth_sessions SET outcome = '' WHERE outcome = ?", [userId]);
}
