import type { Tx } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

/**
 * How often each user has replied in a thread of a room, and what they said last: the summary of a thread costs as many rows as it has
 * people, and not as it has replies.
 */
export async function threadRepliersSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE thread_repliers (
       room_id TEXT NOT NULL, thread_id TEXT NOT NULL, user_id TEXT NOT NULL, replies BIGINT NOT NULL,
       latest_event_id TEXT NOT NULL, topological_ordering BIGINT NOT NULL, stream_ordering BIGINT NOT NULL,
       PRIMARY KEY (room_id, thread_id, user_id))${tx.dialect.name === 'sqlite' ? ' WITHOUT ROWID' : ''}`,
  );
  const one = 'PARTITION BY e.room_id, r.relates_to_id, e.sender';
  await tx.run(
    `INSERT INTO thread_repliers (
       room_id, thread_id, user_id, replies, latest_event_id, topological_ordering, stream_ordering)
     SELECT room_id, thread_id, sender, replies, event_id, topological_ordering, stream_ordering FROM (
       SELECT e.room_id, r.relates_to_id AS thread_id, e.sender, COUNT(*) OVER (${one}) AS replies,
         e.event_id, e.topological_ordering, e.stream_ordering,
         ROW_NUMBER() OVER (${one} ORDER BY e.topological_ordering DESC, e.stream_ordering DESC) AS place
       FROM event_relations r JOIN events e ON e.event_id = r.event_id
       WHERE r.relation_type = 'm.thread' AND ${servableSql('e.')}) AS ranked
     WHERE place = 1`,
  );
}

/** What replies relate to says the same. */
export async function dropThreadRepliers(tx: Tx): Promise<void> {
  await tx.run('DROP TABLE thread_repliers');
}
