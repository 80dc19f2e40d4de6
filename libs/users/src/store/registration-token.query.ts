import type { Db, Tx } from '@rookery/database';

/** A token that lets somebody register. */
export interface RegistrationToken {
  readonly token: string;
  /** `undefined`: any number. */
  readonly usesAllowed?: number | undefined;
  /** Registrations under way with it. */
  readonly pending: number;
  readonly completed: number;
  readonly expiryMs?: number | undefined;
}

interface Row {
  token: string;
  uses_allowed: number | null;
  pending: number;
  completed: number;
  expiry_time: number | null;
}

const fromRow = (row: Row): RegistrationToken => ({
  token: row.token,
  usesAllowed: row.uses_allowed ?? undefined,
  pending: row.pending,
  completed: row.completed,
  expiryMs: row.expiry_time ?? undefined,
});

export async function findRegistrationToken(db: Db, token: string): Promise<RegistrationToken | undefined> {
  const row = await db.get<Row>(
    'SELECT token, uses_allowed, pending, completed, expiry_time FROM registration_tokens WHERE token = ?',
    [token],
  );
  return row && fromRow(row);
}

/** All tokens, by name. */
export async function listRegistrationTokens(db: Db): Promise<RegistrationToken[]> {
  return (
    await db.query<Row>(
      'SELECT token, uses_allowed, pending, completed, expiry_time FROM registration_tokens ORDER BY token',
    )
  ).map(fromRow);
}

/** Whether a token may be used for one more registration. */
export function isUsable(token: RegistrationToken, nowMs: number): boolean {
  if (token.expiryMs !== undefined && token.expiryMs <= nowMs) return false;
  return token.usesAllowed === undefined || token.pending + token.completed < token.usesAllowed;
}

/** Counts a registration under way, if the token allows one more. @returns whether it did */
export async function beginUse(tx: Tx, token: string, nowMs: number): Promise<boolean> {
  const changed = await tx.run(
    'UPDATE registration_tokens SET pending = pending + 1 WHERE token = ? AND (expiry_time IS NULL OR expiry_time > ?) AND (uses_allowed IS NULL OR pending + completed < uses_allowed)',
    [token, nowMs],
  );
  return changed > 0;
}

/** The registration under way came to nothing. */
export async function abandonUse(tx: Tx, token: string): Promise<void> {
  await tx.run('UPDATE registration_tokens SET pending = pending - 1 WHERE token = ? AND pending > 0', [token]);
}

/** The registration under way became an account. */
export async function completeUse(tx: Tx, token: string): Promise<void> {
  await tx.run(
    'UPDATE registration_tokens SET pending = CASE WHEN pending > 0 THEN pending - 1 ELSE 0 END, completed = completed + 1 WHERE token = ?',
    [token],
  );
}

/** @returns whether the token is new */
export async function insertRegistrationToken(
  tx: Tx,
  token: string,
  usesAllowed: number | undefined,
  expiryMs: number | undefined,
): Promise<boolean> {
  return (
    (await tx.run(
      'INSERT INTO registration_tokens (token, uses_allowed, expiry_time) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
      [token, usesAllowed ?? null, expiryMs ?? null],
    )) > 0
  );
}

/** `null` takes a limit away; what is absent stays. @returns whether there is such a token */
export async function updateRegistrationToken(
  tx: Tx,
  token: string,
  change: { readonly usesAllowed?: number | null; readonly expiryMs?: number | null },
): Promise<boolean> {
  const assignments: string[] = [];
  const values: (number | null)[] = [];
  if (change.usesAllowed !== undefined) {
    assignments.push('uses_allowed = ?');
    values.push(change.usesAllowed);
  }
  if (change.expiryMs !== undefined) {
    assignments.push('expiry_time = ?');
    values.push(change.expiryMs);
  }
  if (assignments.length === 0) return (await findRegistrationToken(tx, token)) !== undefined;
  return (
    (await tx.run(`UPDATE registration_tokens SET ${assignments.join(', ')} WHERE token = ?`, [...values, token])) > 0
  );
}

/** @returns whether there was such a token */
export async function deleteRegistrationToken(tx: Tx, token: string): Promise<boolean> {
  return (await tx.run('DELETE FROM registration_tokens WHERE token = ?', [token])) > 0;
}
