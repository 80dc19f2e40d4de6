import type { Tx } from '../database.js';
import { defaultBlockSize } from './id-blocks.js';

/** More positions than a server gives out in the life of a backup: ten thousand a second for eleven days. */
const skippedPositions = 10_000_000_000;

/**
 * Lets every counter go on far behind where it stands. In a database that was put back to an earlier day, numbers would else be
 * given out again that clients, application services and other servers know with another meaning. What is skipped is noted:
 * {@link SkippedPositions} tells who has a position from the time that was lost.
 */
export async function skipAhead(tx: Tx): Promise<void> {
  // A counter may stand a whole block below what it has reserved: rather some too many than one too few.
  await tx.run(
    `INSERT INTO skipped_positions (stream_name, after_position, up_to_position)
       SELECT stream_name, stream_id - ${defaultBlockSize}, stream_id + ? FROM stream_positions WHERE instance_name = ''`,
    [skippedPositions],
  );
  await tx.run('UPDATE stream_positions SET stream_id = stream_id + ?', [skippedPositions]);
  if (tx.dialect.name === 'sqlite') return;
  await tx.query(
    `SELECT setval(format('%I', s.sequencename)::regclass, COALESCE(s.last_value, 0) + ${skippedPositions})
       FROM pg_sequences s WHERE s.schemaname = current_schema() AND s.max_value > 2 * ${skippedPositions}
        AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
          AND d.objid = format('%I', s.sequencename)::regclass)`,
  );
}
