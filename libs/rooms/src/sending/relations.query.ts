import type { Db } from '@rookery/database';
import { redactedCondition } from '../store/event-store.query.js';
import { servableSql } from '../store/servable.query.js';

/** Whether somebody has said the same of an event already. */
export async function hasAnnotated(
  db: Db,
  by: { readonly sender: string; readonly type: string; readonly roomId: string },
  target: { readonly eventId: string; readonly key: string },
): Promise<boolean> {
  const row = await db.get(
    `SELECT 1 AS found FROM event_relations r JOIN events e ON e.event_id = r.event_id
     WHERE r.relates_to_id = ? AND r.relation_type = 'm.annotation' AND r.aggregation_key = ?
       AND e.sender = ? AND e.type = ? AND e.room_id = ? AND ${servableSql('e.')} LIMIT 1`,
    [target.eventId, target.key, by.sender, by.type, by.roomId],
  );
  return row !== undefined;
}

/**
 * Ids of what relates to an event and is not redacted yet, oldest first.
 * @param types of relations; absent: all
 */
export async function selectRedactable(
  db: Db,
  roomId: string,
  eventId: string,
  types: readonly string[] | undefined,
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ event_id: string }>(
    `SELECT r.event_id FROM event_relations r JOIN events e ON e.event_id = r.event_id
     WHERE r.relates_to_id = ? AND e.room_id = ? AND e.type <> 'm.room.redaction'
       AND NOT ${redactedCondition(db)}
       ${types ? `AND ${db.dialect.anyOf('r.relation_type')}` : ''}
     ORDER BY e.stream_ordering LIMIT ?`,
    [eventId, roomId, ...(types ? [types] : []), limit],
  );
  return rows.map((row) => row.event_id);
}
