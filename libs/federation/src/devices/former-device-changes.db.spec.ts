import type { DeviceListService } from '@rookery/e2ee';
import { BackgroundTasks } from '@rookery/platform';
import { replicationMigrations, saveCursor } from '@rookery/replication';
import { eachDatabase, FakeClock } from '@rookery/testing';
import { deviceListsCursor } from './device-list-news.js';
import { FormerDeviceChanges } from './former-device-changes.js';

eachDatabase('changes of devices of which other servers were told', (open) => {
  it('are forgotten a part at a time, and none of which they may have to be told yet', async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate(replicationMigrations);
    const asked: [after: number, upTo: number][] = [];
    const deviceLists = {
      forgetFormer: async (after: number, upTo: number): Promise<number> => {
        asked.push([after, upTo]);
        return Math.min(after + 100, upTo);
      },
    } as unknown as DeviceListService;
    const former = new FormerDeviceChanges(test.database, clock, deviceLists, new BackgroundTasks(clock));
    await former.forget();
    expect(asked).toEqual([]);
    await test.database.write((tx) => saveCursor(tx, deviceListsCursor, 250));
    await former.forget();
    expect(asked).toEqual([
      [0, 250],
      [100, 250],
      [200, 250],
    ]);
    await former.forget();
    expect(asked).toHaveLength(3);
    await test.close();
  });
});
