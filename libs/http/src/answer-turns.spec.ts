import { AnswerTurns, turnTimeoutMs } from './answer-turns.js';

describe('turns at large answers', () => {
  const limits = { ofHolder: 2, altogether: 3, waiting: 3, unreadBytes: 100 };
  const unread = new Map<string, number>();
  let turns: AnswerTurns;
  let log: string[];

  beforeEach(() => {
    unread.clear();
    log = [];
    turns = new AnswerTurns((holder) => unread.get(holder) ?? 0, limits);
  });

  /** Takes a turn; notes when the answer may be made, or was refused. @returns what ends it */
  const take = (holder: string, name: string, nowMs = 0): (() => void) => {
    const { ready, end } = turns.take(holder, nowMs);
    if (ready === undefined) log.push(name);
    else
      ready.then(
        () => log.push(name),
        (error: { status: number }) => log.push(`${name} ${error.status}`),
      );
    return end;
  };
  const nextTurn = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));
  const settled = async (): Promise<void> => {
    for (let turn = 0; turn < 10; turn++) await nextTurn();
  };
  /** Requests that come one after the other, each in a turn of the event loop. */
  const takeEach = async (...names: string[]): Promise<(() => void)[]> => {
    const ends: (() => void)[] = [];
    for (const name of names) {
      ends.push(take(name[0]!, name));
      await nextTurn();
    }
    return ends;
  };

  it('begins one in a turn of the event loop, whoever asks', async () => {
    const ends = ['a1', 'a2', 'b1'].map((name) => take(name[0]!, name));
    expect(log).toEqual(['a1']);
    // What needs not wait for anything is made at once, and makes room in the same turn.
    ends[0]!();
    ends.push(take('c', 'c1'));
    expect(log).toEqual(['a1']);
    const begun: number[] = [];
    for (let turn = 0; turn < 5; turn++) {
      await nextTurn();
      begun.push(log.length);
    }
    expect(begun.every((count, index) => count - (begun[index - 1] ?? 1) <= 1)).toBe(true);
    expect(log).toEqual(['a1', 'a2', 'b1', 'c1']);
  });

  it('lets each have a few, all together some more, in order', async () => {
    const ends = await takeEach('a1', 'a2', 'a3', 'b1', 'b2', 'c1');
    await settled();
    expect(log).toEqual(['a1', 'a2', 'b1']);
    ends[0]!();
    await settled();
    // a3 has waited for a's own turns, b2 and c1 for anybody's.
    expect(log).toEqual(['a1', 'a2', 'b1', 'b2']);
    ends[1]!();
    await settled();
    ends[3]!();
    await settled();
    expect(log).toEqual(['a1', 'a2', 'b1', 'b2', 'c1', 'a3']);
    for (const end of ends) end();
    expect(turns.making).toBe(0);
  });

  it('does not let one who waits in numbers keep others from their turn', async () => {
    const ends = await takeEach('a1', 'a2', 'a3', 'a4', 'a5', 'b1');
    await settled();
    expect(log).toEqual(['a1', 'a2', 'b1']);
    take('c', 'c1');
    ends[0]!();
    ends[1]!();
    await settled();
    expect(log).toContain('c1');
  });

  it('makes nothing more for one who does not read, until that is read', async () => {
    unread.set('a', 100);
    take('a', 'a1');
    take('b', 'b1');
    await settled();
    expect(log).toEqual(['b1']);
    unread.set('a', 99);
    turns.wake('a');
    await settled();
    expect(log).toEqual(['b1', 'a1']);
  });

  it('refuses more than may wait, and who has waited for too long', async () => {
    unread.set('a', 100);
    for (const name of ['a1', 'a2', 'a3']) take('a', name);
    expect(() => take('a', 'a4')).toThrow(expect.objectContaining({ status: 429, errcode: 'M_LIMIT_EXCEEDED' }));
    turns.check(turnTimeoutMs);
    await settled();
    expect(log).toEqual([]);
    turns.check(turnTimeoutMs + 1);
    await settled();
    expect(log).toEqual(['a1 429', 'a2 429', 'a3 429']);
  });

  it('forgets a request whose client has gone while it waited', async () => {
    const ends = await takeEach('a1', 'a2', 'a3', 'a4');
    ends[2]!();
    ends[0]!();
    await settled();
    expect(log).toEqual(['a1', 'a2', 'a3 429', 'a4']);
    expect(turns.making).toBe(2);
  });

  it('forgets nobody who comes again while the last of before are put away', async () => {
    const [first, second] = await takeEach('a1', 'a2');
    let ends: (() => void)[] = [];
    first!();
    // Between what follows the first ending and what follows the second.
    setImmediate(() => (ends = ['a3', 'a4', 'a5'].map((name) => take('a', name))));
    second!();
    await settled();
    ends[0]!();
    await settled();
    expect(log).toEqual(['a1', 'a2', 'a3', 'a4', 'a5']);
  });
});
