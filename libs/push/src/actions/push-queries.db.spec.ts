import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { fixtureMigrations } from '../push.fixture.js';
import { currentInvites } from './push-actions.query.js';

eachDatabase('queries for invites', (open) => {
  let place: TestDatabase;
  beforeAll(async () => {
    place = await open();
    await place.migrate(fixtureMigrations);
  });
  afterAll(() => place?.close());

  it('look up what they need, however many others are invited', async () => {
    expect(await scansOf(place.database, (db) => currentInvites(db, '!a:b', ['$a']))).toEqual([]);
  });
});
