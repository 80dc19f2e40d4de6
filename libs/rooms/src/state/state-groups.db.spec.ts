import { databaseMigrations } from '@rookery/database';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { roomsMigrations } from '../migrations/index.js';
import {
  selectChain,
  selectChains,
  selectDeltas,
  selectGroupsIn,
  selectGroupsOf,
  selectStates,
} from './state-groups.query.js';

eachDatabase('queries for state groups', (open) => {
  let place: TestDatabase;
  beforeAll(async () => {
    place = await open();
    await place.migrate([...databaseMigrations, ...roomsMigrations]);
  });
  afterAll(() => place?.close());

  it('look up what they need, however much there is of other rooms', async () => {
    const scans = await scansOf(place.database, async (db) => {
      await selectChain(db, 1);
      await selectChains(db, [1, 2]);
      await selectStates(db, [1, 2], undefined);
      await selectStates(db, [1, 2], { types: [['m.room.create', undefined]] });
      await selectStates(db, [1, 2], { types: [['m.room.member', '@a:b']] }, 10);
      const types: [string, string][] = [
        ['m.room.history_visibility', ''],
        ['m.room.member', '@a:b'],
      ];
      await selectStates(db, [1, 2], { types });
      await selectStates(db, [1, 2], { members: ['@a:b'] });
      await selectStates(db, [1, 2], { withoutMembers: true });
      await selectDeltas(db, [1, 2]);
      await selectGroupsIn(db, '!a:b', ['$a']);
      await selectGroupsOf(db, ['$a']);
    });
    // The chain of a group itself.
    expect(scans.filter((scan) => scan !== 'SCAN c')).toEqual([]);
  });
});
