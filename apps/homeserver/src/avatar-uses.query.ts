import type { Db } from '@rookery/database';

/** Which of some `mxc:` URIs are avatars of users or rooms. */
export async function avatarsAmong(db: Db, uris: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ uri: string }>(
    `SELECT avatar_url AS uri FROM profiles WHERE ${db.dialect.anyOf('avatar_url')}
     UNION SELECT avatar AS uri FROM room_stats_state WHERE ${db.dialect.anyOf('avatar')}`,
    [uris, uris],
  );
  return new Set(rows.map(({ uri }) => uri));
}
