import { FakeClock, SeededIds } from './index.js';

describe('FakeClock', () => {
  it('stands still until told', async () => {
    const clock = new FakeClock();
    const [wall, steady] = [clock.nowMs(), clock.monotonicMs()];
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect([clock.nowMs(), clock.monotonicMs()]).toEqual([wall, steady]);
    await clock.advance(1500);
    expect([clock.nowMs(), clock.monotonicMs()]).toEqual([wall + 1500, steady + 1500]);
  });

  it('fires timers in order, at their time, and lets promises run in between', async () => {
    const clock = new FakeClock(0);
    const fired: string[] = [];
    const note = (what: string): void => void fired.push(`${what}@${clock.nowMs()}`);
    clock.after(300, () => note('late'));
    const stopped = clock.after(200, () => note('never'));
    const beat = clock.every(100, () => note('beat'));
    void clock.sleep(150).then(() => {
      note('slept');
      clock.after(10, () => note('chained'));
    });
    stopped.cancel();
    await clock.advance(300);
    beat.cancel();
    await clock.advance(1000);
    expect(fired).toEqual(['beat@100', 'slept@150', 'chained@160', 'beat@200', 'late@300', 'beat@300']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('jumps, as where a machine slept: what fell due meanwhile fires once', async () => {
    const clock = new FakeClock(0);
    const fired: string[] = [];
    const note = (what: string): void => void fired.push(`${what}@${clock.nowMs()}`);
    const beat = clock.every(100, () => note('beat'));
    clock.after(150, () => note('late'));
    clock.after(86_400_001, () => note('not yet'));
    await clock.jump(86_400_000);
    expect(fired.toSorted()).toEqual(['beat@86400000', 'late@86400000']);
    await clock.advance(100);
    beat.cancel();
    expect(fired.slice(2)).toEqual(['not yet@86400001', 'beat@86400100']);
  });

  it('never runs backwards, even when two tests’ helpers move it at once', async () => {
    const clock = new FakeClock(0);
    await Promise.all([clock.advance(50), clock.advance(10)]);
    expect(clock.nowMs()).toBe(50);
  });
});

describe('SeededIds', () => {
  it('repeats itself for a seed and differs between seeds', () => {
    const [a, b, c] = [new SeededIds(7), new SeededIds(7), new SeededIds(8)];
    const first = a.letters(18);
    expect(first).toMatch(/^[a-zA-Z]{18}$/);
    expect(b.letters(18)).toBe(first);
    expect(c.letters(18)).not.toBe(first);
    expect(a.bytes(8).equals(b.bytes(8))).toBe(true);
    expect(a.letters(18)).not.toBe(first);
  });

  it('stays in range and reaches all of it', () => {
    const ids = new SeededIds();
    const seen = new Set(Array.from({ length: 500 }, () => ids.integer(10)));
    expect([...seen].toSorted((x, y) => x - y)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(() => ids.integer(0)).toThrow(RangeError);
  });
});
