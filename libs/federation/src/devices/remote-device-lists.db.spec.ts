import { databaseMigrations } from '@rookery/database';
import type { DeviceListService, KeyRoom } from '@rookery/e2ee';
import type { FederationClient } from '@rookery/federation-client';
import type { JsonObject } from '@rookery/matrix-types';
import type { BackgroundTasks, Config, Lifecycle } from '@rookery/platform';
import { SilentLogger } from '@rookery/platform';
import type { RoomHooks } from '@rookery/rooms';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { remoteDeviceTables } from '../migrations/federation-sender.migration.js';
import { RemoteDeviceLists } from './remote-device-lists.js';
import { replaceList } from './remote-device-lists.query.js';

eachDatabase('kept lists of devices of other servers', (open) => {
  let place: TestDatabase;
  let lists: RemoteDeviceLists;

  beforeAll(async () => {
    place = await open();
    await place.migrate([...databaseMigrations, remoteDeviceTables]);
    const tasks = { add: () => ({}) } as unknown as BackgroundTasks;
    lists = new RemoteDeviceLists(
      ...([place.database, new FakeClock(), {} as Config, new SilentLogger(), {} as Lifecycle] as const),
      ...([{} as FederationClient, {} as DeviceListService, {} as RoomHooks, tasks] as const),
    );
  });
  afterAll(() => place?.close());

  const roomOf = (leftBytes: number): KeyRoom & { leftBytes: number } => {
    const room = {
      leftBytes,
      take: (bytes: number) => bytes <= room.leftBytes && ((room.leftBytes -= bytes), true),
    };
    return room;
  };
  const deviceOf = (userId: string, n: number, sizeBytes: number) => {
    const keys: JsonObject = { user_id: userId, n, x: '' };
    const content = (x: string): string => JSON.stringify({ keys: { ...keys, x } });
    return { userId, deviceId: `D${n}`, content: content('x'.repeat(sizeBytes - content('').length)) };
  };
  const keep = (userId: string, count: number, sizeBytes: number): Promise<void> => {
    const devices = Array.from({ length: count }, (_, n) => deviceOf(userId, n, sizeBytes));
    const key = { userId, keyType: 'master', json: JSON.stringify({ user_id: userId }) };
    return place.database.write((tx) => replaceList(tx, userId, '1', devices, [key]));
  };

  it('are given as far as there is room, the shortest first, and the others are named', async () => {
    const [long, short, longer, empty] = ['@a:far.test', '@b:far.test', '@c:far.test', '@d:far.test'];
    await keep(long, 10, 60_000);
    await keep(short, 2, 1_000);
    await keep(longer, 11, 60_000);
    await keep(empty, 0, 0);
    const room = roomOf(610_000);
    const {
      userIds,
      leftOut,
      device_keys: devices,
      master_keys: masters,
    } = await lists.tracked([longer, long, short, empty, '@unknown:far.test'], room);
    expect([...userIds].sort()).toEqual([long, short, longer, empty]);
    expect(leftOut).toEqual([longer]);
    expect(Object.entries(devices).map(([userId, theirs]) => [userId, Object.keys(theirs).length])).toEqual([
      [empty, 0],
      [short, 2],
      [long, 10],
    ]);
    expect(devices[short]?.['D1']).toMatchObject({ user_id: short, n: 1, unsigned: {} });
    expect(Object.keys(masters ?? {}).sort()).toEqual([long, short, empty]);
    expect(610_000 - room.leftBytes).toBe(602_000 + 3 * JSON.stringify({ user_id: long }).length);
  });

  it('are asked for anew where more was kept of old than a list may hold', async () => {
    const old = '@old:far.test';
    await keep(old, 20, 60_000);
    expect(await lists.tracked([old], roomOf(10_000_000))).toMatchObject({ userIds: new Set(), leftOut: [] });
  });
});
