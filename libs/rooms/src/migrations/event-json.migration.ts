import type { Tx } from '@rookery/database';

/**
 * `event_json` by stream ordering: the text of an event is read together with its row in `events`, which knows the place, and
 * a number that only grows costs no index of random keys.
 */
export async function eventJsonSchema(tx: Tx): Promise<void> {
  const key = tx.dialect.name === 'sqlite' ? 'INTEGER' : 'BIGINT';
  const columns = 'event_id, room_id, internal_metadata, json, format_version';
  await tx.run(
    `CREATE TABLE event_json_by_place (
       stream_ordering ${key} PRIMARY KEY, event_id TEXT NOT NULL, room_id TEXT NOT NULL, internal_metadata TEXT NOT NULL,
       json TEXT NOT NULL, format_version INTEGER)`,
  );
  await tx.run(
    `INSERT INTO event_json_by_place (stream_ordering, ${columns})
     SELECT e.stream_ordering, ${columns.replace('event_id, room_id', 'j.event_id, j.room_id')}
     FROM event_json j JOIN events e ON e.event_id = j.event_id`,
  );
  await tx.run('DROP TABLE event_json');
  await tx.run('ALTER TABLE event_json_by_place RENAME TO event_json');
}
