import {
  type BackgroundUpdate,
  defineBackgroundUpdate,
  type MigrationCost,
  queueBackgroundUpdate,
  type Tx,
} from '@rookery/database';

/**
 * The columns `push_*` of `events`: what an event means to all joined users but its sender and those in `push_except` (a JSON
 * list of users, and of groups of users as the table `push_rule_groups` knows them). NULL in `push_thread` (a thread's root or `main`): it notifies nobody by default. NULL in `push_actions` (JSON): it
 * asks for `["notify"]`. NULL in `push_except`: nobody is excepted.
 */
const copied = `UPDATE events SET push_thread = d.thread_id, push_highlight = d.highlight,
    push_actions = CASE WHEN d.actions = '["notify"]' THEN NULL ELSE d.actions END, push_except = d.except_users
  FROM event_push_defaults d
  WHERE events.stream_ordering = d.stream_ordering AND d.stream_ordering >= ? AND d.stream_ordering < ?
    AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.redacts = d.event_id)`;

/** What is moved before the server starts; nearly everything that anybody has not read is among it. */
const movedAtOnce = 100_000;

/** Moves the newest rows below a position into those of their events. */
async function moveDefaults(tx: Tx, before: number, limit: number): Promise<{ moved: number; lowest: number }> {
  const part = await tx.get<{ moved: number; lowest: number | null }>(
    `SELECT COUNT(*) AS moved, MIN(stream_ordering) AS lowest FROM (
       SELECT stream_ordering FROM event_push_defaults WHERE stream_ordering < ?
       ORDER BY stream_ordering DESC LIMIT ${Math.trunc(limit)}) AS part`,
    [before],
  );
  const { moved = 0, lowest = null } = part ?? {};
  if (lowest === null) return { moved: 0, lowest: before };
  await tx.run(copied, [lowest, before]);
  return { moved, lowest };
}

/** Moves what older events mean into their rows. Events that were redacted before it came to them mean nothing any more. */
export const pushNotesUpdate: BackgroundUpdate = defineBackgroundUpdate({
  name: 'push_notes',
  async run({ tx, progress, batchSize }) {
    const before = Number(progress['before'] ?? 0);
    const { moved, lowest } = await moveDefaults(tx, before, batchSize);
    const finished = moved < batchSize;
    if (finished) await tx.run('DROP TABLE event_push_defaults');
    return { items: moved, progress: { before: lowest }, finished };
  },
});

const onPostgres = [
  `ALTER TABLE event_push_actions DROP CONSTRAINT event_push_actions_pkey`,
  `ALTER TABLE event_push_actions ADD PRIMARY KEY (user_id, room_id, stream_ordering)`,
  `DROP INDEX event_push_actions_room`,
  `DROP INDEX push_read_marks_room`,
];

const onSqlite = [
  `CREATE TABLE event_push_actions_new (
     user_id TEXT NOT NULL, room_id TEXT NOT NULL, event_id TEXT NOT NULL, stream_ordering BIGINT NOT NULL,
     thread_id TEXT NOT NULL, highlight SMALLINT NOT NULL, actions TEXT NOT NULL,
     PRIMARY KEY (user_id, room_id, stream_ordering)) WITHOUT ROWID`,
  `INSERT INTO event_push_actions_new SELECT user_id, room_id, event_id, stream_ordering, thread_id, highlight, actions
     FROM event_push_actions`,
  `DROP TABLE event_push_actions`,
  `ALTER TABLE event_push_actions_new RENAME TO event_push_actions`,
  `CREATE INDEX event_push_actions_stream ON event_push_actions (stream_ordering)`,
  `CREATE TABLE push_read_marks_new (
     user_id TEXT NOT NULL, room_id TEXT NOT NULL, thread_id TEXT NOT NULL, joined_at BIGINT NOT NULL,
     read_up_to BIGINT NOT NULL, PRIMARY KEY (user_id, room_id, thread_id)) WITHOUT ROWID`,
  `INSERT INTO push_read_marks_new SELECT user_id, room_id, thread_id, joined_at, read_up_to FROM push_read_marks`,
  `DROP TABLE push_read_marks`,
  `ALTER TABLE push_read_marks_new RENAME TO push_read_marks`,
];

/** What the step goes over. Of the notes of events it moves so many that it does not matter how many there are. */
export const notesCost: readonly MigrationCost[] = [
  { tables: ['event_push_actions', 'events', 'event_push_defaults'], secondsPerMillion: 8 },
  { on: 'sqlite', tables: ['push_read_marks'], secondsPerMillion: 8, rewrites: true },
];

/**
 * What an event means to everybody moves into its row, which is written anyway. A user's own notifications are found by room
 * (counts), by their order (lists) and by position (what pushers send); who is in a room is known elsewhere.
 */
export async function notesSchema(tx: Tx): Promise<void> {
  for (const statement of tx.dialect.name === 'postgres' ? onPostgres : onSqlite) await tx.run(statement);
  await tx.run('CREATE INDEX event_push_actions_user ON event_push_actions (user_id, stream_ordering)');
  // Messages that highlight for a whole room are rare: they are found without reading the others.
  await tx.run('CREATE INDEX events_push_highlights ON events (room_id, stream_ordering) WHERE push_highlight = 1');
  const { moved, lowest } = await moveDefaults(tx, Number.MAX_SAFE_INTEGER, movedAtOnce);
  if (moved < movedAtOnce) await tx.run('DROP TABLE event_push_defaults');
  else await queueBackgroundUpdate(tx, pushNotesUpdate.name, { progress: { before: lowest } });
}
