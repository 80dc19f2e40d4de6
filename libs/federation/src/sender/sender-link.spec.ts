import { SilentLogger } from '@rookery/platform';
import { eventually, FakeClock } from '@rookery/testing';
import type { Outgoing } from './outgoing.js';
import type { SenderBatch } from './sender-calls.js';
import { SenderLink } from './sender-link.js';

const typing = (n: number): Outgoing => ({
  ...{ kind: 'typing', servers: ['far.test'] },
  news: { roomId: `!${n}`, userId: '@a:home.test', typing: true },
});

describe('SenderLink', () => {
  const make = (
    answer: () => Promise<unknown> = () => Promise.resolve(),
  ): { link: SenderLink; clock: FakeClock; given: SenderBatch[] } => {
    const clock = new FakeClock();
    const given: SenderBatch[] = [];
    const give = (batch: SenderBatch): Promise<unknown> => (given.push(batch), answer());
    return { link: new SenderLink({ clock, logger: new SilentLogger(), name: 'one', give }), clock, given };
  };
  const roomsOf = (batches: readonly SenderBatch[]): string[] =>
    batches.flatMap(({ outgoing }) => outgoing.map((one) => (one.kind === 'typing' ? one.news.roomId : one.kind)));

  it('tells everything in order, in one call for all that came while another was under way', async () => {
    let release = (): void => {};
    const { link, given } = make(() => new Promise<void>((resolve) => (release = resolve)));
    link.push(typing(1));
    link.push(typing(2));
    await eventually(() => given.length === 1);
    for (let n = 3; n < 9; n++) link.push(typing(n));
    release();
    await eventually(() => given.length === 2);
    expect(roomsOf(given)).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => `!${n}`));
    expect(given.map(({ number }) => number)).toEqual([1, 2]);
  });

  it('repeats a call that failed as it was, before anything else', async () => {
    let failures = 2;
    const { link, clock, given } = make(() => (failures-- > 0 ? Promise.reject(new Error('gone')) : Promise.resolve()));
    link.push(typing(1));
    await eventually(() => given.length === 1);
    link.push(typing(2));
    await eventually(async () => (await clock.advance(1_000), given.length === 4));
    expect(given.map(({ number }) => number)).toEqual([1, 1, 1, 2]);
    expect(roomsOf(given)).toEqual(['!1', '!1', '!1', '!2']);
  });

  it('leaves out what is too much, and says so', async () => {
    let release = (): void => {};
    const { link, given } = make(() => new Promise<void>((resolve) => (release = resolve)));
    link.push(typing(0));
    await eventually(() => given.length === 1);
    for (let n = 1; n <= 10_001; n++) link.push(typing(n));
    release();
    await eventually(() => given.length === 2);
    expect([given[1]!.isIncomplete, roomsOf([given[1]!])]).toEqual([true, ['!10001']]);
  });

  it('tells of signs of life together, a moment later, and of nothing once it is closed', async () => {
    const { link, clock, given } = make();
    for (let n = 0; n < 100; n++) link.life(`s${n % 3}.test`);
    await clock.advance(200);
    await eventually(() => given.length === 1);
    expect(given[0]!.outgoing).toEqual([{ kind: 'life', servers: ['s0.test', 's1.test', 's2.test'] }]);
    link.life('s4.test');
    link.close();
    link.push(typing(1));
    await clock.advance(10_000);
    expect(given).toHaveLength(1);
  });
});
