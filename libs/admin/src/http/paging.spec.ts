import { queryOf, type QuerySchema } from '@rookery/http';
import { direction, maxPageSize, nextFrom, pageOf, pageParams, searchTerm } from './paging.js';

const refusal = (act: () => unknown): unknown => {
  try {
    act();
  } catch (error) {
    return (error as { errcode?: unknown }).errcode;
  }
  return undefined;
};

const pageQuery = queryOf(pageParams);
const directionQuery = queryOf({ dir: direction });
const nameQuery = queryOf({ name: searchTerm('A name.') });
type Given = Readonly<Record<string, string | string[] | undefined>>;
const read = <T>(schema: QuerySchema<T>, query: Given): T => schema.read({ query });
const page = (query: Given): unknown => pageOf(read(pageQuery, query));

describe('paging of the admin API', () => {
  it('takes the first hundred by default', () => {
    expect(page({})).toEqual({ from: 0, limit: 100 });
    expect(read(directionQuery, {})).toEqual({ dir: 'f' });
  });

  it('reads what is asked for, up to its largest page', () => {
    expect(page({ from: '20', limit: '5' })).toEqual({ from: 20, limit: 5 });
    expect(page({ limit: '999999999' })).toEqual({ from: 0, limit: maxPageSize });
  });

  it.each([{ from: '-1' }, { limit: '-1' }, { from: 'x' }, { limit: '1.5' }, { limit: ['1', '2'] }])(
    'refuses %j',
    (query) => expect(refusal(() => page(query))).toBe('M_INVALID_PARAM'),
  );

  it('names the next page only when there is one', () => {
    expect(nextFrom({ from: 0, limit: 2 }, 3)).toBe(2);
    expect(nextFrom({ from: 1, limit: 2 }, 3)).toBeUndefined();
    expect(nextFrom({ from: 0, limit: 0 }, 3)).toBeUndefined();
  });

  it('refuses other directions, and searches that are endless or for nothing', () => {
    expect(refusal(() => read(directionQuery, { dir: 'up' }))).toBe('M_INVALID_PARAM');
    expect(refusal(() => read(nameQuery, { name: 'a'.repeat(256) }))).toBe('M_INVALID_PARAM');
    expect(refusal(() => read(nameQuery, { name: '' }))).toBe('M_INVALID_PARAM');
    expect(read(nameQuery, {})).toEqual({ name: undefined });
    expect(read(nameQuery, { name: 'A' })).toEqual({ name: 'A' });
  });
});
