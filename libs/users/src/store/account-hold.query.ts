import type { SqlBool, Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';

/** Whether an account is closed; one that is just being closed or opened is waited for. */
export async function isClosedForUpdate(tx: Tx, userId: string): Promise<boolean> {
  return (await heldState(tx, userId)).deactivated;
}

/** How an account stands, until the transaction ends; a change under way is waited for. */
export async function heldState(
  tx: Tx,
  userId: string,
): Promise<{ readonly deactivated: boolean; readonly locked: boolean }> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR SHARE' : '';
  const row = await tx.get<{ deactivated: SqlBool; locked: SqlBool }>(
    `SELECT deactivated, locked FROM users WHERE name = ?${lock}`,
    [userId],
  );
  return { deactivated: Boolean(row?.deactivated), locked: Boolean(row?.locked) };
}

/** Waits for whoever holds an account, and lets nobody hold it before the transaction ends. */
export async function holdAccountAlone(tx: Tx, userId: string): Promise<void> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR NO KEY UPDATE' : '';
  await tx.get(`SELECT 1 AS found FROM users WHERE name = ?${lock}`, [userId]);
}

/** Whether a hash is that of the account's present password. Call {@link holdAccount} before: it stays so until the transaction ends. */
export async function hasPasswordHash(tx: Tx, userId: string, passwordHash: string): Promise<boolean> {
  return (
    (await tx.get('SELECT 1 AS found FROM users WHERE name = ? AND password_hash = ?', [userId, passwordHash])) !==
    undefined
  );
}

/** Whether somebody is an administrator who may act as one, and stays so until the transaction ends; a change under way is waited for. */
export async function isAdminHeld(tx: Tx, userId: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR SHARE' : '';
  const row = await tx.get(
    `SELECT 1 AS found FROM users WHERE name = ? AND admin = ? AND locked = ? AND deactivated = ?${lock}`,
    [userId, true, false, false],
  );
  return row !== undefined;
}

/**
 * Makes sure that an account is open, for what is stored with it: one that is just being closed is waited for, and one that is open is
 * not closed before the transaction ends, so that what it writes goes with the account.
 * @throws MatrixError 403 `M_USER_DEACTIVATED`
 */
export async function holdAccount(tx: Tx, userId: string): Promise<void> {
  if (await isClosedForUpdate(tx, userId)) throw MatrixError.userDeactivated();
}
