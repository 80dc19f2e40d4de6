import { stateFilterSql } from './state-filter.query.js';

const sqlOf = (types: readonly (readonly [string, string | undefined])[]): ReturnType<typeof stateFilterSql> =>
  stateFilterSql({ types }, (column) => `${column} IN ?`);

describe('a filter of state', () => {
  it('has the index searched for few entries of several types', () => {
    const filter = sqlOf([
      ['m.room.history_visibility', ''],
      ['m.room.member', '@a:b'],
    ]);
    expect(filter).toEqual({
      sql: 'type IN ? AND state_key IN ? AND ((type = ? AND state_key IN ?) OR (type = ? AND state_key IN ?))',
      params: [
        ['m.room.history_visibility', 'm.room.member'],
        ['', '@a:b'],
        ...['m.room.history_visibility', [''], 'm.room.member', ['@a:b']],
      ],
    });
  });

  it.each([
    ['of one type', [['a', '1'] as const, ['a', '2'] as const]],
    ['with all of a type', [['a', '1'] as const, ['b', undefined] as const]],
    ['of many', Array.from({ length: 40 }, (_, n) => ['ab'[n % 2]!, `${n}`] as const)],
  ])('says once what is wanted: %s', (_, types) => {
    expect(sqlOf(types)?.sql).toMatch(/^\(.*\)$/);
  });
});
