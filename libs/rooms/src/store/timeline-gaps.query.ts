import type { Db } from '@rookery/database';

/** The last events before which something is missing, the newest first. */
export function selectGaps(
  db: Db,
  limit: number,
): Promise<{ readonly room_id: string; readonly stream_ordering: number }[]> {
  return db.query('SELECT room_id, stream_ordering FROM timeline_gaps ORDER BY stream_ordering DESC LIMIT ?', [limit]);
}
