import { placeOf } from './database-at.js';

it('tells databases of PostgreSQL apart by name, host, port and what connections begin with', () => {
  const at = (args: object): string => placeOf({ name: 'psycopg2', args: { dbname: 'rookery', host: 'db', ...args } });
  expect(at({})).toBe('rookery at db (PostgreSQL)');
  expect(at({ port: '5432' })).toBe(at({}));
  const others = [{ port: 5433 }, { host: 'db2' }, { dbname: 'state' }, { options: '-csearch_path=second' }];
  expect(new Set([{}, ...others].map(at)).size).toBe(1 + others.length);
  expect(at({ port: 5433 })).toBe('rookery at db:5433 (PostgreSQL)');
});
