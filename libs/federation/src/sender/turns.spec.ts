import { FakeClock } from '@rookery/testing';
import { setImmediate as nextTurn } from 'node:timers/promises';
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

/** Lets turns begin, some in each turn of the event loop. */
async function begun(): Promise<void> {
  for (let turn = 0; turn < 100; turn++) await nextTurn();
}

describe('turns to send', () => {
  it('are given to a bounded number at once, in the order in which they were asked for', async () => {
    const turns = new SendingTurns(new FakeClock());
    const log: string[] = [];
    const takers = Array.from({ length: 503 }, (_, i) => new Taker(false, log, `${i}`));
    for (const taker of takers) turns.ask(taker);
    await begun();
    expect(log).toHaveLength(500);
    await takers[50]?.end();
    await takers[3]?.end();
    await begun();
    expect(log.slice(500)).toEqual(['500', '501']);
  });

  it('come round: who asks again waits behind the others', async () => {
    const turns = new SendingTurns(new FakeClock());
    const log: string[] = [];
    const busy = Array.from({ length: 499 }, () => new Taker(false));
    for (const taker of busy) turns.ask(taker);
    const [greedy, modest] = [new Taker(false, log, 'greedy'), new Taker(false, log, 'modest')];
    for (const taker of [greedy, greedy, modest]) turns.ask(taker);
    await begun();
    await greedy.end();
    await greedy.end();
    await begun();
    expect(log).toEqual(['greedy', 'greedy', 'modest']);
  });

  it('of quick servers do not wait for slow ones', async () => {
    const turns = new SendingTurns(new FakeClock());
    const slow = Array.from({ length: 500 }, () => new Taker(true));
    for (const taker of slow) turns.ask(taker);
    const quick = new Taker(false);
    turns.ask(quick);
    await begun();
    expect(quick.started).toBe(1);
    expect(slow.filter(({ started }) => started > 0)).toHaveLength(100);
  });

  it('do not wait for a server that has only now fallen silent', async () => {
    const clock = new FakeClock();
    const turns = new SendingTurns(clock);
    const silent = Array.from({ length: 1_250 }, () => new Taker(false));
    const living = new Taker(false);
    for (const taker of [...silent, living]) turns.ask(taker);
    await begun();
    await clock.advance(499);
    expect(silent.filter(({ started }) => started > 0)).toHaveLength(500);
    await clock.advance(1);
    await begun();
    expect(silent.filter(({ started }) => started > 0)).toHaveLength(1_000);
    expect(living.started).toBe(0);
    await clock.advance(500);
    await begun();
    expect(living.started).toBe(1);
    // Those that are late have no place any more that would become free.
    const more = Array.from({ length: 500 }, () => new Taker(false));
    for (const taker of more) turns.ask(taker);
    for (const taker of silent.slice(0, 10)) await taker.end();
    await begun();
    expect(more.filter(({ started }) => started > 0)).toHaveLength(249);
  });

  it('are taken by a bounded number of silent servers', async () => {
    const clock = new FakeClock();
    const turns = new SendingTurns(clock);
    const silent = Array.from({ length: 2_000 }, () => new Taker(false));
    for (const taker of silent) turns.ask(taker);
    for (let second = 0; second < 60; second++) {
      await begun();
      await clock.advance(1_000);
    }
    expect(silent.filter(({ started }) => started > 0)).toHaveLength(1_500);
    await silent[0]!.end();
    await begun();
    expect(silent.filter(({ started }) => started > 0)).toHaveLength(1_501);
  });

  it('begin some at a time, so that answers that are there do not wait for all others', async () => {
    const turns = new SendingTurns(new FakeClock());
    const log: string[] = [];
    const takers = Array.from({ length: 100 }, (_, i) => new Taker(false, log, `${i}`));
    for (const taker of takers) turns.ask(taker);
    const steps: number[] = [];
    for (let turn = 0; turn < 6; turn++) {
      steps.push(log.length);
      await nextTurn();
    }
    expect(steps).toEqual([20, 40, 60, 80, 100, 100]);
    expect(log).toEqual(takers.map((_, i) => `${i}`));
  });

  it('are waited for at the end', async () => {
    const turns = new SendingTurns(new FakeClock());
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
