import { databaseMigrations, type Tx } from '@rookery/database';
import { e2eeMigrations } from '@rookery/e2ee';
import { roomsMigrations } from '@rookery/rooms';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { pendingDeviceTables, remoteDeviceTables, senderTables } from '../migrations/federation-sender.migration.js';
import {
  insertPokes,
  lastPokesOf,
  lastPokeWaiting,
  latestDevices,
  pokedServers,
  pokesDelivered,
  pokesFor,
  serversTold,
  wholeList,
} from './device-pokes.query.js';
import {
  devicesOfUsers,
  isJoinedHere,
  isSharingHeld,
  keysOfUsers,
  membersBehind,
  otherDevicesOf,
  resyncsBehind,
  sharingUsers,
  sizesOfLists,
  strangersAmong,
  trackedBehind,
  trackedUsers,
} from './remote-device-lists.query.js';

/** As an uploaded cross-signing key reserves its id. */
const reserveKey = (tx: Tx, userId: string, keyId: string): Promise<number> =>
  tx.run('INSERT INTO devices (user_id, device_id, hidden) VALUES (?, ?, TRUE)', [userId, keyId]);

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
      await lastPokeWaiting(db, 'far.test', '@a:b');
      await latestDevices(db, ['@a:b']);
      await serversTold(db, ['far.test'], '@a:b', 1);
      await trackedUsers(db, ['@a:b']);
      await sharingUsers(db, ['@a:b']);
      // It locks rows elsewhere, which is no reading.
      if (db.dialect.name === 'sqlite') await isSharingHeld(db as Tx, '@a:b');
      await isJoinedHere(db, '!a:b');
      await trackedBehind(db, '', 10);
      await sizesOfLists(db, ['@a:b']);
      await devicesOfUsers(db, ['@a:b']);
      await keysOfUsers(db, ['@a:b']);
      await otherDevicesOf(db, '@a:b', 'D');
      await strangersAmong(db, ['@a:b']);
      await membersBehind(db, '!a:b', '', 10);
      await resyncsBehind(db, '', 10);
    });
    expect(scans).toEqual([]);
  });

  it('name the servers that wait without looking at all that waits for them', async () => {
    const { database } = place;
    const pokes = ['b.test', 'a.test', 'c.test'].flatMap((destination) =>
      Array.from({ length: 5 }, (_, n) => ({ destination, userId: `@u${n}:b`, deviceId: 'D', streamId: n + 1 })),
    );
    expect(await pokedServers(database)).toEqual([]);
    await database.write((tx) => insertPokes(tx, pokes, 0));
    expect(await pokedServers(database)).toEqual(['a.test', 'b.test', 'c.test']);
    // What was found; each server by a search of its own.
    const scans = await scansOf(database, pokedServers);
    expect(scans.filter((scan) => scan !== 'SCAN f' && scan !== 'SCAN found')).toEqual([]);
    await database.write((tx) => tx.run('DELETE FROM device_lists_outbound_pokes'));
  });

  it('keep one change of a user for a server that was away for a day, and say that others are missing', async () => {
    const { database } = place;
    const dayMs = 86_400_000;
    const poke = (destination: string, userId: string, deviceId: string, streamId: number) => ({
      ...{ destination, userId, deviceId, streamId },
    });
    const write = (pokes: ReturnType<typeof poke>[], nowMs: number): Promise<void> =>
      database.write((tx) => insertPokes(tx, pokes, nowMs));
    const left = async (destination: string): Promise<string[]> =>
      (await pokesFor(database, destination, 100)).map(({ userId, deviceId }) => `${userId} ${deviceId}`);
    const [ann, bob] = ['@ann:b', '@bob:b'];
    await database.write((tx) => pokesDelivered(tx, 'away.test', [], new Map([[ann, 1]])));
    const old = ['A', 'B', 'C'].map((deviceId, n) => poke('away.test', ann, deviceId, 2 + n));
    await write([...old, poke('away.test', bob, 'X', 5), poke('other.test', ann, 'A', 2)], 0);
    // Nobody was away for a day yet.
    await write([poke('away.test', ann, 'D', 6)], dayMs - 1);
    expect(await left('away.test')).toEqual([`${ann} A`, `${ann} B`, `${ann} C`, `${bob} X`, `${ann} D`]);
    // Of others, and for others, one change alone is not given up.
    await write([poke('away.test', ann, 'E', 7), poke('third.test', bob, 'Y', 8)], dayMs + 1);
    expect(await left('away.test')).toEqual([`${bob} X`, `${ann} D`, `${ann} E`]);
    expect(await left('other.test')).toEqual([`${ann} A`]);
    expect(await lastPokesOf(database, 'away.test', [ann, bob])).toEqual(new Map([[ann, 4]]));
    // What was on its way meanwhile does not hide that.
    await database.write((tx) => pokesDelivered(tx, 'away.test', [old[0]!], new Map([[ann, 2]])));
    expect(await lastPokesOf(database, 'away.test', [ann])).toEqual(new Map([[ann, 4]]));
    await database.write((tx) => pokesDelivered(tx, 'away.test', [], new Map([[ann, 7]])));
    expect(await lastPokesOf(database, 'away.test', [ann])).toEqual(new Map([[ann, 7]]));
    expect(await scansOf(database, (tx) => insertPokes(tx, [], 0))).toEqual([]);
  });

  it('give up no change for a key that came later: nobody would see by that that something is missing', async () => {
    const { database } = place;
    const [destination, userId] = ['key.test', '@ken:b'];
    const poke = (deviceId: string, streamId: number) => ({ destination, userId, deviceId, streamId });
    const write = (nowMs: number, ...pokes: ReturnType<typeof poke>[]): Promise<void> =>
      database.write((tx) => insertPokes(tx, pokes, nowMs));
    const left = async (): Promise<unknown[]> =>
      (await pokesFor(database, destination, 10)).map(({ deviceId, isKey }) => [deviceId, isKey]);
    await database.write((tx) => reserveKey(tx, userId, 'KEY'));
    await write(0, poke('A', 1));
    await write(86_400_001, poke('KEY', 2));
    expect(await left()).toEqual([
      ['A', false],
      ['KEY', true],
    ]);
    expect(await lastPokeWaiting(database, destination, userId)).toBe(1);
    await write(86_400_001, poke('B', 3));
    expect(await left()).toEqual([
      ['KEY', true],
      ['B', false],
    ]);
  });

  it('forget an introduction with what was sent, and no other', async () => {
    const { database } = place;
    const [destination, userId] = ['met.test', '@mia:b'];
    const poke = (deviceId: string, streamId = 5) => ({ destination, userId, deviceId, streamId });
    const left = async (): Promise<string[]> =>
      (await pokesFor(database, destination, 10)).map(({ deviceId }) => deviceId);
    const sent = (...pokes: ReturnType<typeof poke>[]): Promise<void> =>
      database.write((tx) => pokesDelivered(tx, destination, pokes, new Map([[userId, 5]])));
    await database.write((tx) => insertPokes(tx, [poke(wholeList), poke('D')], 0));
    await sent(poke('D'));
    expect(await left()).toEqual([wholeList]);
    await database.write((tx) => insertPokes(tx, [poke('E')], 0));
    await sent(poke(wholeList));
    expect(await left()).toEqual(['E']);
  });

  it('take a later change for one that waits, and no earlier one', async () => {
    const { database } = place;
    for (const streamId of [5, 7, 6]) {
      const poke = { destination: 'late.test', userId: '@a:b', deviceId: 'D', streamId };
      await database.write((tx) => insertPokes(tx, [poke], 0));
    }
    expect(await pokesFor(database, 'late.test', 10)).toEqual([
      { userId: '@a:b', deviceId: 'D', streamId: 7, isKey: false },
    ]);
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
