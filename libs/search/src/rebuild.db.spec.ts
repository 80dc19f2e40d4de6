import { type BackgroundUpdate, type Database, databaseMigrations, type UpdateProgress } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { roomsMigrations } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { messageIndexUpdate } from './messages/message-index.js';
import { deleteRoomMessages, selectByTime } from './messages/message-index.query.js';
import { searchableTypes } from './messages/searchable.js';
import { searchMigrations } from './migrations/index.js';
import { queryWordsOf } from './text/words.js';
import { userDirectoryUpdate } from './users/user-directory-index.js';
import { deleteStrangers, searchUsers, type UserQuery } from './users/user-directory.query.js';

const roomId = '!room:example.org';

/** Runs an update to its end, in batches of two. */
async function runAll(database: Database, update: BackgroundUpdate): Promise<number> {
  let progress: UpdateProgress = {};
  let batches = 0;
  for (let finished = false; !finished; batches++) {
    const result = await database.write((tx) => update.run({ tx, progress, batchSize: 2 }));
    ({ progress, finished } = result);
    if (batches > 20) throw new Error('The update does not end');
  }
  return batches;
}

eachDatabase('filling the indexes of a server that had none', (open) => {
  let database: Database;

  const event = async (position: number, body: string, type = 'm.room.message', outlier = false): Promise<void> => {
    const id = `$${position}`;
    await database.write(async (tx) => {
      await tx.insertMany(
        'events',
        [
          'event_id',
          'type',
          'room_id',
          'sender',
          'topological_ordering',
          'depth',
          'stream_ordering',
          'origin_server_ts',
          'received_ts',
          'outlier',
        ],
        [[id, type, roomId, '@a:example.org', 1, 1, position, 1_000 + position, 1, outlier]],
      );
      await tx.insertMany(
        'event_json',
        ['stream_ordering', 'event_id', 'room_id', 'internal_metadata', 'json'],
        [[position, id, roomId, '{}', JSON.stringify({ content: { body } })]],
      );
    });
  };
  const member = async (userId: string, displayName: string): Promise<void> => {
    const id = `$member of ${userId}`;
    await database.write(async (tx) => {
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        [[id, roomId, 'm.room.member', userId, 'join']],
      );
      await tx.insertMany(
        'room_memberships',
        ['event_id', 'user_id', 'sender', 'room_id', 'membership', 'display_name', 'event_stream_ordering'],
        [[id, userId, userId, roomId, 'join', displayName, 1]],
      );
    });
  };
  const localMember = async (userId: string, displayName: string): Promise<void> => {
    await member(userId, displayName);
    await database.write((tx) =>
      tx.insertMany(
        'local_current_membership',
        ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering'],
        [[roomId, userId, `$member of ${userId}`, 'join', 1]],
      ),
    );
  };
  const user = async (
    name: string,
    displayName: string,
    more: Record<string, boolean | string> = {},
  ): Promise<void> => {
    await database.write(async (tx) => {
      await tx.insertMany('users', ['name', 'creation_ts', ...Object.keys(more)], [[name, 1, ...Object.values(more)]]);
      await tx.insertMany('profiles', ['user_id', 'displayname'], [[name, displayName]]);
    });
  };
  const found = async (term: string): Promise<string[]> => {
    const query = { words: queryWordsOf(term, 10), roomIds: [roomId], types: searchableTypes };
    return (await selectByTime(database, query, undefined, 10)).map((row) => row.event_id);
  };
  const people = async (term: string, more: Partial<UserQuery> = {}): Promise<(string | undefined)[][]> => {
    const rows = await searchUsers(database, {
      requesterId: '@nobody:example.org',
      words: queryWordsOf(term, 10),
      exact: term,
      serverName: 'example.org',
      everybody: true,
      localFirst: false,
      localOnly: false,
      lockedToo: false,
      limit: 10,
      offset: 0,
      ...more,
    });
    return rows.map((row) => [row.userId, row.displayName]);
  };

  beforeAll(async () => {
    const test = await open();
    ({ database } = test);
    const before = [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations];
    await test.migrate(before);
    await event(-5, 'old words');
    await event(1, 'first words');
    await event(2, 'withdrawn words');
    await event(3, 'words of an outlier', 'm.room.message', true);
    await event(4, 'words elsewhere', 'org.example.other');
    await event(5, 'last words');
    await database.write((tx) =>
      tx.insertMany('redactions', ['event_id', 'redacts', 'received_ts'], [['$redaction', '$2', 1]]),
    );
    await user('@ann:example.org', 'Ann of the profile');
    await user('@gone:example.org', 'Ann gone', { deactivated: true });
    await user('@guest:example.org', 'Ann guest', { is_guest: true });
    await user('@locked:example.org', 'Ann locked', { locked: true });
    await user('@support:example.org', 'Ann of support', { user_type: 'support' });
    await user('@irc_ann:example.org', 'Ann (IRC)', { appservice_id: 'irc' });
    await localMember('@ann:example.org', 'Ann of the room');
    for (const name of ['guest', 'support', 'irc_ann', 'ircbot'])
      await localMember(`@${name}:example.org`, `Ann ${name}`);
    await member('@ann:elsewhere.org', 'Ann from elsewhere');
    await member('@bea:elsewhere.org', 'Bea from elsewhere');
    await test.migrate([...before, ...searchMigrations]);
  });

  it('is queued by the migration', async () => {
    const rows = await database.query<{ update_name: string }>('SELECT update_name FROM background_updates ORDER BY 1');
    expect(rows.map((row) => row.update_name)).toEqual([messageIndexUpdate.name, userDirectoryUpdate.name]);
  });

  it('indexes messages that clients may see, again without harm', async () => {
    for (let round = 0; round < 2; round++) {
      expect(await runAll(database, messageIndexUpdate)).toBeGreaterThan(1);
      expect(await found('words')).toEqual(['$5', '$1', '$-5']);
      expect(await found('old')).toEqual(['$-5']);
    }
    await database.write((tx) => deleteRoomMessages(tx, roomId));
    expect(await found('words')).toEqual([]);
  });

  it('lists members, and users of this server by their profiles', async () => {
    for (let round = 0; round < 2; round++) {
      expect(await runAll(database, userDirectoryUpdate)).toBeGreaterThan(2);
      expect(await people('ann')).toEqual([
        ['@ann:elsewhere.org', 'Ann from elsewhere'],
        ['@ann:example.org', 'Ann of the profile'],
      ]);
    }
    expect(await people('ann', { localFirst: true })).toEqual([
      ['@ann:example.org', 'Ann of the profile'],
      ['@ann:elsewhere.org', 'Ann from elsewhere'],
    ]);
    expect(await people('ann', { localOnly: true })).toEqual([['@ann:example.org', 'Ann of the profile']]);
    expect((await people('ann', { lockedToo: true })).map(([id]) => id)).toContain('@locked:example.org');
    for (const term of ['guest', 'support', 'irc', 'ircbot']) expect(await people(term)).toEqual([]);
  });

  it('takes users of this server out who are not to be found any more', async () => {
    await user('@old:example.org', 'Olga');
    await runAll(database, userDirectoryUpdate);
    expect(await people('olga')).toEqual([['@old:example.org', 'Olga']]);
    await database.write((tx) => tx.run("UPDATE users SET user_type = 'support' WHERE name = '@old:example.org'"));
    await runAll(database, userDirectoryUpdate);
    expect(await people('olga')).toEqual([]);
  });

  it('users of other servers who share no room any more are forgotten', async () => {
    const both = ['@ann:elsewhere.org', '@bea:elsewhere.org'];
    await database.write(async (tx) => {
      await tx.run(`DELETE FROM current_state_events WHERE state_key = ?`, ['@bea:elsewhere.org']);
      await deleteStrangers(tx, both);
    });
    expect(await people('elsewhere')).toEqual([['@ann:elsewhere.org', 'Ann from elsewhere']]);
  });
});
