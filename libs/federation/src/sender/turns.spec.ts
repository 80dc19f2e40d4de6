import { SendingTurns, type TurnTaker } from './turns.js';

/** Somebody who wants turns and keeps them until told. */
class Taker implements TurnTaker {
  started = 0;
  readonly #ends: (() => void)[] = [];

  constructor(
    readonly isSlow: boolean,
    private readonly log: string[] = [],
    private readonly name = '',
  ) {}

  run(): Promise<void> {
    this.started++;
    this.log.push(this.name);
    return new Promise((resolve) => this.#ends.push(resolve));
  }

  async end(): Promise<void> {
    this.#ends.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe('turns to send', () => {
  it('are given to a bounded number at once, in the order in which they were asked for', async () => {
    const turns = new SendingTurns();
    const log: string[] = [];
    const takers = Array.from({ length: 103 }, (_, i) => new Taker(false, log, `${i}`));
    for (const taker of takers) turns.ask(taker);
    expect(log).toHaveLength(100);
    await takers[50]?.end();
    await takers[3]?.end();
    expect(log.slice(100)).toEqual(['100', '101']);
  });

  it('come round: who asks again waits behind the others', async () => {
    const turns = new SendingTurns();
    const log: string[] = [];
    const busy = Array.from({ length: 99 }, () => new Taker(false));
    for (const taker of busy) turns.ask(taker);
    const [greedy, modest] = [new Taker(false, log, 'greedy'), new Taker(false, log, 'modest')];
    for (const taker of [greedy, greedy, modest]) turns.ask(taker);
    await greedy.end();
    await greedy.end();
    expect(log).toEqual(['greedy', 'greedy', 'modest']);
  });

  it('of quick servers do not wait for slow ones', () => {
    const turns = new SendingTurns();
    const slow = Array.from({ length: 500 }, () => new Taker(true));
    for (const taker of slow) turns.ask(taker);
    const quick = new Taker(false);
    turns.ask(quick);
    expect(quick.started).toBe(1);
    expect(slow.filter(({ started }) => started > 0)).toHaveLength(100);
  });

  it('are waited for at the end', async () => {
    const turns = new SendingTurns();
    const taker = new Taker(false);
    turns.ask(taker);
    let settled = false;
    const waiting = turns.settled().then(() => (settled = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(settled).toBe(false);
    await taker.end();
    await waiting;
  });
});
