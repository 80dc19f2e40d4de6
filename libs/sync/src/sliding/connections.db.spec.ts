import { BackgroundTasks } from '@rookery/platform';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { ConnectionSweep } from './connection-sweep.js';
import {
  deleteObsolete,
  insertConnection,
  insertRooms,
  moveConnection,
  selectRequiredStates,
} from './connections.query.js';
import { expiryMs } from './connections.js';
import { syncMigrations } from './sliding-sync.migration.js';

eachDatabase('stored connections of sliding sync', (open) => {
  const clock = new FakeClock(1_000_000);
  let test: TestDatabase;
  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(syncMigrations);
  });
  afterAll(() => test.close());

  const begin = (key: number): Promise<number> =>
    test.database.write((tx) =>
      insertConnection(
        tx,
        { userId: `@user${key}:a.test`, deviceId: 'D', connId: '' },
        { key, nowMs: clock.nowMs() },
        16,
      ),
    );
  const row = (roomId: string, position: number, state: string) => ({
    ...{ room_id: roomId, position, section: 'join', sent_up_to: null, timeline_limit: 1 },
    ...{ required_state_id: state, told: 0 },
  });

  it('keep what state rooms were asked for as long as a client can go back to it', async () => {
    const key = 1;
    let base = await begin(key);
    await test.database.write((tx) =>
      insertRooms(tx, key, [row('!other', base, 'usual'), row('!a', base, 'usual')], new Map([['[usual]', 'usual']])),
    );
    for (let round = 1; round <= 10; round++) {
      base = await test.database.write(async (tx) => {
        const next = await moveConnection(tx, key, base, clock.nowMs());
        await deleteObsolete(tx, key, base, ['!a']);
        await insertRooms(tx, key, [row('!a', next!, `s${round}`)], new Map([[`[${round}]`, `s${round}`]]));
        return next!;
      });
      const before = round > 1 ? { [`s${round - 1}`]: `[${round - 1}]` } : {};
      expect(Object.fromEntries(await selectRequiredStates(test.database, key))).toEqual({
        ...{ usual: '[usual]', [`s${round}`]: `[${round}]` },
        ...before,
      });
    }
  });

  it('are all swept away once nobody has used them for long', async () => {
    for (let key = 100; key < 335; key++) await begin(key);
    const tasks = new BackgroundTasks(clock);
    const added = jest.spyOn(tasks, 'add');
    new ConnectionSweep(test.database, clock, tasks).onModuleInit();
    await tasks.stop();
    await clock.advance(expiryMs);
    await begin(500);
    await clock.advance(1);
    await added.mock.calls[0]![0].run(new AbortController().signal);
    const left = await test.database.query('SELECT connection_key FROM sliding_sync_connections');
    expect(left).toEqual([{ connection_key: 500 }]);
  });
});
