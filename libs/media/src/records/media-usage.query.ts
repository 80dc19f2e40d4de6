import { type Db, holdsText, type SqlValue } from '@rookery/database';

/** How much of the media repository a user takes. */
export interface MediaUsageRow {
  readonly user_id: string;
  readonly displayname: string | null;
  readonly media_count: number;
  readonly media_length: number;
}

/** By what users can be ordered in a list of their use. */
export const mediaUsageOrders = ['user_id', 'displayname', 'media_length', 'media_count'] as const;

/** Which part of the list of users is wanted. */
export interface MediaUsageSearch {
  readonly orderBy: (typeof mediaUsageOrders)[number];
  readonly descending: boolean;
  readonly offset: number;
  readonly limit: number;
  /** Only files that were uploaded at or after this time. */
  readonly fromTs: number;
  /** Only files that were uploaded at or before this time. */
  readonly untilTs: number | undefined;
  /** Part of a user's id or display name, in any case. */
  readonly term: string | undefined;
}

/**
 * A page of the users who have uploaded something, with the number of all of them. Who has no name goes last, or first where
 * the list is turned around.
 */
export async function selectMediaUsage(
  db: Db,
  search: MediaUsageSearch,
): Promise<{ readonly users: MediaUsageRow[]; readonly total: number }> {
  const params: SqlValue[] = [search.fromTs];
  const where = ['user_id IS NOT NULL', 'media_length IS NOT NULL', 'created_ts >= ?'];
  if (search.untilTs !== undefined) {
    where.push('created_ts <= ?');
    params.push(search.untilTs);
  }
  // Each user once, before anything is asked about them.
  let usage = `SELECT user_id, COUNT(*) AS media_count, SUM(media_length) AS media_length
    FROM local_media_repository WHERE ${where.join(' AND ')} GROUP BY user_id`;
  const byName = search.term !== undefined || search.orderBy === 'displayname';
  if (byName) {
    usage = `SELECT t.user_id, p.displayname, t.media_count, t.media_length
      FROM (${usage}) t LEFT JOIN profiles p ON p.user_id = t.user_id`;
  }
  if (search.term !== undefined) {
    const held = holdsText(['t.user_id', 'p.displayname'], search.term);
    usage += ` WHERE ${held.sql}`;
    params.push(...held.params);
  }
  const direction = search.descending ? 'DESC NULLS FIRST' : 'ASC NULLS LAST';
  const order = (table: string): string => `${table}.${search.orderBy} ${direction}, ${table}.user_id`;
  let page = `SELECT u.*, (SELECT COUNT(*) FROM usage) AS total FROM usage u ORDER BY ${order('u')} LIMIT ? OFFSET ?`;
  if (!byName) {
    page = `SELECT w.*, p.displayname FROM (${page}) w LEFT JOIN profiles p ON p.user_id = w.user_id ORDER BY ${order('w')}`;
  }
  const rows = await db.query<MediaUsageRow & { readonly total: number }>(`WITH usage AS (${usage}) ${page}`, [
    ...params,
    search.limit,
    search.offset,
  ]);
  const users = rows.map(({ user_id, displayname, media_count: count, media_length: length }) => ({
    user_id,
    displayname,
    media_count: Number(count),
    media_length: Number(length),
  }));
  if (rows[0]) return { users, total: Number(rows[0].total) };
  // Behind the last page, or a page of nothing.
  const count = await db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM (${usage}) AS usage`, params);
  return { users, total: Number(count?.total ?? 0) };
}
