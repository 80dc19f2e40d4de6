import { WriterPositions } from './writer-positions.js';

const at = (text: string): WriterPositions => WriterPositions.parse(text)!;

/** The rows, of three writers up to position 6, that are read. */
const rows = (positions: WriterPositions): string[] =>
  [1, 2, 3].flatMap((writer) =>
    [0, 1, 2, 3, 4, 5, 6]
      .filter((position) => positions.includes(writer, position))
      .map((position) => `${writer}:${position}`),
  );

/** Every position of three writers with a base and positions ahead of it up to 5. */
const all = [0, 2, 4].flatMap((base) =>
  [0, 3, 5].flatMap((a) =>
    [0, 4].flatMap((b) => [
      WriterPositions.at(base).advance(1, a).advance(2, b),
      WriterPositions.at(base).advance(3, a),
    ]),
  ),
);

describe('WriterPositions', () => {
  it('is written and read again, and as a plain number where nobody is ahead', () => {
    expect(String(WriterPositions.at(42))).toBe('42');
    expect(String(WriterPositions.at(42).advance(3, 50).advance(1, 45))).toBe('m42~1.45~3.50');
    for (const positions of all) expect(String(at(String(positions)))).toBe(String(positions));
    // Who is not ahead of everybody needs no mention.
    expect(String(at('m42~1.42~2.43'))).toBe('m42~2.43');
  });

  it.each([
    '',
    'm',
    '-1',
    '1.5',
    'm5~',
    'm5~1',
    'm5~1.',
    'm5~a.6',
    '99999999999999999999',
    'm1~1.99999999999999999999',
  ])('refuses %j', (text) => {
    expect(WriterPositions.parse(text)).toBeUndefined();
  });

  it('knows what is read of whom', () => {
    const positions = at('m10~2.15');
    expect([positions.of(1), positions.of(2), positions.max]).toEqual([10, 15, 15]);
    expect([positions.includes(1, 11), positions.includes(2, 15), positions.includes(2, 16)]).toEqual([
      false,
      true,
      false,
    ]);
  });

  it('unites and intersects as the sets of rows that are read do', () => {
    for (const a of all) {
      for (const b of all) {
        const [inA, inB] = [new Set(rows(a)), new Set(rows(b))];
        expect(new Set(rows(a.union(b)))).toEqual(new Set([...inA, ...inB]));
        expect(new Set(rows(a.intersection(b)))).toEqual(new Set([...inA].filter((row) => inB.has(row))));
        expect(a.isWithin(b)).toBe([...inA].every((row) => inB.has(row)));
      }
    }
  });

  it('goes on and never back', () => {
    const positions = at('m10~2.15');
    expect(String(positions.advance(2, 14))).toBe('m10~2.15');
    expect(String(positions.advance(1, 12))).toBe('m10~1.12~2.15');
    expect(String(positions.settle(9))).toBe('m10~2.15');
    // A writer that was lost with position 13 in hand: nobody can write up to there any more.
    expect(String(positions.settle(13))).toBe('m13~2.15');
    expect(String(positions.settle(15))).toBe('15');
  });
});
