import { MatrixError } from '@rookery/matrix-types';
import { Metrics } from '@rookery/platform';
import { FakeClock, RecordingLogger } from '@rookery/testing';
import { InboundEdus } from './inbound-edus.js';

describe('InboundEdus', () => {
  const make = (): { edus: InboundEdus; clock: FakeClock; logger: RecordingLogger } => {
    const clock = new FakeClock();
    const logger = new RecordingLogger();
    return { edus: new InboundEdus(clock, logger, new Metrics('home.test')), clock, logger };
  };

  it('hands EDUs to their handlers in order, one after the other', async () => {
    const { edus, clock } = make();
    const seen: string[] = [];
    edus.register('m.a', async (origin, content) => {
      seen.push(`begin ${origin} ${String(content['n'])}`);
      await clock.sleep(5);
      seen.push(`end ${String(content['n'])}`);
    });
    edus.register('m.b', (_, content) => void seen.push(`b ${String(content['n'])}`));
    const work = edus.deliver('o.test', [
      { type: 'm.a', content: { n: 1 } },
      { type: 'm.unknown', content: {} },
      { type: 'm.b', content: { n: 2 } },
      { type: 'm.a', content: { n: 3 } },
    ]);
    await clock.advance(20);
    await work;
    expect(seen).toEqual(['begin o.test 1', 'end 1', 'b 2', 'begin o.test 3', 'end 3']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('goes on after one that fails', async () => {
    const { edus, logger, clock } = make();
    let good = 0;
    edus.register('m.throws', () => {
      throw new Error('at once');
    });
    edus.register('m.rejects', () => Promise.reject(new Error('later')));
    edus.register('m.good', () => void good++);
    const types = ['m.throws', 'm.rejects', 'm.good'];
    await edus.deliver(
      'o.test',
      types.map((type) => ({ type, content: {} })),
    );
    expect(good).toBe(1);
    expect(logger.messages('warn')).toHaveLength(2);
    expect(clock.pendingTimers).toBe(0);
  });

  it('goes on after one that takes too long, and tells it so', async () => {
    const { edus, clock, logger } = make();
    let given: AbortSignal | undefined;
    let good = 0;
    edus.register('m.slow', (_, __, signal) => {
      given = signal;
      return new Promise<never>(() => undefined);
    });
    edus.register('m.good', () => void good++);
    const work = edus.deliver('o.test', [
      { type: 'm.slow', content: {} },
      { type: 'm.good', content: {} },
    ]);
    await clock.advance(9_999);
    expect([good, given?.aborted]).toEqual([0, false]);
    await clock.advance(1);
    await work;
    expect([good, given?.aborted]).toEqual([1, true]);
    expect(logger.messages('warn')).toHaveLength(1);
  });

  it('says when something that must arrive did not, or was stored', async () => {
    const { edus, clock } = make();
    const failing: Record<string, unknown> = {
      'm.broken': new Error('the disk is full'),
      'm.wrong': new MatrixError(400, 'M_BAD_JSON', 'no message'),
      'm.later': new MatrixError(503, 'M_UNKNOWN', 'not now'),
    };
    for (const [type, error] of Object.entries(failing)) {
      edus.register(type, () => Promise.reject(error as Error), { mustArrive: true });
      edus.register(`${type}.news`, () => Promise.reject(error as Error));
    }
    edus.register('m.slow', () => new Promise<never>(() => undefined), { mustArrive: true });
    edus.register('m.stored', () => Promise.resolve(true), { mustArrive: true });
    edus.register('m.known', () => Promise.resolve(false), { mustArrive: true });
    edus.register('m.stored.news', () => Promise.resolve(true));
    const deliver = async (...types: string[]): Promise<string> => {
      const work = edus.deliver(
        'o.test',
        types.map((type) => ({ type, content: {} })),
      );
      await clock.advance(10_000);
      const { haveArrived, haveStored } = await work;
      return `${haveArrived ? 'arrived' : 'again'}${haveStored ? ', stored' : ''}`;
    };
    expect(await deliver('m.wrong', 'm.broken.news', 'm.later.news', 'm.unknown')).toBe('arrived');
    expect(await deliver('m.broken', 'm.wrong')).toBe('again');
    expect(await deliver('m.later', 'm.stored')).toBe('again, stored');
    expect(await deliver('m.slow')).toBe('again');
    expect(await deliver('m.known', 'm.stored.news')).toBe('arrived');
    expect(await deliver('m.stored', 'm.known')).toBe('arrived, stored');
  });

  it('has one handler for each type', () => {
    const { edus } = make();
    edus.register('m.a', () => undefined);
    expect(() => edus.register('m.a', () => undefined)).toThrow('two handlers');
  });
});
