import { MatrixError } from '@rookery/matrix-types';
import { SilentLogger } from '@rookery/platform';
import { eventually, FakeClock } from '@rookery/testing';
import { type WorkBatch, WorkLink } from './work-link.js';

describe('WorkLink', () => {
  const make = (
    answer: () => Promise<unknown> = () => Promise.resolve(),
  ): { link: WorkLink<number>; clock: FakeClock; given: WorkBatch<number>[] } => {
    const clock = new FakeClock();
    const given: WorkBatch<number>[] = [];
    const give = (batch: WorkBatch<number>): Promise<unknown> => (given.push(batch), answer());
    const parts = { clock, logger: new SilentLogger(), name: 'one', sizeOf: (item: number) => item, give };
    return { link: new WorkLink(parts), clock, given };
  };
  const itemsOf = (batches: readonly WorkBatch<number>[]): number[] => batches.flatMap(({ items }) => items);

  it('tells everything in order, in one call for all that came while another was under way', async () => {
    let release = (): void => {};
    const { link, given } = make(() => new Promise<void>((resolve) => (release = resolve)));
    link.push(1);
    link.push(2);
    await eventually(() => given.length === 1);
    for (let n = 3; n < 9; n++) link.push(n);
    release();
    await eventually(() => given.length === 2);
    expect(itemsOf(given)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(given.map(({ number }) => number)).toEqual([1, 2]);
  });

  it('repeats a call that failed as it was, before anything else', async () => {
    let failures = 2;
    const { link, clock, given } = make(() => (failures-- > 0 ? Promise.reject(new Error('gone')) : Promise.resolve()));
    link.push(1);
    await eventually(() => given.length === 1);
    link.push(2);
    await eventually(async () => (await clock.advance(1_000), given.length === 4));
    expect(given.map(({ number }) => number)).toEqual([1, 1, 1, 2]);
    expect(itemsOf(given)).toEqual([1, 1, 1, 2]);
  });

  it('leaves out what is too much, and says so', async () => {
    let release = (): void => {};
    const { link, given } = make(() => new Promise<void>((resolve) => (release = resolve)));
    link.push(0);
    await eventually(() => given.length === 1);
    for (let n = 1; n <= 10_001; n++) link.push(n);
    release();
    await eventually(() => given.length === 2);
    expect([given[1]!.isIncomplete, itemsOf([given[1]!])]).toEqual([true, [10_001]]);
  });

  it('leaves out what can never be told, or could not be told for long, and says so, though there is nothing else to tell', async () => {
    const { link, clock, given } = make(() => {
      const [item] = given.at(-1)!.items;
      if (item === 1) return Promise.reject(MatrixError.tooLarge('Too large'));
      return item === 2 ? Promise.reject(new Error('It failed there')) : Promise.resolve();
    });
    link.push(1);
    await eventually(() => given.length === 2);
    link.push(2);
    await eventually(async () => (await clock.advance(1_000), given.length > 12));
    await clock.advance(10_000);
    expect(given.map(({ number, items, isIncomplete }) => [number, items, isIncomplete])).toEqual([
      [1, [1], false],
      [2, [], true],
      ...Array.from({ length: 10 }, () => [3, [2], false]),
      [4, [], true],
    ]);
  });

  it('tells no more at once than a call may hold, and nothing once it is closed', async () => {
    const { link, clock, given } = make();
    for (const size of [15_000, 15_000, 1]) link.push(size);
    await eventually(() => given.length === 2);
    expect(given.map(({ items }) => items)).toEqual([[15_000, 15_000], [1]]);
    link.close();
    link.push(1);
    await clock.advance(10_000);
    expect(given).toHaveLength(2);
  });
});
