import type { Tx } from '@rookery/database';

/** Events that arrived while something before them was missing: a sync must not show them as if nothing were. */
export async function timelineGapsSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE timeline_gaps (room_id TEXT NOT NULL, instance_name TEXT NOT NULL, stream_ordering BIGINT NOT NULL)`,
  );
  await tx.run('CREATE UNIQUE INDEX timeline_gaps_room ON timeline_gaps (room_id, stream_ordering)');
  await tx.run('CREATE INDEX timeline_gaps_stream ON timeline_gaps (stream_ordering)');
}
