import { Config, type Logger, Metrics } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { budgetPerMinuteMs, ResolutionBudget } from './resolution-budget.js';

describe('what state resolution may take', () => {
  const warned: unknown[] = [];
  let clock: FakeClock;
  let metrics: Metrics;
  let budget: ResolutionBudget;

  beforeEach(() => {
    warned.length = 0;
    clock = new FakeClock();
    metrics = new Metrics('example.org');
    const logger = { warn: (...line: unknown[]) => warned.push(line) } as unknown as Logger;
    budget = new ResolutionBudget(Config.fromObject({ server_name: 'example.org' }), metrics, clock, logger);
  });

  const note = (roomId: string, cpuMs: number): void => budget.note(roomId, { cpuMs, databaseMs: 60_000, groups: 2 });
  /** Whether a room may go on by now. */
  const goesOn = (roomId: string): (() => boolean) => {
    let isReady = false;
    void budget.ready(roomId).then(() => (isReady = true));
    return () => isReady;
  };

  it('is bounded for each room, and others do not wait for it', async () => {
    note('!forks', budgetPerMinuteMs + 1_000);
    const [forks, other] = [goesOn('!forks'), goesOn('!other')];
    await clock.advance(3_000);
    expect([forks(), other()]).toEqual([false, true]);
    expect(warned).toEqual([[expect.any(String), { room_id: '!forks', wait_ms: expect.any(Number) }]]);
    await clock.advance(2_000);
    expect(forks()).toBe(true);
    expect((await metrics.render()).body).toMatch(/rookery_state_resolution_waits_seconds_total\S* 4/);
  });

  it('is given back as time goes by', async () => {
    for (let minute = 0; minute < 5; minute++) {
      note('!busy', budgetPerMinuteMs - 1);
      const ready = goesOn('!busy');
      await clock.advance(0);
      expect(ready()).toBe(true);
      await clock.advance(60_000);
    }
    expect(warned).toEqual([]);
  });

  it('is told of the room that took most of it', async () => {
    note('!one', 2_000);
    note('!two', 1_500);
    note('!two', 1_500);
    await clock.advance(60_000);
    expect((await metrics.render()).body).toMatch(/synapse_state_res_cpu_for_biggest_room_seconds_total\S* 3/);
  });
});
