import type { Database } from '@rookery/database';
import { Lifecycle, SilentLogger } from '@rookery/platform';
import { InProcessBus, Notifier, Streams } from '@rookery/replication';
import { FakeClock } from '@rookery/testing';
import { OwnReads } from './own-reads.js';
import type { ThreadMark } from './push-actions.query.js';

const bob = '@bob:example.org';
const mark = (streamOrdering: number, more: Partial<ThreadMark> = {}): ThreadMark => ({
  ...{ userId: bob, roomId: '!room:example.org', threadId: 'main', streamOrdering },
  ...more,
});

/** What is written goes into a list; the database answers when the test lets it. */
function build() {
  const clock = new FakeClock();
  const written: number[][] = [];
  const answers: ((failure?: Error) => void)[] = [];
  const database = {
    write: async (fn: (tx: object) => Promise<void>) => {
      const rows: number[] = [];
      const exec = async (_: string, [json]: [string]): Promise<void> =>
        void rows.push(...(JSON.parse(json) as { p: number }[]).map((one) => one.p));
      await fn({ dialect: { name: 'sqlite' }, exec });
      const failure = await new Promise<Error | undefined>((resolve) => answers.push(resolve));
      if (failure) throw failure;
      written.push(rows);
    },
  };
  const logger = new SilentLogger();
  const streams = new Streams(database as never as Database, new Notifier(clock, new InProcessBus()));
  const reads = new OwnReads(database as never as Database, clock, logger, new Lifecycle(clock, logger), streams);
  const answer = async (failure?: Error): Promise<void> => {
    await new Promise(setImmediate);
    answers.shift()!(failure);
    await new Promise(setImmediate);
  };
  return { clock, written, answers, answer, reads };
}

describe('what senders have read', () => {
  it('asks nobody to wait of whom nothing is noted', async () => {
    const { reads, answers, clock } = build();
    reads.note(mark(1));
    expect(await reads.settle('@carol:example.org')).toBe(true);
    expect([answers.length, clock.pendingTimers]).toEqual([0, 1]);
  });

  it('is written before an answer also where it was noted while others were being written', async () => {
    const { reads, written, answer } = build();
    reads.note(mark(1));
    const first = reads.settle(bob);
    reads.note(mark(2));
    let isSettled = false;
    const second = reads.settle(bob).then((result) => (isSettled = result));
    await answer();
    expect([written, isSettled]).toEqual([[[1]], false]);
    await answer();
    expect([await first, await second, written]).toEqual([true, true, [[1], [2]]]);
  });

  it('is written later where it was noted while writing took long', async () => {
    const { reads, written, answer, clock } = build();
    reads.note(mark(1));
    await clock.advance(3_000);
    reads.note(mark(2));
    await clock.advance(3_000);
    await answer();
    expect([written, clock.pendingTimers]).toEqual([[[1]], 1]);
    await clock.advance(3_000);
    await answer();
    expect([written, clock.pendingTimers]).toEqual([[[1], [2]], 0]);
  });

  it('is kept when it cannot be written, the newest of each thread, and nobody waits for long', async () => {
    const { reads, written, answer, clock } = build();
    reads.note(mark(1));
    reads.note(mark(2, { threadId: '$t' }));
    const settled = reads.settle(bob);
    reads.note(mark(3));
    await answer(new Error('no'));
    await answer(new Error('no'));
    expect([await settled, written, clock.pendingTimers]).toEqual([false, [], 1]);
    await clock.advance(3_000);
    await answer();
    expect([written, clock.pendingTimers]).toEqual([[[2, 3]], 0]);
  });

  it('is written at once where much waits, and bounded where nothing can be written', async () => {
    const { reads, answers } = build();
    const noted = Array.from({ length: 60_000 }, (_, index) => reads.note(mark(index, { userId: `@${index}:x` })));
    expect(answers).toHaveLength(0);
    await new Promise(setImmediate);
    expect(answers).toHaveLength(1);
    expect(noted.filter(Boolean)).toHaveLength(55_000);
  });

  it('is written when the server stops, and not noted afterwards', async () => {
    const { reads, written, answer, clock } = build();
    reads.note(mark(1));
    const stopped = reads.stop();
    await new Promise(setImmediate);
    await answer();
    await stopped;
    expect([written, reads.note(mark(2)), clock.pendingTimers]).toEqual([[[1]], false, 0]);
  });
});
