import { Destinations, federationClientMigrations } from '@rookery/federation-client';
import { BackgroundTasks, Config, Lifecycle, SilentLogger } from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock, SeededIds } from '@rookery/testing';
import { federationMigrations } from '../migrations/index.js';
import { Strangers } from './strangers.js';

const dayMs = 86_400_000;

eachDatabase('servers that could not be reached', (open) => {
  it('are forgotten after a month, but for those with which anything was ever shared', async () => {
    const clock = new FakeClock(1_000 * dayMs);
    const test = await open(clock);
    await test.migrate([...federationClientMigrations, ...federationMigrations]);
    const logger = new SilentLogger();
    const destinations = new Destinations(
      test.database,
      Config.fromObject({ server_name: 'here.test' }),
      clock,
      new SeededIds(1),
      logger,
      new Invalidations(new Notifier(clock, new InProcessBus())),
    );
    const old = Array.from({ length: 1_100 }, (_, n) => `s${n}.test`);
    const triedTs = clock.nowMs() - 31 * dayMs;
    await test.database.write(async (tx) => {
      const columns = [
        'destination',
        'failure_ts',
        'retry_last_ts',
        'retry_interval',
        'last_successful_stream_ordering',
      ];
      await tx.insertMany('destinations', columns, [
        ...old.map((name) => [name, triedTs, triedTs, dayMs, null]),
        ['known.test', triedTs, triedTs, dayMs, 7],
        ['lately.test', triedTs, clock.nowMs() - dayMs, dayMs, null],
        ['waiting.test', triedTs, triedTs, dayMs, null],
      ]);
      await tx.insertMany(
        'destination_rooms',
        ['destination', 'room_id', 'stream_ordering'],
        [['waiting.test', '!r', 9]],
      );
    });
    expect((await destinations.state('s0.test')).failingSinceTs).toBe(triedTs);
    const lifecycle = new Lifecycle(clock, logger);
    new Strangers(test.database, clock, destinations, lifecycle, new BackgroundTasks(clock));
    await lifecycle.start();
    // Soon after a start: there may be one every night.
    await clock.advance(3_600_000);
    await eventually(async () => (await destinations.state('s0.test')).failingSinceTs === undefined);
    const rows = () => test.database.query('SELECT destination FROM destinations');
    await eventually(async () => (await rows()).length === 3);
    await lifecycle.stop();
    const left = await test.database.query('SELECT destination FROM destinations ORDER BY destination');
    expect(left).toEqual(['known.test', 'lately.test', 'waiting.test'].map((destination) => ({ destination })));
    expect((await destinations.state('s0.test')).failingSinceTs).toBeUndefined();
    await test.close();
  });
});
