import { setImmediate as turn } from 'node:timers/promises';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { BackgroundTasks, Config, SilentLogger } from '@rookery/platform';
import {
  defineRpc,
  InProcessBus,
  InProcessRpc,
  Invalidations,
  Notifier,
  Rpc,
  type RpcMethod,
  Streams,
  StreamWriters,
} from '@rookery/replication';
import { JoinService, MembershipService } from '@rookery/rooms';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { UserHooks } from '@rookery/users';
import { buildEphemeral, type EphemeralFixture, fixtureMigrations, requesterOf } from '../ephemeral.fixture.js';
import { EphemeralHooks } from '../hooks.js';
import type { PresenceState } from '../model/presence-state.js';
import { PresenceElsewhere } from './presence-elsewhere.js';
import { presenceStream } from './presence-publisher.js';
import { PresenceReader } from './presence-reader.js';
import { PresenceService } from './presence.service.js';

let serial = 0;

/** What a process beside the one that writes says to it. */
class ToWriter extends InProcessRpc {
  readonly calls: string[] = [];
  isAway = false;

  constructor(public writer: Rpc) {
    super();
  }

  override async call<Request, Response>(method: RpcMethod<Request, Response>, request: Request): Promise<Response> {
    this.calls.push(method.name);
    if (this.isAway) throw new Error('Nobody writes');
    return this.writer.call(method, request);
  }
}

eachDatabase('presence', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: EphemeralFixture;
  let presence: PresenceService;
  let reader: PresenceReader;
  let roomId: string;
  let alice = requesterOf('alice');
  let bob = requesterOf('bob');
  let carol = requesterOf('carol');

  /** What a client in the room hears. */
  const news = async (userId: string, since: number | undefined, freshRooms: string[] = [], of = fixture) => {
    const upTo = of.get(PresenceService).stream.current();
    return byUser(
      await of.get(PresenceReader).changes({ userId, joinedRooms: new Set([roomId]), freshRooms, since, upTo }),
    );
  };
  const byUser = (states: readonly PresenceState[]): Record<string, string> =>
    Object.fromEntries(states.map((one) => [one.userId, one.state]));

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildEphemeral({ database: test.database, clock });
    presence = fixture.get(PresenceService);
    reader = fixture.get(PresenceReader);
  });
  beforeEach(async () => {
    serial++;
    [alice, bob, carol] = ['alice', 'bob', 'carol'].map((name) => requesterOf(`${name}${serial}`)) as [
      typeof alice,
      typeof alice,
      typeof alice,
    ];
    roomId = await fixture.room(alice, bob);
  });
  afterAll(() => fixture.close());

  it('follows syncs: online, and offline half a minute after the last one', async () => {
    const since = presence.stream.current();
    const end = presence.syncing(alice.userId, 'A', 'online');
    await turn();
    await presence.flush();
    expect(await news(bob.userId, since)).toEqual({ [alice.userId]: 'online' });
    await clock.advance(40_000);
    expect((await reader.visibleTo(bob.userId, alice.userId)).state).toBe('online');
    end();
    await clock.advance(29_000);
    expect((await reader.visibleTo(bob.userId, alice.userId)).state).toBe('online');
    await clock.advance(8_000);
    await presence.flush();
    expect(await news(bob.userId, since)).toEqual({ [alice.userId]: 'offline' });
  });

  it('tells those who share a room, and nobody else', async () => {
    const since = presence.stream.current();
    await presence.setByClient(alice.userId, 'A', 'unavailable', 'at lunch');
    await presence.flush();
    expect(await news(bob.userId, since)).toEqual({ [alice.userId]: 'unavailable' });
    const other = { userId: carol.userId, joinedRooms: new Set(['!x']), freshRooms: [], since };
    expect(await reader.changes({ ...other, upTo: presence.stream.current() })).toEqual([]);
    expect(await reader.visibleTo(bob.userId, alice.userId)).toMatchObject({ statusMsg: 'at lunch' });
    await expect(reader.visibleTo(carol.userId, alice.userId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    expect(await news(bob.userId, presence.stream.current())).toEqual({});
  });

  it('is told together, once a second at most', async () => {
    await clock.advance(5_000);
    await presence.flush();
    const wake = () => fixture.notifier.wait(bob.userId, { timeoutMs: 600 });
    const written: number[] = [];
    fixture.get(EphemeralHooks).subscribe({ presenceChanged: (states) => void written.push(states.length) });
    const first = wake();
    await presence.setByClient(alice.userId, 'A', 'online', 'one');
    await presence.setByClient(bob.userId, 'B', 'online', 'two');
    await presence.setByClient(alice.userId, 'A', 'online', 'three');
    await clock.advance(60);
    await presence.flush();
    expect(written).toEqual([2]);
    expect(await first).toBe('news');
    const second = wake();
    await presence.setByClient(alice.userId, 'A', 'online', 'four');
    await clock.advance(700);
    expect(await second).toBe('timeout');
    expect(written).toEqual([2]);
    await clock.advance(400);
    await presence.flush();
    expect(written).toEqual([2, 1]);
    expect((await reader.visibleTo(bob.userId, alice.userId)).statusMsg).toBe('four');
  });

  it('gives new clients everybody who is there, and newcomers to a room those in it', async () => {
    presence.syncing(alice.userId, 'A', 'online');
    presence.syncing(carol.userId, 'C', 'online');
    await turn();
    await presence.flush();
    expect(await news(bob.userId, undefined)).toEqual({ [alice.userId]: 'online' });
    const since = presence.stream.current();
    await fixture.get(JoinService).join(carol, roomId);
    await presence.flush();
    // Carol finds Alice, and both others hear of Carol.
    expect(await news(carol.userId, since, [roomId])).toEqual({ [alice.userId]: 'online', [carol.userId]: 'online' });
    expect(await news(bob.userId, since)).toEqual({ [carol.userId]: 'online' });
    await fixture.get(MembershipService).byContent(carol, roomId, carol.userId, { membership: 'leave' });
    const later = presence.stream.current();
    await presence.setByClient(carol.userId, 'C', 'unavailable', undefined);
    await presence.flush();
    expect(await news(bob.userId, later)).toEqual({});
  });

  it('hears other servers, and forgets those of which nothing is heard', async () => {
    const dora = '@dora:elsewhere.org';
    await test.database.write((tx) =>
      tx.run(
        `INSERT INTO current_state_events (event_id, room_id, type, state_key, membership) VALUES (?, ?, 'm.room.member', ?, 'join')`,
        [`$dora${serial}`, roomId, dora],
      ),
    );
    const since = presence.stream.current();
    const online = { state: 'online', lastActiveMs: 1, lastSyncMs: 0, lastFederationMs: 0, statusMsg: 'hi' } as const;
    presence.receive([
      { userId: dora, currentlyActive: true, ...online },
      { userId: alice.userId, currentlyActive: true, ...online },
    ]);
    await presence.flush();
    expect(await news(bob.userId, since)).toEqual({ [dora]: 'online' });
    await clock.advance(31 * 60_000);
    await presence.flush();
    expect(await news(bob.userId, since)).toEqual({ [dora]: 'offline' });
  });

  it('survives a restart: those who were there are, until they fail to come back', async () => {
    const since = presence.stream.current();
    presence.syncing(alice.userId, 'A', 'online');
    await turn();
    await presence.setByClient(alice.userId, 'A', 'online', 'still here');
    await presence.flush();
    const again = await buildEphemeral({ database: await test.reopen(), clock });
    const restarted = again.get(PresenceService);
    expect(restarted.stream.current()).toBeGreaterThan(since);
    expect(await news(bob.userId, since, [], again)).toEqual({ [alice.userId]: 'online' });
    expect(await again.get(PresenceReader).visibleTo(bob.userId, alice.userId)).toMatchObject({
      statusMsg: 'still here',
    });
    await clock.advance(40_000);
    await restarted.flush();
    expect(await news(bob.userId, since, [], again)).toEqual({ [alice.userId]: 'offline' });
    await again.close();
  });

  it('finds who went offline before a restart', async () => {
    presence.syncing(alice.userId, 'A', 'online')();
    await turn();
    await presence.flush();
    const since = presence.stream.current();
    await clock.advance(40_000);
    await presence.flush();
    const again = await buildEphemeral({ database: await test.reopen(), clock });
    expect(await news(bob.userId, since, [], again)).toEqual({ [alice.userId]: 'offline' });
    expect(await news(carol.userId, since, [], again)).toEqual({ [alice.userId]: 'offline' });
    await again.close();
  });

  it('finds who went offline before a restart among any number of strangers', async () => {
    const crowded = await open(clock);
    await crowded.migrate(fixtureMigrations);
    const first = await buildEphemeral({ database: crowded.database, clock });
    const joinedRooms = new Set([await first.room(alice, bob, carol)]);
    const since = first.get(PresenceService).stream.current();
    await first.close();
    const offline = (userId: string, position: number) => [position, userId, 'offline', 0, 0, 0];
    const rows = Array.from({ length: 2_500 }, (_, n) => offline(`@stranger${n}:far.org`, since + 2 + n));
    rows.unshift(offline(alice.userId, since + 1));
    rows.push(offline(carol.userId, since + 2 + rows.length));
    const columns = [
      'stream_id',
      'user_id',
      'state',
      'last_active_ts',
      'last_federation_update_ts',
      'last_user_sync_ts',
    ];
    const database = await crowded.reopen();
    await database.write((tx) => tx.insertMany('presence_stream', columns, rows));
    const again = await buildEphemeral({ database, clock });
    const upTo = again.get(PresenceService).stream.current();
    const told = again.get(PresenceReader).changes({ userId: bob.userId, joinedRooms, freshRooms: [], since, upTo });
    expect(byUser(await told)).toEqual({ [alice.userId]: 'offline', [carol.userId]: 'offline' });
    await again.close();
  });

  it('answers who asks with what is so now', async () => {
    await presence.setByClient(alice.userId, 'A', 'unavailable', 'just now');
    expect(await reader.visibleTo(bob.userId, alice.userId)).toMatchObject({
      state: 'unavailable',
      statusMsg: 'just now',
    });
  });

  it('is seen as it was set while it is being written, too', async () => {
    for (const said of ['first', 'second']) {
      await presence.setByClient(alice.userId, 'A', 'online', said);
      let isOver = false;
      const flushing = presence.flush().finally(() => (isOver = true));
      while (!isOver) {
        expect(await reader.visibleTo(alice.userId, alice.userId)).toMatchObject({ statusMsg: said });
        await turn();
      }
      await flushing;
      expect(await reader.visibleTo(bob.userId, alice.userId)).toMatchObject({ statusMsg: said });
    }
  });

  it('goes to those whom modules name, and brings them whom modules name', async () => {
    const modules = new ModuleDispatcher();
    const router = await buildEphemeral({ database: test.database, clock, modules });
    const service = router.get(PresenceService);
    const told: unknown[] = [];
    const registry = new ModuleRegistry(() => {});
    registry.addModule('test');
    registry.add('test', { timeLimitMs: 5_000, onError: 'deny' }, 'presenceRouter', {
      getUsersForStates: (states) => {
        told.push(...states.map((one) => [one.userId, one.state]));
        const ofAlice = states.filter((one) => one.userId === alice.userId);
        return new Map([
          [carol.userId, states],
          ['@dora:elsewhere.org', ofAlice],
          ['@eve:elsewhere.org', []],
        ]);
      },
      getInterestedUsers: (userId) => new Set(userId === carol.userId ? [alice.userId] : []),
    });
    modules.install(registry.seal());
    const elsewhere: unknown[] = [];
    router.get(EphemeralHooks).subscribe({
      presenceFor: (userIds, states) => void elsewhere.push([userIds, byUser(states)]),
    });
    const since = service.stream.current();
    const woken = router.notifier.wait(carol.userId, { timeoutMs: 1_000 });
    await service.setByClient(alice.userId, 'A', 'online', undefined);
    await service.setByClient(bob.userId, 'B', 'online', undefined);
    await service.flush();
    expect(await woken).toBe('news');
    expect(told).toEqual([
      [alice.userId, 'online'],
      [bob.userId, 'online'],
    ]);
    // Users of other servers as well, each what is for them.
    expect(elsewhere).toEqual([[['@dora:elsewhere.org'], { [alice.userId]: 'online' }]]);
    const alone = { userId: carol.userId, joinedRooms: new Set<string>(), freshRooms: [] };
    const upTo = service.stream.current();
    expect(byUser(await router.get(PresenceReader).changes({ ...alone, since, upTo }))).toEqual({
      [alice.userId]: 'online',
    });
    expect(byUser(await router.get(PresenceReader).changes({ ...alone, since: undefined, upTo }))).toEqual({
      [alice.userId]: 'online',
    });
    expect(
      byUser(await router.get(PresenceReader).changes({ ...alone, userId: '@x:example.org', since, upTo })),
    ).toEqual({});
    await router.close();
  });

  it('is sent whole to those whom a module names, once', async () => {
    const remote: unknown[] = [];
    fixture.get(EphemeralHooks).subscribe({
      presenceFor: (userIds, states) =>
        void remote.push(
          userIds,
          states.some((one) => one.userId === alice.userId),
        ),
    });
    await presence.setByClient(alice.userId, 'A', 'online', undefined);
    await presence.flush();
    const since = presence.stream.current();
    const alone = { userId: carol.userId, joinedRooms: new Set<string>(), freshRooms: [] };
    const woken = fixture.notifier.wait(carol.userId, { timeoutMs: 1_000 });
    await reader.sendLocalPresenceTo([carol.userId, '@dora:elsewhere.org']);
    expect(await woken).toBe('news');
    expect(reader.mayHaveChanged(since)).toBe(true);
    const upTo = presence.stream.current();
    expect(byUser(await reader.changes({ ...alone, since, upTo }))).toMatchObject({ [alice.userId]: 'online' });
    expect(await reader.changes({ ...alone, since: upTo, upTo })).toEqual([]);
    // Whoever reads up to before it, because it has not heard of it yet, is told by the next answer.
    expect(await reader.changes({ ...alone, since, upTo: since })).toEqual([]);
    expect(await news(bob.userId, since)).toEqual({});
    expect(remote).toEqual([['@dora:elsewhere.org'], true]);
  });

  it('followers of its stream read what was set', async () => {
    const since = presence.stream.current();
    await presence.setByClient(alice.userId, 'A', 'online', undefined);
    await presence.flush();
    const rows = await presenceStream.read(test.database, since, presence.stream.current(), 10);
    expect(rows.map((row) => [row.userId, row.state])).toEqual([[alice.userId, 'online']]);
  });

  it('shows nothing where it is switched off', async () => {
    const off = await buildEphemeral({ database: test.database, clock, settings: { presence: { enabled: false } } });
    const service = off.get(PresenceService);
    await service.setByClient(alice.userId, 'A', 'online', 'hello');
    service.syncing(alice.userId, 'A', 'online');
    await service.flush();
    expect(off.get(PresenceReader).mayHaveChanged(0)).toBe(false);
    expect(await news(bob.userId, 0, [roomId], off)).toEqual({});
    expect((await off.get(PresenceReader).visibleTo(bob.userId, alice.userId)).state).toBe('offline');
    await off.close();
  });

  it('refuses a status message that is too long', async () => {
    await expect(presence.setByClient(alice.userId, 'A', 'online', 'x'.repeat(2_000))).rejects.toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
  });

  it('keeps nothing of what somebody said whose account is closed', async () => {
    const { userId } = alice;
    await presence.setByClient(userId, 'A', 'online', 'at lunch');
    await presence.flush();
    await fixture.get(UserHooks).deactivated.afterCommit({ userId, erase: true, byAdmin: false });
    await presence.flush();
    expect(
      await test.database.query('SELECT state, status_msg FROM presence_stream WHERE user_id = ?', [userId]),
    ).toEqual([{ state: 'offline', status_msg: null }]);
  });

  it('is busy only where the server knows that', async () => {
    const { userId } = alice;
    await presence.setByClient(userId, 'A', 'online', undefined);
    await presence.flush();
    await expect(presence.setByClient(userId, 'A', 'busy', 'in a call')).rejects.toMatchObject({
      ...{ status: 400, errcode: 'M_INVALID_PARAM' },
    });
    expect(await reader.visibleTo(userId, userId)).toMatchObject({ state: 'online' });
    expect(await reader.visibleTo(userId, userId)).not.toMatchObject({ statusMsg: 'in a call' });
    const settings = { experimental_features: { msc3026_enabled: true } };
    const other = await buildEphemeral({ database: test.database, clock, settings });
    await other.get(PresenceService).setByClient(userId, 'A', 'busy', 'in a call');
    expect(await other.get(PresenceReader).visibleTo(userId, userId)).toMatchObject({
      ...{ state: 'busy', statusMsg: 'in a call' },
    });
    await other.close();
  });

  describe('of devices that sync by way of another process', () => {
    const tasks: BackgroundTasks[] = [];
    afterEach(async () => {
      for (const some of tasks.splice(0)) await some.stop();
    });

    function processBeside(toWriter: ToWriter): { readonly beside: PresenceElsewhere; stop(): Promise<void> } {
      const config = Config.fromObject({ server_name: 'example.org' });
      const notifier = new Notifier(clock, new InProcessBus(), { instance: 'beside' });
      const writers = new StreamWriters('beside', {}, 'main');
      const streams = new Streams(test.database, notifier, { writers, rpc: toWriter });
      const own = new BackgroundTasks(clock);
      tasks.push(own);
      const invalidations = new Invalidations(notifier);
      const beside = new PresenceElsewhere(streams, clock, config, new SilentLogger(), own, invalidations);
      beside.onModuleInit();
      return { beside, stop: () => own.stop() };
    }
    const device = (deviceId = 'A') => ({ userId: alice.userId, deviceId, state: 'online' }) as const;
    const seen = async (of = fixture): Promise<string> =>
      (await of.get(PresenceReader).visibleTo(bob.userId, alice.userId)).state;
    const told = (to: ToWriter, name: string): number => to.calls.filter((call) => call === name).length;

    it('says it once, and after that only now and then that they are there', async () => {
      const toWriter = new ToWriter(fixture.get(Rpc));
      const { beside } = processBeside(toWriter);
      for (let second = 0; second < 60; second++) {
        const ends = ['A', 'B', 'C'].map((deviceId) => beside.syncing(device(deviceId)));
        await clock.advance(900);
        for (const end of ends) end();
        await clock.advance(100);
        expect(await seen()).toBe('online');
      }
      expect(told(toWriter, 'presence_syncing')).toBe(3);
      // All devices at once, every five seconds.
      expect(told(toWriter, 'presence_seen')).toBeLessThanOrEqual(12);
      // Nobody asks for what is over.
      await clock.advance(10_000);
      const calls = toWriter.calls.length;
      await clock.advance(60_000);
      expect(toWriter.calls.length).toBe(calls);
    });

    it('keeps who syncs online, however long a sync or the time to the next one is, and half a minute longer', async () => {
      const { beside } = processBeside(new ToWriter(fixture.get(Rpc)));
      for (const [syncMs, quietMs] of [
        [45_000, 9_000],
        [2_000, 14_000],
        [1_000, 19_000],
        [30_000, 24_000],
        [500, 28_000],
      ] as const) {
        const end = beside.syncing(device());
        for (const [ms, ended] of [
          [syncMs, end],
          [quietMs, undefined],
        ] as const) {
          for (let passedMs = 0; passedMs < ms; passedMs += 500) {
            await clock.advance(500);
            if ((await seen()) !== 'online') throw new Error(`gone ${passedMs} ms after ${syncMs}, ${quietMs}`);
          }
          ended?.();
        }
      }
      beside.syncing(device())();
      await clock.advance(29_000);
      expect(await seen()).toBe('online');
      await clock.advance(2_000);
      expect(await seen()).toBe('offline');
    });

    it('leaves nobody online by a process that is lost', async () => {
      const { beside, stop } = processBeside(new ToWriter(fixture.get(Rpc)));
      beside.syncing(device());
      await clock.advance(60_000);
      expect(await seen()).toBe('online');
      await stop();
      await clock.advance(24_000);
      expect(await seen()).toBe('online');
      await clock.advance(7_000);
      expect(await seen()).toBe('offline');
    });

    it('tells again what was not heard, and another process that takes the place', async () => {
      const toWriter = new ToWriter(fixture.get(Rpc));
      const { beside } = processBeside(toWriter);
      beside.syncing({ ...device(), state: 'unavailable' })();
      await clock.advance(100);
      expect(await seen()).toBe('unavailable');
      toWriter.isAway = true;
      const end = beside.syncing(device());
      await clock.advance(6_000);
      expect(await seen()).toBe('unavailable');
      toWriter.isAway = false;
      await clock.advance(6_000);
      expect(await seen()).toBe('online');
      const again = await buildEphemeral({ database: await test.reopen(), clock });
      toWriter.writer = again.get(Rpc);
      await clock.advance(60_000);
      expect(await seen(again)).toBe('online');
      // What the user says meanwhile holds until the next sync.
      await again.get(PresenceService).setByClient(alice.userId, 'A', 'unavailable', undefined);
      await clock.advance(20_000);
      expect(await seen(again)).toBe('unavailable');
      end();
      await again.close();
    });

    it('understands one of the version before, which is told of each by itself', async () => {
      const old = new InProcessRpc();
      const heard: unknown[] = [];
      old.handle(defineRpc<unknown, void>('presence_syncing'), async (body) => void heard.push(body));
      const toWriter = new ToWriter(old);
      const { beside } = processBeside(toWriter);
      const end = beside.syncing(device());
      await clock.advance(11_000);
      end();
      beside.syncing(device())();
      await clock.advance(11_000);
      expect(new Set(toWriter.calls)).toEqual(new Set(['presence_syncing']));
      // Two syncs, two rounds while the first went on, and that the second is over.
      expect(heard).toEqual(Array.from({ length: 5 }, () => device()));
    });
  });
});
