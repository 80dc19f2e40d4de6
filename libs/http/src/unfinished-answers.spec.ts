import {
  gatheredAtOnceBytes,
  type UnfinishedAnswer,
  UnfinishedAnswers,
  unfinishedTimeoutMs,
} from './unfinished-answers.js';

describe('answers of modules that are gathered', () => {
  const piece = gatheredAtOnceBytes + 1;
  const limits = { ofHolder: 3 * piece, altogether: 5 * piece };
  let unfinished: UnfinishedAnswers;
  let log: string[];
  beforeEach(() => {
    unfinished = new UnfinishedAnswers(limits);
    log = [];
  });

  /** Takes a piece; notes when more may come, or that it was refused. */
  const take = (answer: UnfinishedAnswer, name: string, bytes = piece, nowMs = 0): void => {
    const room = answer.take(bytes, nowMs);
    if (room === undefined) log.push(name);
    else
      room.then(
        () => log.push(`${name} later`),
        (error: { status: number }) => log.push(`${name} ${error.status}`),
      );
  };
  const taken = async (): Promise<string[]> => {
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
    return log.splice(0);
  };

  it('go on one by one, the oldest first, while somebody has too much of them', async () => {
    const [first, second, third] = [1, 2, 3].map(() => unfinished.begin('a'));
    for (const [answer, name] of [
      [first!, 'first'],
      [second!, 'second'],
      [third!, 'third'],
    ] as const)
      take(answer, name);
    expect(await taken()).toEqual(['first', 'second', 'third']);
    take(third!, 'third');
    take(second!, 'second');
    for (let i = 0; i < 9; i++) take(first!, 'first');
    expect(await taken()).toEqual(Array.from({ length: 9 }, () => 'first'));
    // Others are not held up by it, as far as there is room for all.
    const other = unfinished.begin('b');
    first!.end();
    take(other, 'other');
    // What is left are two pieces of each: the second is the oldest, and no room for what the third may bring.
    expect(await taken()).toEqual(['other', 'second later']);
    second!.end();
    expect(await taken()).toEqual(['third later']);
    third!.end();
    other.end();
    expect(unfinished.altogether).toBe(0);
  });

  it('go on one by one, too, while all have too much together', async () => {
    const each = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => ({ name, answer: unfinished.begin(name) }));
    for (const { name, answer } of each) take(answer, name);
    expect(await taken()).toEqual(['a', 'b', 'c', 'd', 'e']);
    take(each[1]!.answer, 'b');
    each[2]!.answer.end();
    take(each[0]!.answer, 'a');
    expect(await taken()).toEqual(['a']);
    each[0]!.answer.end();
    expect(await taken()).toEqual(['b later']);
    each[3]!.answer.end();
    expect(await taken()).toEqual(['f later']);
  });

  it('never wait while they are small', async () => {
    take(unfinished.begin('a'), 'large', 100 * piece);
    for (let i = 0; i < 3; i++) take(unfinished.begin('a'), 'small', gatheredAtOnceBytes);
    expect(await taken()).toEqual(['large', 'small', 'small', 'small']);
  });

  it('find no more room than there is, however many wait for it', async () => {
    const all = Array.from({ length: 20 }, () => unfinished.begin('a'));
    for (const answer of all) take(answer, 'more');
    expect(await taken()).toHaveLength(3);
    for (const answer of all.slice(0, 3)) answer.end();
    expect(await taken()).toEqual(['more later']);
    // With what was promised to it.
    expect(unfinished.altogether).toBe(18 * piece);
  });

  it('are refused where there was no room for too long, and for nobody', async () => {
    const [first, second] = [unfinished.begin('a'), unfinished.begin('a')];
    take(first, 'first', 4 * piece);
    take(second, 'second', piece, 5_000);
    unfinished.check(unfinishedTimeoutMs + 5_000);
    expect(await taken()).toEqual(['first']);
    unfinished.check(unfinishedTimeoutMs + 5_001);
    expect(await taken()).toEqual(['second 429']);
    expect(unfinished.altogether).toBe(4 * piece);
    expect(() => second.take(1, 0)).toThrow(expect.objectContaining({ status: 429 }));
    first.end();
    first.end();
    expect(unfinished.altogether).toBe(0);
    expect(() => first.take(1, 0)).toThrow(expect.objectContaining({ status: 429 }));
  });
});
