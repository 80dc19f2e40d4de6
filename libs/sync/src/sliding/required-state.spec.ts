import { RequiredState, type StatePair } from './required-state.js';

const me = '@me:here';
const wanted = (pairs: readonly StatePair[], state: RequiredState = RequiredState.of(pairs)): string[] =>
  [
    ['m.room.create', ''],
    ['m.room.member', me],
    ['m.room.member', '@other:here'],
    ['m.space.child', '!a'],
  ].flatMap(([type = '', key = '']) => (state.matches(type, key, me) ? [`${type} ${key}`] : []));

const create = 'm.room.create ';
const own = `m.room.member ${me}`;
const other = 'm.room.member @other:here';
const child = 'm.space.child !a';

describe('required_state', () => {
  it.each<[string, StatePair[], string[]]>([
    ['nothing', [], []],
    ['one entry', [['m.room.create', '']], [create]],
    ['every key of a type', [['m.room.member', '*']], [own, other]],
    ['the user', [['m.room.member', '$ME']], [own]],
    ['members by need only', [['m.room.member', '$LAZY']], []],
    ['a key of every type', [['*', '']], [create]],
    ['the user everywhere', [['*', '$ME']], [own]],
    ['everything', [['*', '*']], [create, own, other, child]],
    [
      'everything but some',
      [
        ['*', '*'],
        ['m.room.member', '$LAZY'],
      ],
      [create, child],
    ],
    [
      'everything but all but one',
      [
        ['*', '*'],
        ['m.room.member', '$ME'],
        ['m.space.child', '!b'],
      ],
      [create, own],
    ],
    [
      'everything, whatever else is said with wildcards',
      [
        ['*', '*'],
        ['m.space.child', '*'],
      ],
      [create, own, other, child],
    ],
  ])('understands %s', (_, pairs, expected) => {
    expect(wanted(pairs)).toEqual(expected);
  });

  it('says what must be read beside what is named', () => {
    const breadth = (pairs: StatePair[]): string => RequiredState.of(pairs).breadth;
    expect(breadth([['m.room.member', '*']])).toBe('named');
    expect(breadth([['*', '']])).toBe('withoutMembers');
    expect(breadth([['*', '$ME']])).toBe('all');
    expect(breadth([['*', '*']])).toBe('all');
    expect(
      breadth([
        ['*', '*'],
        ['m.room.member', '$LAZY'],
      ]),
    ).toBe('withoutMembers');
    expect(
      RequiredState.of([
        ['m.room.member', '$ME'],
        ['m.space.child', '*'],
      ]).named(me),
    ).toEqual([['m.room.member', me], ['m.space.child']]);
  });

  it('has a key by which it can be compared and made again', () => {
    const a = RequiredState.of([
      ['m.room.create', ''],
      ['m.room.member', '$LAZY'],
    ]);
    const b = RequiredState.of([
      ['m.room.member', '$LAZY'],
      ['m.room.create', ''],
      ['m.room.create', ''],
    ]);
    expect(a.key).toBe(b.key);
    expect(a.key).not.toBe(RequiredState.of([['m.room.create', '']]).key);
    const again = RequiredState.parse(a.key);
    expect([again.key, again.isLazy, wanted([], again)]).toEqual([a.key, true, [create]]);
  });

  it('unites what several lists want, whatever one of them leaves out', () => {
    const bare = RequiredState.of([
      ['*', '*'],
      ['m.room.member', '$LAZY'],
    ]);
    const mine = RequiredState.of([['m.room.member', '$ME']]);
    const both = bare.or(mine);
    expect(wanted([], both)).toEqual([create, own, child]);
    expect([both.isLazy, both.breadth]).toEqual([true, 'withoutMembers']);
    expect(both.key).toBe(mine.or(bare).key);
    expect(RequiredState.parse(both.key).key).toBe(both.key);
    expect(both.or(bare).key).toBe(both.key);
    expect(bare.or(bare)).toBe(bare);
  });
});
