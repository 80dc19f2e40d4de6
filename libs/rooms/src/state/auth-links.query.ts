import type { Db } from '@rookery/database';
import type { AuthLinks } from '@rookery/state-res';

/** How state events hang in the graph of auth events, by id; those that are not stored are absent. One query. */
export async function selectAuthLinks(db: Db, eventIds: readonly string[]): Promise<Map<string, AuthLinks>> {
  if (eventIds.length === 0) return new Map();
  const rows = await db.query<{ event_id: string; auth_id: string | null; generation: number | null }>(
    `SELECT s.event_id, a.auth_id, c.generation FROM state_events s
     LEFT JOIN event_auth a ON a.event_id = s.event_id LEFT JOIN event_auth_chains c ON c.event_id = s.event_id
     WHERE ${db.dialect.anyOf('s.event_id')}`,
    [eventIds],
  );
  const links = new Map<string, { authEventIds: string[]; generation: number | undefined }>();
  for (const row of rows) {
    let link = links.get(row.event_id);
    if (!link) links.set(row.event_id, (link = { authEventIds: [], generation: row.generation ?? undefined }));
    if (row.auth_id !== null) link.authEventIds.push(row.auth_id);
  }
  return links;
}
