import type { Migration, Tx } from '@rookery/database';
import { notesCost, notesSchema, pushNotesUpdate } from './notes.migration.js';

const ruleTables = [
  `CREATE TABLE push_rules (
     user_name TEXT NOT NULL, rule_id TEXT NOT NULL, priority_class SMALLINT NOT NULL, priority INTEGER NOT NULL DEFAULT 0,
     conditions TEXT NOT NULL, actions TEXT NOT NULL, PRIMARY KEY (user_name, rule_id))`,
  `CREATE TABLE push_rules_enable (
     user_name TEXT NOT NULL, rule_id TEXT NOT NULL, enabled SMALLINT NOT NULL, PRIMARY KEY (user_name, rule_id))`,
  `CREATE TABLE push_rules_stream (user_id TEXT PRIMARY KEY, stream_id BIGINT NOT NULL)`,
];

/**
 * Most events mean the same to everybody in a room: `event_push_defaults` held that once per event, until it moved into the
 * events' own rows. `event_push_actions` holds what differs, per user. `push_read_marks` has a row with an empty thread for
 * each joined local user, made at the join, and one per thread read.
 */
const countTables = [
  `CREATE TABLE event_push_defaults (
     stream_ordering BIGINT PRIMARY KEY, room_id TEXT NOT NULL, event_id TEXT NOT NULL, sender TEXT NOT NULL,
     thread_id TEXT NOT NULL, highlight SMALLINT NOT NULL, actions TEXT NOT NULL, except_users TEXT)`,
  `CREATE INDEX event_push_defaults_room ON event_push_defaults (room_id, stream_ordering)`,
  `CREATE TABLE event_push_actions (
     user_id TEXT NOT NULL, room_id TEXT NOT NULL, event_id TEXT NOT NULL, stream_ordering BIGINT NOT NULL,
     thread_id TEXT NOT NULL, highlight SMALLINT NOT NULL, actions TEXT NOT NULL, PRIMARY KEY (user_id, stream_ordering))`,
  `CREATE INDEX event_push_actions_stream ON event_push_actions (stream_ordering)`,
  `CREATE INDEX event_push_actions_room ON event_push_actions (room_id, stream_ordering)`,
  `CREATE TABLE push_read_marks (
     user_id TEXT NOT NULL, room_id TEXT NOT NULL, thread_id TEXT NOT NULL, joined_at BIGINT NOT NULL,
     read_up_to BIGINT NOT NULL, PRIMARY KEY (user_id, room_id, thread_id))`,
  `CREATE INDEX push_read_marks_room ON push_read_marks (room_id)`,
  `INSERT INTO push_read_marks (user_id, room_id, thread_id, joined_at, read_up_to)
     SELECT user_id, room_id, '', event_stream_ordering, event_stream_ordering FROM local_current_membership
     WHERE membership = 'join'`,
];

/** `due_after` and `due_up_to`: between these positions lies something that the pusher has not delivered yet. */
const pusherTables = [
  `CREATE TABLE pushers (
     id BIGINT PRIMARY KEY, user_name TEXT NOT NULL, access_token BIGINT, device_id TEXT, profile_tag TEXT NOT NULL,
     kind TEXT NOT NULL, app_id TEXT NOT NULL, app_display_name TEXT NOT NULL, device_display_name TEXT NOT NULL,
     pushkey TEXT NOT NULL, ts BIGINT NOT NULL, lang TEXT, data TEXT NOT NULL, enabled BOOLEAN NOT NULL DEFAULT TRUE,
     last_stream_ordering BIGINT NOT NULL, last_success BIGINT, failing_since BIGINT,
     due_after BIGINT, due_up_to BIGINT, UNIQUE (app_id, pushkey, user_name))`,
  `CREATE INDEX pushers_user ON pushers (user_name)`,
  `CREATE INDEX pushers_token ON pushers (access_token)`,
  `CREATE TABLE pusher_throttle (
     pusher BIGINT NOT NULL, room_id TEXT NOT NULL, last_sent_ts BIGINT NOT NULL, throttle_ms BIGINT NOT NULL,
     PRIMARY KEY (pusher, room_id))`,
  `CREATE INDEX pushers_due ON pushers (id) WHERE due_up_to IS NOT NULL`,
];

/** `event_id` is the thread's root. */
const threadTables = [
  `CREATE TABLE thread_subscriptions (
     stream_id BIGINT PRIMARY KEY, instance_name TEXT NOT NULL, room_id TEXT NOT NULL, event_id TEXT NOT NULL,
     user_id TEXT NOT NULL, subscribed BOOLEAN NOT NULL, automatic BOOLEAN NOT NULL,
     unsubscribed_at_stream_ordering BIGINT, unsubscribed_at_topological_ordering BIGINT,
     UNIQUE (room_id, event_id, user_id))`,
  `CREATE INDEX thread_subscriptions_user ON thread_subscriptions (user_id, stream_id)`,
];

/**
 * Members whose rules about a room are the same make a group. From `since` on and before `until` (NULL: still) a user was in
 * the group of those whose rules are called `rules`. Events say in `push_except` for which groups they do not hold, so that
 * an event writes no list of members. The writer of a room's events keeps this true as of each event that refers to it.
 */
async function groupsSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE push_rule_groups (
       user_id TEXT NOT NULL, room_id TEXT NOT NULL, since BIGINT NOT NULL, until BIGINT, rules TEXT NOT NULL,
       PRIMARY KEY (user_id, room_id, since)) ${tx.dialect.name === 'sqlite' ? 'WITHOUT ROWID' : ''}`,
  );
  await tx.run('CREATE INDEX push_rule_groups_room ON push_rule_groups (room_id, until)');
}

const step = (name: string, statements: readonly string[]): Migration => ({
  version: 1,
  name,
  async up(tx: Tx): Promise<void> {
    for (const statement of statements) await tx.run(statement);
  },
});

/** The tables of push rules, counts and pushers, in the order in which they are made; after those of rooms. */
export const pushMigrations: readonly Migration[] = [
  step('push_01_rules', ruleTables),
  {
    ...step('push_02_counts', countTables),
    cost: [{ tables: ['local_current_membership'], secondsPerMillion: 3 }],
  },
  step('push_03_pushers', pusherTables),
  step('push_04_threads', threadTables),
  { version: 1, name: 'push_05_notes', up: notesSchema, cost: notesCost, queues: [pushNotesUpdate.name] },
  { version: 1, name: 'push_06_groups', up: groupsSchema },
];
