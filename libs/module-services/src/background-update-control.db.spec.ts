import { type BackgroundUpdate, BackgroundUpdates, type Database, databaseMigrations } from '@rookery/database';
import type { BackgroundUpdateControllerCallbacks, UpdateSlot } from '@rookery/module-api';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { Config } from '@rookery/platform';
import { eachDatabase, eventually, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { BackgroundUpdateControl } from './background-update-control.js';

eachDatabase('Modules that decide when background updates run', (open) => {
  let test: TestDatabase;
  let db: Database;
  beforeEach(async () => {
    test = await open();
    db = test.database;
    await test.migrate(databaseMigrations);
  });
  afterEach(() => test.close());

  const make = () => {
    const [clock, logger] = [new FakeClock(), new RecordingLogger()];
    let batches = 0;
    const update = {
      name: 'move',
      run: () => Promise.resolve({ items: 1, progress: {}, finished: ++batches > 0 }),
    } as unknown as BackgroundUpdate;
    const updates = new BackgroundUpdates({ database: db, clock, logger, updates: [update] });
    const dispatcher = new ModuleDispatcher();
    const config = Config.fromObject({ server_name: 'home.test' });
    const control = new BackgroundUpdateControl(config, clock, dispatcher, updates);
    const decide = (onUpdate: BackgroundUpdateControllerCallbacks['onUpdate']): void => {
      const registry = new ModuleRegistry(() => {});
      registry.addModule('m');
      registry.add('m', { onError: 'deny', timeLimitMs: undefined }, 'backgroundUpdateController', { onUpdate });
      dispatcher.install(registry.seal());
      control.refresh();
    };
    return { clock, logger, updates, dispatcher, control, decide, batches: () => batches };
  };

  /** A module that holds back what it is asked for until it is told otherwise; how often it was asked, and got back what it gave. */
  const holding = () => {
    const held = Promise.withResolvers<UpdateSlot>();
    const counts = { asked: 0, released: 0 };
    const onUpdate = (): Promise<UpdateSlot> => (counts.asked++, held.promise);
    const letGo = (): void => held.resolve({ durationMs: 20, release: () => void counts.released++ });
    return { onUpdate, letGo, counts };
  };

  it('keep no stop waiting, neither before a batch nor after it', async () => {
    const { onUpdate, letGo, counts } = holding();
    const { updates, decide, batches, logger } = make();
    decide(onUpdate);
    await updates.queue('move');
    await eventually(() => counts.asked > 0);
    await updates.stop();
    expect([batches(), logger.messages('error'), counts.asked]).toEqual([0, [], 1]);
    letGo();
    await eventually(() => counts.released === 1);

    const next = make();
    next.decide(() => ({ durationMs: 20, release: () => new Promise(() => undefined) }));
    next.updates.start();
    await eventually(() => next.batches() > 0);
    await next.updates.stop();
    expect(next.logger.messages('error')).toEqual([]);
  });

  it('hold nothing back any more once others are in force, or none', async () => {
    for (const isReplaced of [true, false]) {
      const { onUpdate, letGo, counts } = holding();
      const { updates, dispatcher, control, decide, batches, logger } = make();
      decide(onUpdate);
      await updates.queue('move');
      await eventually(() => counts.asked > 0);
      let released = 0;
      if (isReplaced) decide(() => ({ durationMs: 20, release: () => void released++ }));
      else {
        dispatcher.install(new ModuleRegistry(() => {}).seal());
        control.refresh();
      }
      await eventually(() => batches() > 0);
      letGo();
      await eventually(() => counts.released === 1);
      await updates.stop();
      expect([batches(), counts.asked, released, logger.messages('error')]).toEqual([1, 1, isReplaced ? 1 : 0, []]);
    }
  });
});
