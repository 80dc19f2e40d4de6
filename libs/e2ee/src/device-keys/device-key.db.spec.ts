import { JoinService, MembershipService, RoomIds } from '@rookery/rooms';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { DeactivationService, DeviceService, SessionService } from '@rookery/users';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { E2eePorts } from '../ports.js';
import { DeviceListService, deviceListsStream } from '../device-lists/device-list.service.js';
import { buildE2ee, deviceKeysOf, type E2eeFixture, fixtureMigrations, requesterOf } from '../e2ee.fixture.js';
import { DeviceKeyService } from './device-key.service.js';
import { KeyUploads } from './key-uploads.service.js';
import { OneTimeKeyService } from './one-time-key.service.js';

let serial = 0;

eachDatabase('device keys and lists', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let keys: DeviceKeyService;
  let lists: DeviceListService;
  let alice: string;
  let bob: string;
  let carol: string;
  let roomId: string;

  const upload = (userId: string, deviceId = 'PHONE', more = {}) =>
    fixture.get(KeyUploads).upload(userId, deviceId, { device_keys: deviceKeysOf(userId, deviceId, more) });
  const position = (of = fixture) => ({
    deviceLists: of.get(DeviceListService).stream.current(),
    events: of.get(RoomIds).events.current(),
  });
  /** What a sync would tell; asked in both ways, which must agree. */
  const news = async (userId: string, joined: readonly string[], after = position(), of = fixture) => {
    const joinedRooms = new Set(joined);
    const service = of.get(DeviceListService);
    const may = service.mayHaveChanged(userId, joinedRooms, after);
    const { changed, left } = await service.changes({ userId, joinedRooms, after, upTo: position(of) });
    if (changed.length + left.length > 0) expect(may).toBe(true);
    return { changed: changed.toSorted(), left: left.toSorted() };
  };
  const nothing = { changed: [], left: [] };

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    keys = fixture.get(DeviceKeyService);
    lists = fixture.get(DeviceListService);
  });
  beforeEach(async () => {
    serial++;
    alice = await fixture.user(`alice${serial}`, 'PHONE', 'LAPTOP');
    bob = await fixture.user(`bob${serial}`, 'PHONE');
    carol = await fixture.user(`carol${serial}`, 'PHONE');
    roomId = await fixture.room(alice, bob);
  });
  afterAll(() => fixture.close());

  it('gives keys as they were uploaded, with the name of the device', async () => {
    await upload(alice);
    await upload(alice, 'LAPTOP');
    await fixture.get(DeviceService).rename(alice, 'PHONE', 'My phone');
    const all = await keys.query(bob, { [alice]: [], [bob]: [] }, 1_000);
    expect(all.device_keys).toEqual({
      [alice]: {
        LAPTOP: { ...deviceKeysOf(alice, 'LAPTOP'), unsigned: {} },
        PHONE: { ...deviceKeysOf(alice, 'PHONE'), unsigned: { device_display_name: 'My phone' } },
      },
      [bob]: {},
    });
    const some = await keys.query(bob, { [alice]: ['PHONE', 'UNKNOWN'] }, 1_000);
    expect(Object.keys(some.device_keys[alice] ?? {})).toEqual(['PHONE']);
  });

  it('says which servers cannot be reached, and believes others about their own users only', async () => {
    const dora = '@dora:elsewhere.org';
    const before = await keys.query(bob, { [dora]: [] }, 1_000);
    expect(Object.keys(before.failures)).toEqual(['elsewhere.org']);
    const other = await buildE2ee({ database: test.database, clock });
    const kept = '@k:kept.org';
    other.get(E2eePorts).remoteKeys.replace({
      known: async () => ({
        ...{
          device_keys: { [kept]: { K: { k: 1 } } },
          userIds: new Set([kept, '@l:long.org']),
          leftOut: ['@l:long.org'],
        },
      }),
      query: async (server) => {
        if (server === 'slow.org') return new Promise(() => {});
        if (server === 'broken.org') throw new Error('broken');
        if (server === 'partly.org') return { device_keys: { '@p:partly.org': { P: {} } }, failure: new Error('lost') };
        return { device_keys: { [dora]: { D: { a: 1 } }, [alice]: { FAKE: {} } }, master_keys: { [alice]: {} } };
      },
      claim: async () => ({ [dora]: { D: { 'x:y': 1 } } }),
    });
    const asking = other.get(DeviceKeyService).query(
      bob,
      {
        ...{ [dora]: [], '@s:slow.org': [], '@b:broken.org': [], '@p:partly.org': [], [alice]: [] },
        ...{ [kept]: [], '@l:long.org': [] },
      },
      1_000,
    );
    await clock.advance(1_100);
    const answer = await asking;
    expect(answer.device_keys).toEqual({
      ...{ [dora]: { D: { a: 1 } }, '@p:partly.org': { P: {} }, [alice]: {}, [kept]: { K: { k: 1 } } },
    });
    expect(answer.master_keys).toEqual({});
    expect(Object.keys(answer.failures).toSorted()).toEqual(['broken.org', 'long.org', 'partly.org', 'slow.org']);
    await other.close();
  });

  it('asks some servers at a time, and takes of all of them no more than there is room for', async () => {
    const other = await buildE2ee({ database: test.database, clock });
    let [asking, most, asked] = [0, 0, 0];
    other.get(E2eePorts).remoteKeys.replace({
      known: async () => ({ device_keys: {}, userIds: new Set(), leftOut: [] }),
      query: async (server, devices, _timeoutMs, room) => {
        asked++;
        most = Math.max(most, ++asking);
        await nextTurn();
        asking--;
        const [userId = ''] = Object.keys(devices);
        // Of one server it takes what there may be of one, and of the others as long as there is room.
        const sizeBytes = server === 's0.org' ? 8_388_608 : 1_000_000;
        if (room.take(8_388_609) || !room.take(sizeBytes)) throw new Error('no room');
        return { device_keys: { [userId]: { D: { server } } } };
      },
      claim: async () => ({}),
    });
    const users = Array.from({ length: 300 }, (_, n) => `@u:s${n}.org`);
    const query = () =>
      other.get(DeviceKeyService).query(bob, Object.fromEntries(users.map((userId) => [userId, []])), 1_000);
    const { device_keys: given, failures } = await query();
    expect([asked, Object.keys(given).length, Object.keys(failures).length]).toEqual([300, 26, 274]);
    expect(most).toBe(100);
    // What was taken up is given back with the answer.
    expect(Object.keys((await query()).device_keys)).toHaveLength(26);
    await other.close();
  });

  it('refuses keys of others and of the wrong shape', async () => {
    const put = (body: object) => fixture.get(KeyUploads).upload(alice, 'PHONE', { device_keys: body });
    await expect(put(deviceKeysOf(bob, 'PHONE'))).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(put(deviceKeysOf(alice, 'LAPTOP'))).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(put(deviceKeysOf(alice, 'PHONE', { algorithms: 'x' }))).rejects.toMatchObject({
      errcode: 'M_BAD_JSON',
    });
    await expect(put(deviceKeysOf(alice, 'PHONE', { keys: { a: 1 } }))).rejects.toMatchObject({
      errcode: 'M_BAD_JSON',
    });
    await expect(put(deviceKeysOf(alice, 'PHONE', { signatures: [] }))).rejects.toMatchObject({
      errcode: 'M_BAD_JSON',
    });
    await expect(put(deviceKeysOf(alice, 'PHONE', { x: 'y'.repeat(70_000) }))).rejects.toMatchObject({ status: 413 });
    await expect(keys.query(bob, { nobody: [] }, 1)).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(keys.query(bob, { [alice]: 'PHONE' }, 1)).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
  });

  it('tells those who share a room of new and changed keys, once, and nobody else', async () => {
    const since = position();
    await upload(alice);
    expect(await news(bob, [roomId], since)).toEqual({ changed: [alice], left: [] });
    expect(await news(alice, [roomId], since)).toEqual({ changed: [alice], left: [] });
    expect(await news(carol, [], since)).toEqual(nothing);
    const later = position();
    await upload(alice);
    expect(await news(bob, [roomId], later)).toEqual(nothing);
    expect(lists.mayHaveChanged(bob, new Set([roomId]), later)).toBe(false);
    await upload(alice, 'PHONE', { keys: { 'ed25519:PHONE': 'new' } });
    expect(await news(bob, [roomId], later)).toEqual({ changed: [alice], left: [] });
  });

  it('wakes those who share a room', async () => {
    const woken = fixture.notifier.wait(bob, { timeoutMs: 1_000 });
    const asleep = fixture.notifier.wait(carol, { timeoutMs: 1_000 });
    await upload(alice);
    expect(await woken).toBe('news');
    await clock.advance(2_000);
    expect(await asleep).toBe('timeout');
  });

  it('tells of new, renamed and deleted devices, whether they have keys or not', async () => {
    await upload(alice);
    const before = position();
    await fixture.get(DeviceService).rename(alice, 'LAPTOP', 'No keys yet');
    expect(await news(bob, [roomId], before)).toEqual({ changed: [alice], left: [] });
    const since = position();
    await fixture.get(DeviceService).delete(alice, ['LAPTOP']);
    expect(await news(bob, [roomId], since)).toEqual({ changed: [alice], left: [] });
    const deleted = position();
    await fixture.login(alice, 'TABLET');
    expect(await news(bob, [roomId], deleted)).toEqual({ changed: [alice], left: [] });
    const named = position();
    await fixture.get(DeviceService).rename(alice, 'PHONE', 'Phone');
    expect(await news(bob, [roomId], named)).toEqual({ changed: [alice], left: [] });
    const later = position();
    await fixture.get(SessionService).closeAll(alice);
    expect(await news(bob, [roomId], later)).toEqual({ changed: [alice], left: [] });
    expect((await keys.query(bob, { [alice]: [] }, 1)).device_keys).toEqual({ [alice]: {} });
  });

  it('tells everybody in a room of who joins, and who joins of everybody', async () => {
    const since = position();
    await fixture.get(JoinService).join(requesterOf(carol), roomId);
    expect(await news(bob, [roomId], since)).toEqual({ changed: [carol], left: [] });
    expect(await news(carol, [roomId], since)).toEqual({ changed: [alice, bob, carol].toSorted(), left: [] });
    expect(await news(bob, [roomId])).toEqual(nothing);
  });

  const leave = (userId: string): Promise<unknown> =>
    fixture.get(MembershipService).byContent(requesterOf(userId), roomId, userId, { membership: 'leave' });

  it('lets go of those who share no room any more', async () => {
    const second = await fixture.room(alice, carol);
    await fixture.get(JoinService).join(requesterOf(carol), roomId);
    const since = position();
    await leave(carol);
    // Alice meets Carol elsewhere still.
    expect(await news(alice, [roomId, second], since)).toEqual(nothing);
    expect(await news(bob, [roomId], since)).toEqual({ changed: [], left: [carol] });
    expect(await news(carol, [second], since)).toEqual({ changed: [], left: [bob] });
    // Who comes and goes between two syncs is gone, also with new keys.
    const later = position();
    await fixture.get(JoinService).join(requesterOf(carol), roomId);
    await upload(carol);
    await leave(carol);
    expect(await news(bob, [roomId], later)).toEqual({ changed: [], left: [carol] });
  });

  it('takes a new name for no news', async () => {
    const since = position();
    const content = { membership: 'join', displayname: 'Bobby' };
    await fixture.get(MembershipService).byContent(requesterOf(bob), roomId, bob, content);
    expect(position().events).toBeGreaterThan(since.events);
    expect(lists.mayHaveChanged(alice, new Set([roomId]), since)).toBe(false);
    expect(await news(alice, [roomId], since)).toEqual(nothing);
  });

  it('finds after a restart what happened before', async () => {
    const since = position();
    await upload(alice);
    await fixture.get(JoinService).join(requesterOf(carol), roomId);
    await leave(bob);
    const again = await buildE2ee({ database: await test.reopen(), clock });
    expect(await news(carol, [roomId], since, again)).toEqual({ changed: [alice, carol].toSorted(), left: [bob] });
    expect(await news(alice, [roomId], since, again)).toEqual({ changed: [alice, carol].toSorted(), left: [bob] });
    expect(await news(bob, [], since, again)).toEqual({ changed: [], left: [alice, carol].toSorted() });
    await again.close();
  });

  it('tells of changes elsewhere', async () => {
    const dora = '@dora:elsewhere.org';
    await test.database.write((tx) =>
      tx.run(
        `INSERT INTO current_state_events (event_id, room_id, type, state_key, membership) VALUES (?, ?, 'm.room.member', ?, 'join')`,
        [`$dora${serial}`, roomId, dora],
      ),
    );
    const since = position();
    for (const deviceId of ['D', '']) await test.database.write((tx) => lists.changed(tx, dora, [deviceId]));
    expect(await news(bob, [roomId], since)).toEqual({ changed: [dora], left: [] });
    const rows = await deviceListsStream.read(test.database, since.deviceLists, position().deviceLists, 10);
    expect(rows.map((row) => [row.userId, row.deviceId])).toEqual([
      [dora, 'D'],
      [dora, ''],
    ]);
  });

  it('gives several users their positions in order, once it is known whom all of that concerns', async () => {
    const steps: string[] = [];
    const ends: (() => void)[] = [];
    const watch = (of: object, name: string, step: string): void => {
      const method = Reflect.get(of, name) as (...args: unknown[]) => Promise<unknown>;
      Reflect.set(of, name, async (...args: unknown[]) => {
        const outcome = await method.apply(of, args);
        steps.push(step);
        return outcome;
      });
      ends.push(() => void Reflect.deleteProperty(of, name));
    };
    watch(lists, 'audience', 'audience');
    watch(lists.stream, 'allocateIn', 'positions');
    watch(fixture.get(OneTimeKeyService), 'store', 'one-time keys');
    try {
      const since = position();
      const changes = [
        { userId: alice, deviceIds: ['PHONE', 'LAPTOP'] },
        { userId: carol, deviceIds: [] },
        { userId: bob, deviceIds: ['PHONE'] },
        { userId: '@dora:elsewhere.org', deviceIds: [''] },
      ];
      const ids = await test.database.write((tx) => lists.changedOf(tx, changes));
      expect(steps.splice(0)).toEqual(['audience', 'positions']);
      const rows = await deviceListsStream.read(test.database, since.deviceLists, position().deviceLists, 10);
      const first = since.deviceLists + 1;
      expect(rows.map((row) => [row.position, row.userId, row.deviceId])).toEqual([
        [first, alice, 'PHONE'],
        [first + 1, alice, 'LAPTOP'],
        [first + 2, bob, 'PHONE'],
        [first + 3, '@dora:elsewhere.org', ''],
      ]);
      expect(ids).toEqual(rows.map((row) => row.position));
      expect(await test.database.write((tx) => lists.changedOf(tx, [changes[1]!]))).toEqual([]);
      expect(steps.splice(0)).toEqual([]);

      await upload(alice);
      await upload(bob);
      const before = position();
      steps.splice(0);
      await test.database.write((tx) => lists.repeat(tx, [alice, bob]));
      expect(steps.splice(0)).toEqual(['audience', 'positions']);
      expect((await news(alice, [roomId], before)).changed).toEqual([alice, bob].toSorted());

      const more = { one_time_keys: { 'a:1': 'x' } };
      await fixture.get(KeyUploads).upload(carol, 'PHONE', { device_keys: deviceKeysOf(carol, 'PHONE'), ...more });
      expect(steps).toEqual(['audience', 'one-time keys', 'positions']);
    } finally {
      for (const end of ends) end();
    }
  });

  it('shows other servers the devices, and names only where that is allowed', async () => {
    await upload(alice);
    await fixture.get(DeviceService).rename(alice, 'PHONE', 'Secret name');
    const { deviceLists } = position();
    const device = { device_id: 'PHONE', keys: deviceKeysOf(alice, 'PHONE') };
    expect(await keys.devicesForServer(alice)).toEqual({ user_id: alice, stream_id: deviceLists, devices: [device] });
    const open = await buildE2ee({
      database: test.database,
      clock,
      settings: { allow_device_name_lookup_over_federation: true },
    });
    expect(await open.get(DeviceKeyService).devicesForServer(alice)).toMatchObject({
      devices: [{ ...device, device_display_name: 'Secret name' }],
    });
    await open.close();
  });

  it('leaves nothing of an account that is closed', async () => {
    await upload(alice);
    await fixture
      .get(KeyUploads)
      .upload(alice, 'PHONE', { one_time_keys: { 'a:1': 'x' }, fallback_keys: { 'a:2': 'y' } });
    const since = position();
    await fixture.get(DeactivationService).deactivate(alice, false, false, {});
    // A closed account leaves its rooms: whoever shared one need not watch it any more.
    expect(await news(bob, [roomId], since)).toEqual({ changed: [], left: [alice] });
    for (const table of ['e2e_device_keys_json', 'e2e_one_time_keys_json', 'e2e_fallback_keys_json'])
      expect(await test.database.query(`SELECT 1 AS found FROM ${table} WHERE user_id = ?`, [alice])).toEqual([]);
  });

  it('shows keys to users in a common room only, where the server is set so', async () => {
    const other = await buildE2ee({
      database: test.database,
      clock,
      settings: { experimental_features: { msc4263_limit_key_queries_to_users_who_share_rooms: true } },
    });
    await upload(alice);
    const ask = async (userId: string) =>
      Object.keys((await other.get(DeviceKeyService).query(userId, { [alice]: [], [carol]: [] }, 1)).device_keys);
    expect(await ask(bob)).toEqual([alice]);
    expect(await ask(carol)).toEqual([carol]);
    await other.close();
  });
});
