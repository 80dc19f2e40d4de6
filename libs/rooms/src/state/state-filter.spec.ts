import type { Dialect } from '@rookery/database';
import type { StateFilter } from './state-filter.js';
import { stateFilterSql } from './state-filter.query.js';

const dialect = { name: 'sqlite', anyOf: (column: string) => `${column} IN ?` } as Dialect;
const sqlOf = (types: NonNullable<StateFilter['types']>): ReturnType<typeof stateFilterSql> =>
  stateFilterSql({ types }, dialect);

describe('a filter of state', () => {
  it('has the index searched for few entries of several types', () => {
    const filter = sqlOf([
      ['m.room.history_visibility', ''],
      ['m.room.member', '@a:b'],
    ]);
    expect(filter).toEqual([
      {
        sql: 'type IN ? AND state_key IN ? AND ((type = ? AND state_key IN ?) OR (type = ? AND state_key IN ?))',
        params: [
          ['m.room.history_visibility', 'm.room.member'],
          ['', '@a:b'],
          ...['m.room.history_visibility', [''], 'm.room.member', ['@a:b']],
        ],
      },
    ]);
  });

  it('says once what is wanted of one type', () => {
    expect(sqlOf([...[1, 2].map((n) => ['a', `${n}`] as const)])).toEqual([
      { sql: '(type = ? AND state_key IN ?)', params: ['a', ['1', '2']] },
    ]);
  });

  it('names many entries in one list, and asks for whole types beside it', () => {
    const named = Array.from({ length: 40 }, (_, n) => ['ab'[n % 2]!, `${n}`] as const);
    expect(sqlOf([...named, ['c'], ['c', 'known']])).toEqual([
      { sql: 'type IN ?', params: [['c']] },
      {
        sql: "(type, state_key) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))",
        params: [JSON.stringify(named)],
      },
    ]);
  });

  it('of nothing lets nothing through', () => {
    expect(sqlOf([])).toEqual([{ sql: '1 = 0', params: [] }]);
  });
});
