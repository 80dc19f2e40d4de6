import { Metrics } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { OriginTurns } from './origin-turns.js';

describe('turns of what other servers cause', () => {
  let clock: FakeClock;
  let turns: OriginTurns;
  const done: string[] = [];
  beforeEach(() => {
    clock = new FakeClock();
    turns = new OriginTurns(clock, new Metrics('home.test'));
    done.length = 0;
  });

  /** Work that goes on until it is told to end, having used so much CPU time. */
  interface Work {
    readonly hasBegun: () => boolean;
    readonly end: (cpuMs?: number) => Promise<void>;
  }
  function begin(origin: string, roomId?: string): Work {
    let hasBegun = false;
    let end = (): void => undefined;
    const held = new Promise<void>((resolve) => (end = resolve));
    const over = turns.take({ origins: () => [origin], ...(roomId !== undefined && { roomId }) }, async (turn) => {
      turn.with([origin]);
      hasBegun = true;
      await held;
      done.push(origin);
    });
    return {
      hasBegun: () => hasBegun,
      end: async (cpuMs = 0) => {
        clock.cpuMs += cpuMs;
        end();
        await over;
        await nextTurn();
      },
    };
  }
  const use = (origin: string, cpuMs: number, roomId?: string): Promise<void> => begin(origin, roomId).end(cpuMs);
  const many = (origin: string, count: number, roomId?: string): Work[] =>
    Array.from({ length: count }, () => begin(origin, roomId));
  const begun = (works: readonly Work[]): number => works.filter((work) => work.hasBegun()).length;

  it('come at once while there are places', async () => {
    const works = many('a.test', 30);
    await nextTurn();
    expect(begun(works)).toBe(12);
    for (const work of works) await work.end();
    expect(done).toHaveLength(30);
  });

  it('come first to whoever has used the least, whatever came before', async () => {
    for (const origin of ['a.test', 'b.test', 'c.test']) await use(origin, 10);
    await use('dear.test', 60);
    const held = many('a.test', 12);
    const dear = many('dear.test', 5);
    const cheap = begin('new.test');
    await nextTurn();
    expect(begun([...dear, cheap])).toBe(0);
    await held[0]!.end();
    expect([begun(dear), cheap.hasBegun()]).toEqual([0, true]);
    await held[1]!.end();
    expect(begun(dear)).toBe(1);
  });

  it('are few at once of those that use much more than the others', async () => {
    for (let n = 0; n < 8; n++) await use(`${n}.test`, 10);
    await use('dear.test', 2_000);
    const dear = many('dear.test', 10);
    await nextTurn();
    expect(begun(dear)).toBe(2);
    // And no few of the others: nobody waits for the dear one.
    const cheap = Array.from({ length: 8 }, (_, n) => begin(`${n}.test`));
    await nextTurn();
    expect(begun(cheap)).toBe(8);
    for (const work of dear) await work.end();
    expect(done.filter((origin) => origin === 'dear.test')).toHaveLength(11);
  });

  it('are many at once where all use much', async () => {
    await use('only.test', 2_000);
    await clock.advance(1_000);
    const works = many('only.test', 20);
    await nextTurn();
    expect(begun(works)).toBe(12);
  });

  it('are given without regard to what was long ago', async () => {
    for (let n = 0; n < 8; n++) await use(`${n}.test`, 10);
    await use('dear.test', 2_000);
    await clock.advance(120_000);
    await use('other.test', 10);
    const held = many('other.test', 12);
    const first = begin('dear.test');
    const second = begin('other.test');
    await held[0]!.end();
    expect([first.hasBegun(), second.hasBegun()]).toEqual([true, false]);
  });

  it('are paid for in equal parts by all that is under way', async () => {
    const [one, two] = [begin('a.test'), begin('b.test')];
    clock.cpuMs += 100;
    await one.end();
    await two.end(100);
    const held = many('c.test', 12);
    // 50 and 150 ms, and d has used 100.
    await held[0]!.end();
    const d = begin('d.test');
    for (const work of held.slice(1)) await work.end();
    await d.end(100);
    const again = many('c.test', 12);
    const waiting = [begin('b.test'), begin('d.test'), begin('a.test')];
    await nextTurn();
    for (const [n, expected] of [
      [0, [false, false, true]],
      [1, [false, true, true]],
      [2, [true, true, true]],
    ] as const) {
      await again[n]!.end();
      expect(waiting.map((work) => work.hasBegun())).toEqual(expected);
    }
  });

  it('come late to a room that costs much, whoever sends into it', async () => {
    for (let n = 0; n < 8; n++) await use(`${n}.test`, 10);
    await use('dear.test', 2_000, '!forks');
    const held = many('0.test', 12);
    const poisoned = begin('new.test', '!forks');
    const other = begin('1.test', '!other');
    await held[0]!.end();
    expect([poisoned.hasBegun(), other.hasBegun()]).toEqual([false, true]);
    await held[1]!.end();
    expect(poisoned.hasBegun()).toBe(true);
  });

  it('of a room come as early as to the one of its servers that has used the least', async () => {
    for (let n = 0; n < 8; n++) await use(`${n}.test`, 10);
    await use('dear.test', 2_000);
    const origins = new Set(['dear.test']);
    const held = many('0.test', 12);
    let hasBegun = false;
    const over = turns.take({ roomId: '!a', origins: () => origins }, async () => void (hasBegun = true));
    const other = begin('1.test');
    origins.add('new.test');
    await held[0]!.end();
    await over;
    expect(hasBegun).toBe(true);
    await other.end();
  });

  it('are not held up by work that waits for something', async () => {
    const held = many('silent.test', 12);
    const other = begin('a.test');
    await nextTurn();
    expect(other.hasBegun()).toBe(false);
    await clock.advance(1_000);
    expect(other.hasBegun()).toBe(true);
    for (const work of held) await work.end();
    await other.end();
    expect(clock.pendingTimers).toBe(0);
  });

  it('do not get lost when work fails', async () => {
    const failing = Array.from({ length: 20 }, () =>
      turns.run('a.test', () => Promise.reject(new Error('no'))).catch(() => 'failed'),
    );
    expect(new Set(await Promise.all(failing))).toEqual(new Set(['failed']));
    await use('b.test', 0);
    expect(done).toEqual(['b.test']);
  });

  it('are as long as others can wait, by what an event of the room has cost', async () => {
    expect(turns.eventsAtOnce('!a')).toBe(50);
    await use('a.test', 1, '!a');
    expect(turns.eventsAtOnce('!a')).toBe(20);
    await use('a.test', 30, '!b');
    expect(turns.eventsAtOnce('!b')).toBe(10);
  });

  it('are told to operators: who costs the most, and how long was waited', async () => {
    const metrics = new Metrics('home.test');
    turns = new OriginTurns(clock, metrics);
    for (let n = 0; n < 12; n++) await use(`${n}.test`, 100 + n);
    const { body: text } = await metrics.render();
    const lines = text.split('\n').filter((line) => line.startsWith('rookery_federation_origin_cpu_share{'));
    expect(lines).toHaveLength(10);
    expect(lines[0]).toContain('origin_server_name="11.test"');
    expect(Number(lines[0]!.split(' ')[1])).toBeCloseTo(0.0111, 4);
    expect(text).toContain('rookery_federation_turn_wait_seconds_count');
  });
});
