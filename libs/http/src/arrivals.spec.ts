import { NetworkArrivals, arrivalsPerTurn } from './arrivals.js';

const nextTurn = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));

describe('requests that come at once', () => {
  it('are begun in order, so many in a turn of the event loop, those that come meanwhile behind them', async () => {
    const arrivals = new NetworkArrivals(() => 0);
    const begun: number[] = [];
    const counts: number[] = [];
    const count = arrivalsPerTurn * 3 + 1;
    for (let i = 0; i < count; i++) arrivals.add(() => begun.push(i));
    expect([begun.length, arrivals.size]).toEqual([arrivalsPerTurn, count - arrivalsPerTurn]);
    for (let turn = 0; turn < 6; turn++) {
      if (turn === 1) arrivals.add(() => begun.push(count));
      counts.push(begun.length);
      await nextTurn();
    }
    expect(begun).toEqual(Array.from({ length: count + 1 }, (_, i) => i));
    for (const [turn, before] of counts.entries())
      expect((counts[turn + 1] ?? begun.length) - before).toBeLessThanOrEqual(arrivalsPerTurn);
    expect(arrivals.size).toBe(0);
  });

  it('are begun in the next turn where those before them took long', async () => {
    let nowMs = 0;
    const arrivals = new NetworkArrivals(() => nowMs);
    let begun = 0;
    for (let i = 0; i < 6; i++)
      arrivals.add(() => {
        begun++;
        nowMs += 3;
      });
    for (const count of [2, 4, 6]) {
      expect(begun).toBe(count);
      await nextTurn();
    }
  });

  it('are begun at once where others have had their turn', async () => {
    const arrivals = new NetworkArrivals(() => 0);
    for (let turn = 0; turn < 3; turn++) {
      let begun = 0;
      for (let i = 0; i < arrivalsPerTurn; i++) arrivals.add(() => begun++);
      expect(begun).toBe(arrivalsPerTurn);
      await nextTurn();
    }
  });
});
