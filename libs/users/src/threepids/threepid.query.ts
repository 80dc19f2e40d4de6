import type { Db, Tx } from '@rookery/database';

/** An address outside Matrix that belongs to an account. */
export interface Threepid {
  readonly userId: string;
  /** `email` or `msisdn`. */
  readonly medium: string;
  /** In canonical form. */
  readonly address: string;
  readonly validatedMs: number;
  readonly addedMs: number;
}

interface Row {
  user_id: string;
  medium: string;
  address: string;
  validated_at: number;
  added_at: number;
}

const fromRow = (row: Row): Threepid => ({
  userId: row.user_id,
  medium: row.medium,
  address: row.address,
  validatedMs: row.validated_at,
  addedMs: row.added_at,
});

/** @returns whether the address was free, or the user's already */
export async function insertThreepid(tx: Tx, threepid: Threepid): Promise<boolean> {
  const changed = await tx.run(
    `INSERT INTO user_threepids (user_id, medium, address, validated_at, added_at) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (medium, address) DO UPDATE SET validated_at = excluded.validated_at WHERE user_threepids.user_id = excluded.user_id`,
    [threepid.userId, threepid.medium, threepid.address, threepid.validatedMs, threepid.addedMs],
  );
  return changed > 0;
}

/** @returns whether the user had that address */
export async function deleteThreepid(tx: Tx, userId: string, medium: string, address: string): Promise<boolean> {
  return (
    (await tx.run('DELETE FROM user_threepids WHERE user_id = ? AND medium = ? AND address = ?', [
      userId,
      medium,
      address,
    ])) > 0
  );
}

/** The addresses of a user, oldest first. */
export async function threepidsOf(db: Db, userId: string): Promise<Threepid[]> {
  const rows = await db.query<Row>(
    'SELECT user_id, medium, address, validated_at, added_at FROM user_threepids WHERE user_id = ? ORDER BY added_at, address',
    [userId],
  );
  return rows.map(fromRow);
}

/** The user that an address belongs to. */
export async function userOfThreepid(db: Db, medium: string, address: string): Promise<string | undefined> {
  return (
    await db.get<{ user_id: string }>('SELECT user_id FROM user_threepids WHERE medium = ? AND address = ?', [
      medium,
      address,
    ])
  )?.user_id;
}

/** Whose some addresses of one kind are, which nobody else changes before the transaction ends. @param addresses in their canonical form */
export async function holdersOf(
  tx: Tx,
  medium: string,
  addresses: readonly string[],
): Promise<{ readonly userId: string; readonly address: string }[]> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR UPDATE' : '';
  return tx.query(
    `SELECT user_id AS "userId", address FROM user_threepids
     WHERE medium = ? AND ${tx.dialect.anyOf('address')} ORDER BY address${lock}`,
    [medium, addresses],
  );
}

/** Whether an address is a user's, and stays so until the transaction ends. @param address in its canonical form */
export async function holdsAddress(tx: Tx, userId: string, medium: string, address: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR KEY SHARE' : '';
  const row = await tx.get<{ user_id: string }>(
    `SELECT user_id FROM user_threepids WHERE medium = ? AND address = ?${lock}`,
    [medium, address],
  );
  return row?.user_id === userId;
}

/** Remembers that an identity server was told of an address. */
export async function recordBinding(
  tx: Tx,
  userId: string,
  medium: string,
  address: string,
  idServer: string,
): Promise<void> {
  await tx.run(
    'INSERT INTO user_threepid_id_server (user_id, medium, address, id_server) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
    [userId, medium, address, idServer],
  );
}

/** An identity server that was told of an address. */
export interface Binding {
  readonly medium: string;
  readonly address: string;
  readonly idServer: string;
}

/** Most bindings that are looked at for one user. */
export const maxBindings = 50;

/** The identity servers that were told of a user's addresses, or of one address; at most {@link maxBindings}. */
export async function bindingsOf(
  db: Db,
  userId: string,
  only?: { readonly medium: string; readonly address: string },
): Promise<Binding[]> {
  const rows = await db.query<{ medium: string; address: string; id_server: string }>(
    `SELECT medium, address, id_server FROM user_threepid_id_server WHERE user_id = ?${only ? ' AND medium = ? AND address = ?' : ''}
     ORDER BY medium, address, id_server LIMIT ${maxBindings}`,
    only ? [userId, only.medium, only.address] : [userId],
  );
  return rows.map((row) => ({ medium: row.medium, address: row.address, idServer: row.id_server }));
}

/** Forgets that an identity server was told of an address. */
export async function deleteBinding(tx: Tx, userId: string, { medium, address, idServer }: Binding): Promise<void> {
  await tx.run(
    'DELETE FROM user_threepid_id_server WHERE user_id = ? AND medium = ? AND address = ? AND id_server = ?',
    [userId, medium, address, idServer],
  );
}
