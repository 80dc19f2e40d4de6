import { type Db, holdsText, type SqlBool, type SqlValue } from '@rookery/database';

/** How a list of accounts may be ordered. */
export const accountOrders = [
  'name',
  'displayname',
  'is_guest',
  'admin',
  'deactivated',
  'user_type',
  'avatar_url',
  'shadow_banned',
  'creation_ts',
  'last_seen_ts',
  'locked',
] as const;

/** One of {@link accountOrders}. */
export type AccountOrder = (typeof accountOrders)[number];

/** Which accounts of this server are wanted; what is absent does not matter. */
export interface AccountFilter {
  /** Part of the user id, letters of either case. */
  readonly userId?: string | undefined;
  /** Part of the localpart or the display name, letters of either case; then `userId` does not matter. */
  readonly name?: string | undefined;
  readonly isGuest?: boolean | undefined;
  readonly isAdmin?: boolean | undefined;
  readonly deactivated?: boolean | undefined;
  readonly locked?: boolean | undefined;
  readonly approved?: boolean | undefined;
  /** Types that are left out; `''` stands for accounts without a type. */
  readonly notUserTypes?: readonly string[] | undefined;
}

/** One page of a list of accounts. */
export interface AccountPage {
  readonly offset: number;
  readonly limit: number;
  readonly orderBy: AccountOrder;
  readonly descending: boolean;
}

/** An account as it stands in a list. */
export interface ListedAccount {
  readonly userId: string;
  readonly displayName: string | undefined;
  readonly avatarUrl: string | undefined;
  readonly userType: string | undefined;
  readonly isGuest: boolean;
  readonly isAdmin: boolean;
  readonly deactivated: boolean;
  readonly erased: boolean;
  readonly shadowBanned: boolean;
  readonly locked: boolean;
  readonly approved: boolean;
  readonly createdMs: number;
  /** Milliseconds; `undefined` when nothing is known anymore. */
  readonly lastSeenMs: number | undefined;
}

interface Row {
  readonly name: string;
  readonly displayname: string | null;
  readonly avatar_url: string | null;
  readonly user_type: string | null;
  readonly is_guest: SqlBool;
  readonly admin: SqlBool;
  readonly deactivated: SqlBool;
  readonly erased: SqlBool;
  readonly shadow_banned: SqlBool;
  readonly locked: SqlBool;
  readonly approved: SqlBool;
  readonly creation_ts: number;
}

/** When each user was seen last. Addresses are forgotten after a while; what stays then is when each device was. */
const lastSeenTables = `
  LEFT JOIN (SELECT user_id, MAX(last_seen) AS seen FROM user_ips GROUP BY user_id) i ON i.user_id = u.name
  LEFT JOIN (SELECT user_id, MAX(last_seen) AS seen FROM devices GROUP BY user_id) d ON d.user_id = u.name`;

const orderColumns: Readonly<Record<AccountOrder, string>> = {
  name: 'u.name',
  displayname: 'p.displayname',
  is_guest: 'u.is_guest',
  admin: 'u.admin',
  deactivated: 'u.deactivated',
  user_type: 'u.user_type',
  avatar_url: 'p.avatar_url',
  shadow_banned: 'u.shadow_banned',
  creation_ts: 'u.creation_ts',
  last_seen_ts: 'COALESCE(i.seen, d.seen)',
  locked: 'u.locked',
};

function conditionsOf(filter: AccountFilter): { readonly where: string; readonly values: SqlValue[] } {
  const conditions: string[] = [];
  const values: SqlValue[] = [];
  const add = (condition: string, ...bound: SqlValue[]): void => {
    conditions.push(condition);
    values.push(...bound);
  };
  if (filter.name !== undefined) {
    const held = holdsText([['u.name', '@%', '%:%'], 'p.displayname'], filter.name);
    add(held.sql, ...held.params);
  } else if (filter.userId !== undefined) {
    const held = holdsText(['u.name'], filter.userId);
    add(held.sql, ...held.params);
  }
  if (filter.isGuest !== undefined) add('u.is_guest = ?', filter.isGuest);
  if (filter.isAdmin !== undefined) add('u.admin = ?', filter.isAdmin);
  if (filter.deactivated !== undefined) add('u.deactivated = ?', filter.deactivated);
  if (filter.locked !== undefined) add('u.locked = ?', filter.locked);
  if (filter.approved !== undefined) add('u.approved = ?', filter.approved);
  const unwanted = filter.notUserTypes ?? [];
  if (unwanted.length > 0) {
    const named = unwanted.filter((type) => type !== '');
    const list = named.map(() => '?').join(', ');
    if (named.length === unwanted.length) add(`(u.user_type IS NULL OR u.user_type NOT IN (${list}))`, ...named);
    else add(`u.user_type IS NOT NULL${named.length > 0 ? ` AND u.user_type NOT IN (${list})` : ''}`, ...named);
  }
  return { where: conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : '', values };
}

/**
 * A page of the accounts that fit, with the number of all that do. What has no value goes last, or first where the list is
 * turned around.
 */
export async function listAccounts(
  db: Db,
  filter: AccountFilter,
  page: AccountPage,
): Promise<{ readonly accounts: ListedAccount[]; readonly total: number }> {
  const { where, values } = conditionsOf(filter);
  const direction = page.descending ? 'DESC NULLS FIRST' : 'ASC NULLS LAST';
  const names = filter.name === undefined ? '' : 'LEFT JOIN profiles p ON p.user_id = u.name';
  const [count, rows] = await Promise.all([
    db.get<{ count: number }>(`SELECT COUNT(*) AS count FROM users u ${names} ${where}`, values),
    db.query<Row>(
      `SELECT u.name, p.displayname, p.avatar_url, u.user_type, u.is_guest, u.admin, u.deactivated,
         e.user_id IS NOT NULL AS erased, u.shadow_banned, u.locked, u.approved, u.creation_ts
       FROM users u LEFT JOIN profiles p ON p.user_id = u.name LEFT JOIN erased_users e ON e.user_id = u.name
       ${page.orderBy === 'last_seen_ts' ? lastSeenTables : ''} ${where} ORDER BY ${orderColumns[page.orderBy]} ${direction}, u.name ASC LIMIT ? OFFSET ?`,
      [...values, page.limit, page.offset],
    ),
  ]);
  const seen = await lastSeenOf(
    db,
    rows.map((row) => row.name),
  );
  return { accounts: rows.map((row) => listed(row, seen.get(row.name))), total: Number(count?.count ?? 0) };
}

/** When users were seen last, milliseconds; of whom nothing is known anymore is left out. */
export async function lastSeenOf(db: Db, userIds: readonly string[]): Promise<Map<string, number>> {
  const seenBy = (table: 'user_ips' | 'devices'): Promise<{ user_id: string; seen: number | null }[]> =>
    db.query(
      `SELECT user_id, MAX(last_seen) AS seen FROM ${table} WHERE ${db.dialect.anyOf('user_id')} GROUP BY user_id`,
      [userIds],
    );
  const [addresses, devices] = await Promise.all([seenBy('user_ips'), seenBy('devices')]);
  // What is known of addresses is the more exact.
  return new Map(
    [...devices, ...addresses].flatMap((row) => (row.seen === null ? [] : [[row.user_id, Number(row.seen)]])),
  );
}

const listed = (row: Row, lastSeenMs: number | undefined): ListedAccount => ({
  userId: row.name,
  displayName: row.displayname ?? undefined,
  avatarUrl: row.avatar_url ?? undefined,
  userType: row.user_type ?? undefined,
  isGuest: Boolean(row.is_guest),
  isAdmin: Boolean(row.admin),
  deactivated: Boolean(row.deactivated),
  erased: Boolean(row.erased),
  shadowBanned: Boolean(row.shadow_banned),
  locked: Boolean(row.locked),
  approved: Boolean(row.approved),
  createdMs: row.creation_ts,
  lastSeenMs,
});

/** What the oldest tools ask of an account. */
export interface FoundAccount {
  readonly name: string;
  readonly is_guest: SqlBool;
  readonly admin: SqlBool;
  readonly user_type: string | null;
}

/** Accounts whose ids hold a text, letters of either case, by id. */
export async function searchAccounts(db: Db, term: string, limit: number): Promise<FoundAccount[]> {
  const held = holdsText(['name'], term);
  return db.query<FoundAccount>(
    `SELECT name, is_guest, admin, user_type FROM users WHERE ${held.sql} ORDER BY name LIMIT ?`,
    [...held.params, limit],
  );
}
