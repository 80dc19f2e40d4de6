import { databaseMigrations } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { selectPoliciesOf, selectRoomsBehind } from './retention.query.js';

eachDatabase('policies of rooms', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'rooms',
        ['room_id', 'room_version'],
        ['!c:a', '!a:a', '!b:a'].map((roomId) => [roomId, '10']),
      );
      await tx.insertMany(
        'current_state_events',
        ['room_id', 'type', 'state_key', 'event_id'],
        [
          ['!a:a', 'm.room.retention', '', '$a'],
          ['!b:a', 'm.room.retention', 'other', '$b'],
          ['!c:a', 'm.room.retention', '', '$c'],
        ],
      );
    });
  });
  afterAll(() => test.close());

  it('are looked up room by room, without reading the state of any', async () => {
    const { database } = test;
    expect(await selectRoomsBehind(database, '', 2)).toEqual(['!a:a', '!b:a']);
    expect(await selectRoomsBehind(database, '!b:a', 2)).toEqual(['!c:a']);
    expect(await selectPoliciesOf(database, ['!a:a', '!b:a'])).toEqual(new Map([['!a:a', '$a']]));
    const scans = await scansOf(database, async (db) => {
      await selectRoomsBehind(db, '', 2);
      await selectPoliciesOf(db, ['!a:a', '!b:a']);
    });
    expect(scans).toEqual([]);
  });
});
