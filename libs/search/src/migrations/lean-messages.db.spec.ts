import { type Database, databaseMigrations, type UpdateProgress } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { roomsMigrations } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { messageIndexUpdate } from '../messages/message-index.js';
import { selectByRank, selectByTime } from '../messages/message-index.query.js';
import { searchableTypes } from '../messages/searchable.js';
import { queryWordsOf } from '../text/words.js';
import { indexCursor, searchMigrations } from './index.js';

const roomId = '!room:example.org';

eachDatabase('making the index of messages lean', (open, kind) => {
  const first = [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations];
  const fat = [...first, ...searchMigrations.slice(0, 2)];

  const store = (database: Database, position: number, body: string): Promise<void> =>
    database.write(async (tx) => {
      const id = `$${position}`;
      const columns = ['event_id', 'type', 'room_id', 'sender', 'topological_ordering', 'depth', 'stream_ordering'];
      await tx.insertMany(
        'events',
        [...columns, 'origin_server_ts', 'received_ts'],
        [[id, 'm.room.message', roomId, '@a:example.org', 1, 1, position, 1_000 + position, 1]],
      );
      await tx.insertMany(
        'event_json',
        ['stream_ordering', 'event_id', 'room_id', 'internal_metadata', 'json'],
        [[position, id, roomId, '{}', JSON.stringify({ content: { body } })]],
      );
    });
  const index = (database: Database, position: number, word: string): Promise<void> =>
    database.write(async (tx) => {
      const columns = ['event_id', 'room_id', 'sender', 'key', 'origin_server_ts', 'stream_ordering'];
      const row = [`$${position}`, roomId, '@a:example.org', 'content.body', 1_000 + position, position];
      const isPostgres = kind === 'postgres';
      await tx.insertMany('event_search', isPostgres ? [...columns, 'vector'] : columns, [
        isPostgres ? [...row, `'${word}':1`] : row,
      ]);
      if (!isPostgres) await tx.insertMany('event_search_words', ['rowid', 'words', 'room'], [[position, word, 'r1']]);
    });
  const cursor = async (database: Database): Promise<number | undefined> =>
    (await database.get<{ position: number }>('SELECT position FROM stream_cursors WHERE name = ?', [indexCursor]))
      ?.position;

  it('indexes anew what there is, from the beginning, and follows what comes after', async () => {
    const test = await open();
    const { database } = test;
    await test.migrate(fat);
    for (const [position, body] of [
      [-3, 'old word'],
      [1, 'a word'],
      [7, 'word'],
    ] as const) {
      await store(database, position, body);
      await index(database, position, 'word');
    }
    await database.write((tx) =>
      tx.run('INSERT INTO background_updates (update_name, progress_json) VALUES (?, ?)', [
        messageIndexUpdate.name,
        '{"before":1}',
      ]),
    );
    await test.migrate([...first, ...searchMigrations]);
    expect(await cursor(database)).toBe(7);
    const queued = await database.get<{ progress_json: string }>(
      'SELECT progress_json FROM background_updates WHERE update_name = ?',
      [messageIndexUpdate.name],
    );
    let progress = JSON.parse(queued?.progress_json ?? '') as UpdateProgress;
    for (let finished = false; !finished;)
      ({ progress, finished } = await database.write((tx) => messageIndexUpdate.run({ tx, progress, batchSize: 2 })));
    const query = { words: queryWordsOf('word', 5), roomIds: [roomId], types: searchableTypes };
    expect((await selectByTime(database, query, undefined, 9)).map((row) => row.event_id)).toEqual(['$7', '$1', '$-3']);
    const ranked = await selectByRank(database, query, 0, 9);
    expect(ranked.map((row) => row.event_id)).toEqual(['$7', '$1', '$-3']);
    expect(ranked.every(({ rank }) => Number.isFinite(rank))).toBe(true);
  });

  it('leaves an empty server to the follower', async () => {
    const test = await open();
    await test.migrate([...first, ...searchMigrations]);
    expect(await cursor(test.database)).toBeUndefined();
    expect(await test.database.query('SELECT update_name FROM background_updates')).toEqual([]);
  });
});
