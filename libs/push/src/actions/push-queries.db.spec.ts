import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { fixtureMigrations } from '../push.fixture.js';
import { currentInvites, selectCounts, selectMarksIn, selectReach } from './push-actions.query.js';

eachDatabase('queries for what was not read', (open) => {
  let place: TestDatabase;
  beforeAll(async () => {
    place = await open();
    await place.migrate(fixtureMigrations);
  });
  afterAll(() => place?.close());

  it('look up what they need, however many others are invited', async () => {
    expect(await scansOf(place.database, (db) => currentInvites(db, '!a:b', ['$a']))).toEqual([]);
  });

  it('look at what lies behind marks, and at nothing else of the rooms', async () => {
    const scans = await scansOf(place.database, async (db) => {
      await selectCounts(db, '@a:b', ['!a:b', '!c:b'], { before: 1_000, limit: 10 });
      await selectMarksIn(db, '!a:b', ['@a:b'], ['', 'main']);
      await selectReach(db, ['$a', '$b']);
    });
    // The marks themselves, and what was found.
    expect(scans.filter((scan) => !/^SCAN (?:m|counted|told)$/.test(scan))).toEqual([]);
  });
});
