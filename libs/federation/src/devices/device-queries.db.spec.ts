import { databaseMigrations } from '@rookery/database';
import { e2eeMigrations } from '@rookery/e2ee';
import { roomsMigrations } from '@rookery/rooms';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { pendingDeviceTables, remoteDeviceTables, senderTables } from '../migrations/federation-sender.migration.js';
import { lastPokesOf, latestDevices, pokesDelivered, pokesFor, serversTold } from './device-pokes.query.js';
import {
  devicesOfUsers,
  keysOfUsers,
  membersBehind,
  otherDevicesOf,
  resyncsBehind,
  sharingUsers,
  strangersAmong,
  trackedUsers,
} from './remote-device-lists.query.js';

eachDatabase('queries for changes of devices', (open) => {
  let place: TestDatabase;
  beforeAll(async () => {
    place = await open();
    const own = [senderTables, remoteDeviceTables, pendingDeviceTables];
    await place.migrate([...databaseMigrations, ...usersMigrations, ...e2eeMigrations, ...roomsMigrations, ...own]);
  });
  afterAll(() => place?.close());

  it('look up what they need, however much there is of other servers and users', async () => {
    const scans = await scansOf(place.database, async (db) => {
      await pokesFor(db, 'far.test', 10);
      await lastPokesOf(db, 'far.test', ['@a:b']);
      await latestDevices(db, ['@a:b']);
      await serversTold(db, ['far.test'], '@a:b', 1);
      await trackedUsers(db, ['@a:b']);
      await sharingUsers(db, ['@a:b']);
      await devicesOfUsers(db, ['@a:b']);
      await keysOfUsers(db, ['@a:b']);
      await otherDevicesOf(db, '@a:b', 'D');
      await strangersAmong(db, ['@a:b']);
      await membersBehind(db, '!a:b', '', 10);
      await resyncsBehind(db, '', 10);
    });
    expect(scans).toEqual([]);
  });

  it('tell which of some servers know how a user is now', async () => {
    const { database } = place;
    const pokes = [{ userId: '@a:b', deviceId: 'D', streamId: 5 }];
    for (const [server, at] of [
      ['one.test', 5],
      ['two.test', 4],
      ['three.test', 7],
      ['four.test', 7],
    ] as const)
      await database.write((tx) => pokesDelivered(tx, server, pokes, new Map([['@a:b', at]])));
    const told = await serversTold(database, ['one.test', 'two.test', 'three.test', 'five.test'], '@a:b', 5);
    expect(told).toEqual(new Set(['one.test', 'three.test']));
    expect(await serversTold(database, ['one.test'], '@c:b', 5)).toEqual(new Set());
  });
});
