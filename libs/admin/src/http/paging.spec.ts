import { directionOf, maxPageSize, nextFrom, pageOf, searchTerm } from './paging.js';

const refusal = (act: () => unknown): unknown => {
  try {
    act();
  } catch (error) {
    return (error as { errcode?: unknown }).errcode;
  }
  return undefined;
};

describe('paging of the admin API', () => {
  it('takes the first hundred by default', () => {
    expect(pageOf({ query: {} })).toEqual({ from: 0, limit: 100 });
    expect(directionOf({ query: {} })).toBe('f');
    expect(directionOf({ query: {} }, 'b')).toBe('b');
  });

  it('reads what is asked for, up to its largest page', () => {
    expect(pageOf({ query: { from: '20', limit: '5' } })).toEqual({ from: 20, limit: 5 });
    expect(pageOf({ query: { limit: '999999999' } })).toEqual({ from: 0, limit: maxPageSize });
  });

  it.each([{ from: '-1' }, { limit: '-1' }, { from: 'x' }, { limit: '1.5' }, { limit: ['1', '2'] }])(
    'refuses %j',
    (query) => expect(refusal(() => pageOf({ query }))).toBe('M_INVALID_PARAM'),
  );

  it('names the next page only when there is one', () => {
    expect(nextFrom({ from: 0, limit: 2 }, 3)).toBe(2);
    expect(nextFrom({ from: 1, limit: 2 }, 3)).toBeUndefined();
    expect(nextFrom({ from: 0, limit: 0 }, 3)).toBeUndefined();
  });

  it('refuses other directions and endless searches', () => {
    expect(refusal(() => directionOf({ query: { dir: 'up' } }))).toBe('M_INVALID_PARAM');
    expect(refusal(() => searchTerm({ query: { name: 'a'.repeat(256) } }, 'name'))).toBe('M_INVALID_PARAM');
    for (const query of [{}, { name: '' }]) expect(searchTerm({ query }, 'name')).toBeUndefined();
    expect(searchTerm({ query: { name: 'A' } }, 'name')).toBe('A');
  });
});
