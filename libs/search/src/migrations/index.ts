import { type Migration, queueBackgroundUpdate, type Tx } from '@rookery/database';
import { fts5Options } from '../text/full-text.js';

/** Names of the background updates that fill the indexes of a server that has been running without them. */
export const rebuildUpdates = { messages: 'event_search', users: 'populate_user_directory' } as const;

async function messageSchema(tx: Tx): Promise<void> {
  const vector = tx.dialect.name === 'postgres' ? ', vector TSVECTOR NOT NULL' : '';
  await tx.run(
    `CREATE TABLE event_search (
       event_id TEXT PRIMARY KEY, room_id TEXT NOT NULL, sender TEXT NOT NULL, key TEXT NOT NULL,
       origin_server_ts BIGINT NOT NULL, stream_ordering BIGINT NOT NULL UNIQUE ${vector})`,
  );
  await tx.run('CREATE INDEX event_search_room ON event_search (room_id, origin_server_ts)');
  if (tx.dialect.name === 'postgres')
    await tx.run('CREATE INDEX event_search_words ON event_search USING GIN (vector)');
  else await tx.run(`CREATE VIRTUAL TABLE event_search_words USING fts5(words, room, ${fts5Options})`);
  if (await tx.get('SELECT 1 AS found FROM events LIMIT 1')) await queueBackgroundUpdate(tx, rebuildUpdates.messages);
}

/** The follower's cursor in `stream_cursors`. */
export const indexCursor = 'event_search';

/**
 * The index holds words and nothing else, by the position of the event: the rest is joined from the events. What is there
 * already is indexed anew by the background update; the follower begins behind it.
 */
async function leanMessageSchema(tx: Tx): Promise<void> {
  await tx.run('DROP TABLE event_search');
  if (tx.dialect.name === 'postgres') {
    await tx.run('CREATE TABLE event_search (stream_ordering BIGINT PRIMARY KEY, vector TSVECTOR NOT NULL)');
    // What has not been sorted in yet is looked through by every search.
    await tx.run(
      'CREATE INDEX event_search_words ON event_search USING GIN (vector) WITH (gin_pending_list_limit = 1024)',
    );
  } else {
    await tx.run('DROP TABLE event_search_words');
    await tx.run(`CREATE VIRTUAL TABLE event_search USING fts5(words, room, ${fts5Options})`);
  }
  const newest = await tx.get<{ stream_ordering: number | null }>(
    'SELECT MAX(stream_ordering) AS stream_ordering FROM events',
  );
  if (newest?.stream_ordering == null) return;
  await tx.run('INSERT INTO stream_cursors (name, position) VALUES (?, ?)', [
    indexCursor,
    Math.max(0, newest.stream_ordering),
  ]);
  await tx.run('DELETE FROM background_updates WHERE update_name = ?', [rebuildUpdates.messages]);
  await queueBackgroundUpdate(tx, rebuildUpdates.messages);
}

async function userSchema(tx: Tx): Promise<void> {
  const vector = tx.dialect.name === 'postgres' ? ', vector TSVECTOR NOT NULL' : '';
  await tx.run(
    `CREATE TABLE user_directory (
       id ${tx.dialect.identityType}, user_id TEXT NOT NULL UNIQUE, display_name TEXT, avatar_url TEXT ${vector})`,
  );
  if (tx.dialect.name === 'postgres')
    await tx.run('CREATE INDEX user_directory_search ON user_directory USING GIN (vector)');
  else await tx.run(`CREATE VIRTUAL TABLE user_directory_search USING fts5(words, ${fts5Options})`);
  if (await tx.get('SELECT 1 AS found FROM users LIMIT 1')) await queueBackgroundUpdate(tx, rebuildUpdates.users);
}

async function userStatisticsSchema(tx: Tx): Promise<void> {
  await tx.run(
    `CREATE TABLE user_stats_current (
       user_id TEXT PRIMARY KEY, joined_rooms BIGINT NOT NULL, completed_delta_stream_id BIGINT NOT NULL)`,
  );
}

/** The tables of both indexes and of what is counted; after those of users, rooms and followers. */
export const searchMigrations: readonly Migration[] = [
  { version: 1, name: 'search_01_messages', up: messageSchema, queues: [rebuildUpdates.messages] },
  { version: 1, name: 'search_02_users', up: userSchema, queues: [rebuildUpdates.users] },
  {
    version: 1,
    name: 'search_03_lean_messages',
    up: leanMessageSchema,
    cost: [{ tables: ['event_search'], secondsPerMillion: 2 }],
    queues: [rebuildUpdates.messages],
  },
  { version: 1, name: 'search_04_user_stats', up: userStatisticsSchema },
];
