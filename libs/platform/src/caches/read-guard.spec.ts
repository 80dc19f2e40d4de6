import { ReadGuard } from '../index.js';

describe('ReadGuard', () => {
  it('tells which keys changed since a reading began', () => {
    const guard = new ReadGuard<string>();
    guard.changed('a');
    const first = guard.begin();
    guard.changed('b');
    const second = guard.begin();
    guard.changed('c');
    const current = (reading: typeof first): string[] => ['a', 'b', 'c', 'd'].filter((key) => reading.isCurrent(key));
    expect([current(first), current(second)]).toEqual([
      ['a', 'd'],
      ['a', 'b', 'd'],
    ]);
    guard.changedAll();
    expect([current(first), current(second), current(guard.begin())]).toEqual([[], [], ['a', 'b', 'c', 'd']]);
  });

  it('takes all for changed when too many keys did', () => {
    const guard = new ReadGuard<number>();
    const reading = guard.begin();
    for (let key = 0; key < 10_000; key++) guard.changed(key);
    expect(reading.isCurrent(-1)).toBe(true);
    guard.changed(10_000);
    expect(reading.isCurrent(-1)).toBe(false);
    reading.end();
    reading.end();
    expect(guard.begin().isCurrent(-1)).toBe(true);
  });

  it('takes a key for changed while somebody changes it', () => {
    const guard = new ReadGuard<string>();
    const before = guard.begin();
    const done = guard.changing('a');
    const other = guard.changing('a');
    const during = guard.begin();
    expect([before, during].map((reading) => reading.isCurrent('a'))).toEqual([false, false]);
    done();
    done();
    expect(guard.begin().isCurrent('a')).toBe(false);
    other();
    expect([before, during, guard.begin()].map((reading) => reading.isCurrent('a'))).toEqual([false, false, true]);
  });
});
