import type { Tx } from '@rookery/database';

const indexes = [
  `CREATE INDEX event_relations_edits ON event_relations (relates_to_id, sender, origin_server_ts, event_id)
     WHERE relation_type = 'm.replace'`,
  `CREATE INDEX event_relations_replies ON event_relations (relates_to_id, topological_ordering, stream_ordering)
     WHERE relation_type = 'm.thread'`,
  `CREATE INDEX event_relations_references ON event_relations (relates_to_id, topological_ordering, stream_ordering)
     WHERE relation_type = 'm.reference'`,
];
const columns = ['sender TEXT', 'origin_server_ts BIGINT', 'topological_ordering BIGINT', 'stream_ordering BIGINT'];

/**
 * What relates to an event has its order with it, so that the newest edit or the first references are found without all others. Reactions
 * from before stay without: nobody asks for theirs.
 */
export async function relationPlacesSchema(tx: Tx): Promise<void> {
  for (const column of columns) await tx.run(`ALTER TABLE event_relations ADD COLUMN ${column}`);
  await tx.run(
    `UPDATE event_relations SET (sender, origin_server_ts, topological_ordering, stream_ordering) = (
       SELECT e.sender, e.origin_server_ts, e.topological_ordering, e.stream_ordering FROM events e
       WHERE e.event_id = event_relations.event_id)
     WHERE relation_type IN ('m.replace', 'm.thread', 'm.reference')`,
  );
  for (const index of indexes) await tx.run(index);
}

/** The events themselves say the same. */
export async function dropRelationPlaces(tx: Tx): Promise<void> {
  for (const name of ['edits', 'replies', 'references']) await tx.run(`DROP INDEX event_relations_${name}`);
  for (const column of columns) await tx.run(`ALTER TABLE event_relations DROP COLUMN ${column.split(' ')[0]}`);
}
