import { parseDatabaseOptions } from './index.js';
import { postgresTarget } from './options.js';
import { numberPlaceholders } from './postgres/placeholders.js';
import { StatementNames } from './postgres/statement-names.js';
import { isOlder } from './version.js';

describe('parseDatabaseOptions', () => {
  it('reads what other servers’ files say', () => {
    expect(parseDatabaseOptions({ name: 'sqlite3', args: { database: '/data/homeserver.db' } })).toEqual({
      name: 'sqlite3',
      path: '/data/homeserver.db',
    });
    const args = {
      user: 'u',
      password: 'p',
      dbname: 'd',
      host: 'h',
      port: 5433,
      cp_min: 5,
      cp_max: 10,
      keepalives_idle: 10,
    };
    expect(parseDatabaseOptions({ name: 'psycopg2', txn_limit: 10_000, allow_unsafe_locale: true, args })).toEqual({
      name: 'psycopg2',
      setting: 'database',
      url: undefined,
      args,
      allowUnsafeLocale: true,
      txnLimit: 10_000,
    });
  });

  it.each([
    [{ name: 'mysql' }, /database.name is "mysql"/],
    [{}, /database.name/],
    [{ name: 'sqlite3' }, /database.args.database/],
    [{ name: 'sqlite3', args: [] }, /database.args must be a mapping/],
    [{ name: 'psycopg2', txn_limit: -1 }, /txn_limit/],
    [{ name: 'psycopg2', allow_unsafe_locale: 'yes' }, /allow_unsafe_locale/],
    [{ name: 'psycopg2', url: 5 }, /url/],
  ])('refuses %j', (section, message) => {
    expect(() => parseDatabaseOptions(section)).toThrow(message);
  });
});

describe('postgresTarget', () => {
  it('has sensible defaults', () => {
    const target = postgresTarget({ name: 'pg', args: { user: 'rook' } });
    expect(target).toMatchObject({
      host: 'localhost',
      port: 5432,
      database: 'rook',
      poolMin: 1,
      poolMax: 10,
      tls: [false],
    });
  });

  it('joins an address and arguments; arguments win', () => {
    const url = 'postgresql://u%40x:p%2Fq@db.example:6000/name%20d?sslmode=disable&application_name=other';
    expect(
      postgresTarget({ name: 'pg', url, args: { dbname: 'real', port: '6001', cp_max: 3, cp_min: 9 } }),
    ).toMatchObject({
      host: 'db.example',
      port: 6001,
      user: 'u@x',
      password: 'p/q',
      database: 'real',
      applicationName: 'other',
      poolMin: 3,
      poolMax: 3,
      tls: [false],
    });
    expect(postgresTarget({ name: 'pg', url: 'postgres://[::1]:5/d' }).host).toBe('::1');
  });

  it.each([
    ['/var/run/postgresql', undefined, [false]],
    ['127.0.0.1', 'prefer', [false]],
    ['db', undefined, [{ rejectUnauthorized: false }, false]],
    ['db', 'verify-full', [{ rejectUnauthorized: true }]],
  ])('chooses encryption for %s with sslmode %s', (host, sslmode, expected) => {
    expect(postgresTarget({ name: 'pg', args: { host, ...(sslmode && { sslmode }) } }).tls).toEqual(expected);
  });

  it('checks the certificate of sslmode require only where it is given authorities', () => {
    const [require] = postgresTarget({ name: 'pg', args: { host: 'db', sslmode: 'require' } }).tls;
    expect(require).toMatchObject({ rejectUnauthorized: false });
    const [verify] = postgresTarget({
      name: 'pg',
      args: { host: 'db', sslmode: 'verify-ca', sslrootcert: import.meta.filename },
    }).tls;
    expect(verify).toMatchObject({ rejectUnauthorized: true });
    expect(verify && verify.ca).toContain('postgresTarget');
  });

  it.each([
    [{ sslmode: 'maybe' }, /sslmode is "maybe"/],
    [{ sslrootcert: '/nowhere/ca.pem' }, /sslrootcert/],
    [{ pasword: 'x' }, /database.args.pasword is not known/],
    [{ port: 70_000 }, /port must be a whole number from 1 to 65535/],
    [{ cp_max: 0 }, /cp_max/],
    [{ user: {} }, /user must be text/],
  ])('refuses %j', (args, message) => {
    expect(() => postgresTarget({ name: 'pg', args })).toThrow(message);
  });
  it('names the setting in which it was read', () => {
    const options = parseDatabaseOptions({ name: 'psycopg2', args: { port: 0 } }, 'databases.state');
    expect(() => postgresTarget(options as never)).toThrow(/^databases\.state\.args\.port must be/);
  });
  it.each(['mysql://x', 'not an address'])('refuses the address %s', (url) => {
    expect(() => postgresTarget({ name: 'pg', url })).toThrow(/database.url/);
  });
});

describe('numberPlaceholders', () => {
  it.each([
    ['SELECT ? + ?', 'SELECT $1 + $2'],
    ["SELECT '?', 'it''s ?', ?", "SELECT '?', 'it''s ?', $1"],
    ['SELECT "a?""b", ? -- why?\n, ?', 'SELECT "a?""b", $1 -- why?\n, $2'],
    ['SELECT /* ? \n ? */ ?', 'SELECT /* ? \n ? */ $1'],
    ['SELECT 1', 'SELECT 1'],
  ])('%s', (sql, expected) => {
    expect(numberPlaceholders(sql)).toBe(expected);
  });
});

describe('StatementNames', () => {
  it('names what comes often, always alike, and not without end', () => {
    const names = new StatementNames();
    const uses = Array.from({ length: 6 }, () => names.prepare('SELECT ?').name);
    expect(uses.slice(0, 3)).toEqual([undefined, undefined, undefined]);
    expect(uses[3]).toBeDefined();
    expect(new Set(uses.slice(3)).size).toBe(1);
    const all = new Set<string | undefined>();
    for (let i = 0; i < 2000; i++) for (let use = 0; use < 5; use++) all.add(names.prepare(`SELECT ${i}`).name);
    expect(all.size).toBeLessThan(1000);
    names.forget();
    expect(names.prepare('SELECT ?').name).toBeUndefined();
  });
});

describe('isOlder', () => {
  it.each([
    ['3.26.9', '3.27', true],
    ['3.27', '3.27.0', false],
    ['3.9', '3.27', true],
    ['10.23', '11', true],
    ['18.4 (Debian 18.4-1)', '11', false],
    ['19beta1', '11', false],
  ])('%s than %s: %s', (version, than, expected) => {
    expect(isOlder(version, than)).toBe(expected);
  });
});
