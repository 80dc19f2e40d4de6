import { databaseMigrations, StreamIds } from '@rookery/database';
import { Lifecycle, SilentLogger } from '@rookery/platform';
import { InProcessBus, Notifier, replicationMigrations, saveCursor } from '@rookery/replication';
import { eachDatabase, eventually, FakeClock } from '@rookery/testing';
import { DuePushers } from './due-pushers.js';
import type { PushDelivery } from './push-delivery.js';
import type { PushersService } from './pushers.service.js';

eachDatabase('what is to be pushed', (open) => {
  it('is looked at in steps, however much has come since', async () => {
    const [clock, logger] = [new FakeClock(), new SilentLogger()];
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations]);
    const notifier = new Notifier(clock, new InProcessBus());
    const ids = await StreamIds.load(test.database, 'events');
    notifier.track(ids);
    await test.database.write(async (tx) => {
      await saveCursor(tx, 'push_pushers', 100);
      await ids.allocateIn(tx, 550);
    });
    const asked: number[][] = [];
    const pushers = {
      any: true,
      onSet: () => undefined,
      usersToPush: async (after: number, upTo: number) => {
        asked.push([after, upTo]);
        return [];
      },
    };
    const delivery = { open: () => true, tell: () => undefined };
    const due = new DuePushers(
      ...([test.database, notifier, clock, logger, new Lifecycle(clock, logger)] as const),
      ...([pushers as unknown as PushersService, delivery as unknown as PushDelivery] as const),
    );
    await due.start();
    await eventually(() => asked.at(-1)?.[1] === ids.current());
    await due.stop();
    const ends = [100, 300, 500, ids.current()];
    expect(asked).toEqual(ends.slice(1).map((end, index) => [ends[index], end]));
    notifier.close();
    await test.close();
  });
});
