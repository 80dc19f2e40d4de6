import { FakeClock } from '@rookery/testing';
import { Alarm } from '../index.js';

describe('Alarm', () => {
  it('rings at the earliest time it was set to, and once', async () => {
    const clock = new FakeClock(0);
    const rung: number[] = [];
    const alarm = new Alarm(clock, () => rung.push(clock.nowMs()));
    alarm.set(5_000);
    alarm.set(2_000);
    alarm.set(9_000);
    await clock.advance(10_000);
    expect(rung).toEqual([2_000]);
    alarm.set(9_000);
    await clock.advance(1);
    expect(rung).toEqual([2_000, 10_001]);
  });

  it('rings within a day of what is far away, and not at all once it was stopped', async () => {
    const clock = new FakeClock(0);
    let count = 0;
    const alarm = new Alarm(clock, () => count++);
    alarm.set(90 * 86_400_000);
    await clock.advance(86_400_000);
    expect(count).toBe(1);
    alarm.set(clock.nowMs() + 1_000);
    alarm.stop();
    alarm.set(clock.nowMs() + 1_000);
    await clock.advance(5_000);
    expect(count).toBe(1);
  });
});
