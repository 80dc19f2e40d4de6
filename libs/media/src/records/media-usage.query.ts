import { type Db, likeText, type SqlValue } from '@rookery/database';

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

/** A page of the users who have uploaded something, with the number of all of them. */
export async function selectMediaUsage(
  db: Db,
  search: MediaUsageSearch,
): Promise<{ readonly users: MediaUsageRow[]; readonly total: number }> {
  const params: SqlValue[] = [search.fromTs];
  const where = ['m.user_id IS NOT NULL', 'm.media_length IS NOT NULL', 'm.created_ts >= ?'];
  if (search.untilTs !== undefined) {
    where.push('m.created_ts <= ?');
    params.push(search.untilTs);
  }
  if (search.term !== undefined) {
    // The database lowers the term, as it does the column: it may know other letters than we do.
    const pattern = `%${likeText(search.term)}%`;
    where.push(`(LOWER(m.user_id) LIKE LOWER(?) ESCAPE '\\' OR LOWER(p.displayname) LIKE LOWER(?) ESCAPE '\\')`);
    params.push(pattern, pattern);
  }
  const tables = 'local_media_repository m LEFT JOIN profiles p ON p.user_id = m.user_id';
  const direction = search.descending ? 'DESC' : 'ASC';
  const [rows, count] = await Promise.all([
    db.query<MediaUsageRow>(
      `SELECT * FROM (
         SELECT m.user_id, p.displayname, COUNT(*) AS media_count, SUM(m.media_length) AS media_length
         FROM ${tables} WHERE ${where.join(' AND ')} GROUP BY m.user_id, p.displayname) AS usage
       ORDER BY ${search.orderBy} ${direction}, user_id LIMIT ? OFFSET ?`,
      [...params, search.limit, search.offset],
    ),
    db.get<{ total: number }>(
      `SELECT COUNT(DISTINCT m.user_id) AS total FROM ${tables} WHERE ${where.join(' AND ')}`,
      params,
    ),
  ]);
  return {
    users: rows.map((row) => ({
      ...row,
      media_count: Number(row.media_count),
      media_length: Number(row.media_length),
    })),
    total: Number(count?.total ?? 0),
  };
}
