import { GroupCommit } from './group-commit.js';

/** A write that the test ends. */
interface Open {
  readonly entries: readonly string[];
  end(error?: Error): void;
}

const turns = async (): Promise<void> => {
  for (let n = 0; n < 20; n++) await Promise.resolve();
};

describe('GroupCommit', () => {
  const open: Open[] = [];
  const timers: { ms: number; then: () => void; cancelled: boolean }[] = [];
  const outcomes: string[] = [];
  let groupCommit: GroupCommit<string>;
  const add = (entry: string): void => {
    groupCommit.add(entry).then(
      () => outcomes.push(`${entry} written`),
      (error: unknown) => outcomes.push(`${entry}: ${String(error)}`),
    );
  };
  const written = (): string[] => open.map(({ entries }) => entries.join(''));

  beforeEach(() => {
    for (const list of [open, timers, outcomes]) list.length = 0;
    groupCommit = new GroupCommit(
      (entries) =>
        new Promise((resolve, reject) => {
          open.push({ entries, end: (error) => (error ? reject(error) : resolve()) });
        }),
      (ms, then) => {
        const timer = { ms, then, cancelled: false };
        timers.push(timer);
        return { cancel: () => void (timer.cancelled = true) };
      },
    );
  });

  it('writes the first at once and what comes meanwhile together', async () => {
    for (const entry of ['a', 'b', 'c']) add(entry);
    expect(written()).toEqual(['a']);
    open[0]!.end();
    await turns();
    expect(written()).toEqual(['a', 'bc']);
    expect(outcomes).toEqual(['a written']);
    open[1]!.end();
    await turns();
    expect(outcomes).toEqual(['a written', 'b written', 'c written']);
    add('d');
    expect(written()).toEqual(['a', 'bc', 'd']);
  });

  it('lets nobody fail because of another', async () => {
    for (const entry of ['a', 'b', 'c', 'd']) add(entry);
    expect(written()).toEqual(['a']);
    open[0]!.end();
    await turns();
    open[1]!.end(new Error('one of them'));
    await turns();
    expect(written()).toEqual(['a', 'bcd', 'b', 'c', 'd']);
    expect(outcomes).toEqual(['a written']);
    open[3]!.end(new Error('mine'));
    open[2]!.end();
    open[4]!.end();
    await turns();
    expect(outcomes.toSorted()).toEqual(['a written', 'b written', 'c: Error: mine', 'd written']);
    add('e');
    expect(written().at(-1)).toBe('e');
  });

  it('goes past a write that takes too long', async () => {
    for (const entry of ['a', 'b']) add(entry);
    expect(timers).toHaveLength(1);
    timers[0]!.then();
    expect(written()).toEqual(['a', 'b']);
    add('c');
    open[1]!.end();
    await turns();
    expect(written()).toEqual(['a', 'b']);
    timers[1]!.then();
    expect(written()).toEqual(['a', 'b', 'c']);
    add('d');
    open[0]!.end();
    open[2]!.end();
    await turns();
    expect(written()).toEqual(['a', 'b', 'c', 'd']);
    expect(timers.map((timer) => timer.cancelled)).toEqual([true, true, true]);
    expect(outcomes).toEqual(['b written', 'a written', 'c written']);
  });

  it('begins another write once enough wait for it, and takes no more together than one should hold', async () => {
    for (let n = 0; n < 100; n++) add('x');
    expect(open.map(({ entries }) => entries.length)).toEqual([1, 4, 8]);
    for (let n = 0; n < 6; n++) {
      open[n]?.end();
      await turns();
    }
    expect(open.map(({ entries }) => entries.length)).toEqual([1, 4, 8, 32, 32, 23]);
    expect(outcomes).toHaveLength(100);
  });
});
