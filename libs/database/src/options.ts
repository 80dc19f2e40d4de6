import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { DatabaseError, errorText } from './errors.js';

/** One file on this machine. */
export interface SqliteOptions {
  readonly name: 'sqlite3';
  /** Path of the file; its folder is made when it is missing. */
  readonly path: string;
}

/** A PostgreSQL server. `postgres`, `pg` and the field's `psycopg2` mean the same. */
export interface PostgresOptions {
  readonly name: 'postgres' | 'pg' | 'psycopg2';
  /** What the settings call it, for what is said of it; `database` unless told otherwise. */
  readonly setting?: string | undefined;
  /** `postgres://user:password@host:port/database?sslmode=…`, instead of or besides `args`; `args` win. */
  readonly url?: string | undefined;
  /**
   * Connection parameters under the names of libpq (`user`, `password`, `dbname`, `host`, `port`, `sslmode`,
   * `sslrootcert`, `sslcert`, `sslkey`, `application_name`, `connect_timeout`, `options`), and the pool's `cp_min` and `cp_max`.
   */
  readonly args?: Readonly<Record<string, unknown>> | undefined;
  /** Accept a database whose collation is not C. Indexes on text may break when the system's C library is updated. */
  readonly allowUnsafeLocale?: boolean | undefined;
  /** Open a new connection after so many transactions; 0 means never. */
  readonly txnLimit?: number | undefined;
}

export type DatabaseOptions = SqliteOptions | PostgresOptions;

/** How to reach a PostgreSQL server, worked out from {@link PostgresOptions}. */
export interface PostgresTarget {
  readonly host: string;
  readonly port: number;
  readonly database: string | undefined;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly poolMin: number;
  readonly poolMax: number;
  /** What to try, in order: certificates and checks, or `false` for a plain connection. */
  readonly tls: readonly (TlsChoice | false)[];
  readonly applicationName: string;
  readonly connectTimeoutMs: number;
  readonly serverOptions: string | undefined;
  /** What the settings call it. */
  readonly setting: string;
}

export interface TlsChoice {
  readonly rejectUnauthorized: boolean;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** Set where the certificate's name is not looked at. */
  readonly checkServerIdentity?: () => undefined;
}

const knownArgs = new Set(
  `user password dbname database host hostaddr port sslmode sslrootcert sslcert sslkey application_name connect_timeout options
   cp_min cp_max cp_reconnect cp_openfun cp_noisy keepalives keepalives_idle keepalives_interval keepalives_count client_encoding
   target_session_attrs`.split(/\s+/),
);
const defaultPoolMax = 10;
const maxPoolMax = 1000;

const mainSetting = 'database';

type Section = Readonly<Record<string, unknown>>;

/** Arguments of a connection, and what the settings call the section in which they are. */
interface Args {
  readonly setting: string;
  readonly values: Section;
}

/**
 * Reads the settings' section `database`, or another one like it: `{name: sqlite3 | psycopg2, args: {…}, allow_unsafe_locale, txn_limit}`.
 * A relative SQLite path is left as it is.
 * @throws DatabaseError naming the setting and what was expected
 */
export function parseDatabaseOptions(section: Section, setting = mainSetting): DatabaseOptions {
  const { name } = section;
  const args = section['args'] ?? {};
  if (!isSection(args)) throw new DatabaseError(`${setting}.args must be a mapping`);
  if (name === 'sqlite3' || name === 'sqlite') {
    const path = args['database'] ?? section['path'] ?? section['database_path'];
    if (typeof path !== 'string' || path === '')
      throw new DatabaseError(`${setting}.args.database must be the path of a file`);
    return { name: 'sqlite3', path };
  }
  if (name !== 'psycopg2' && name !== 'postgres' && name !== 'pg') {
    throw new DatabaseError(`${setting}.name is ${JSON.stringify(name)}`, 'Expected sqlite3 or psycopg2 (PostgreSQL).');
  }
  const { url, allow_unsafe_locale: unsafe = false, txn_limit: txnLimit = 0 } = section;
  if (url !== undefined && typeof url !== 'string') throw new DatabaseError(`${setting}.url must be text`);
  if (typeof unsafe !== 'boolean') throw new DatabaseError(`${setting}.allow_unsafe_locale must be true or false`);
  if (typeof txnLimit !== 'number' || !Number.isInteger(txnLimit) || txnLimit < 0) {
    throw new DatabaseError(`${setting}.txn_limit must be a whole number, 0 or more`);
  }
  return { name, setting, url, args, allowUnsafeLocale: unsafe, txnLimit };
}

/** Looks at everything that can be wrong before anybody connects. @throws DatabaseError for a value that cannot be used */
export function checkDatabaseOptions(options: DatabaseOptions): void {
  if (options.name !== 'sqlite3') postgresTarget(options);
}

/** @throws DatabaseError for a value that cannot be used */
export function postgresTarget(options: PostgresOptions): PostgresTarget {
  const { setting = mainSetting, url } = options;
  const args: Args = { setting, values: { ...(url !== undefined && fromUrl(url, setting)), ...options.args } };
  const unknown = Object.keys(args.values).filter((name) => !knownArgs.has(name));
  if (unknown.length > 0) {
    throw new DatabaseError(
      `${setting}.args.${unknown[0]} is not known`,
      `Known are: ${[...knownArgs].sort().join(', ')}.`,
    );
  }
  const host = text(args, 'host') ?? text(args, 'hostaddr') ?? 'localhost';
  const poolMax = count(args, 'cp_max', defaultPoolMax, 1, maxPoolMax);
  return {
    host,
    port: count(args, 'port', 5432, 1, 65_535),
    database: text(args, 'dbname') ?? text(args, 'database') ?? text(args, 'user'),
    user: text(args, 'user'),
    password: text(args, 'password'),
    // One for reads, one for writes.
    poolMax: Math.max(poolMax, 2),
    poolMin: Math.min(count(args, 'cp_min', 1, 0, maxPoolMax), poolMax),
    tls: tlsChoices(args, host),
    applicationName: text(args, 'application_name') ?? 'rookery',
    connectTimeoutMs: count(args, 'connect_timeout', 30, 0, 3600) * 1000,
    serverOptions: text(args, 'options'),
    setting,
  };
}

function fromUrl(url: string, setting: string): Section {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new DatabaseError(`${setting}.url cannot be read`, 'Expected postgres://user:password@host:port/database.');
  }
  if (parsed.protocol !== 'postgres:' && parsed.protocol !== 'postgresql:') {
    throw new DatabaseError(`${setting}.url must begin with postgres://`);
  }
  const parts: Record<string, unknown> = Object.fromEntries(parsed.searchParams);
  if (parsed.hostname) parts['host'] = decodeURIComponent(parsed.hostname).replace(/^\[(.*)\]$/, '$1');
  if (parsed.port) parts['port'] = Number(parsed.port);
  if (parsed.username) parts['user'] = decodeURIComponent(parsed.username);
  if (parsed.password) parts['password'] = decodeURIComponent(parsed.password);
  if (parsed.pathname.length > 1) parts['dbname'] = decodeURIComponent(parsed.pathname.slice(1));
  return parts;
}

function tlsChoices(args: Args, host: string): (TlsChoice | false)[] {
  const mode = text(args, 'sslmode') ?? 'prefer';
  const files = {
    ...file(args, 'sslrootcert', 'ca'),
    ...file(args, 'sslcert', 'cert'),
    ...file(args, 'sslkey', 'key'),
  };
  const anyName = { checkServerIdentity: (): undefined => undefined };
  switch (mode) {
    case 'disable':
      return [false];
    case 'allow':
    case 'prefer': {
      const local =
        host.startsWith('/') || host === 'localhost' || (isIP(host) === 4 && host.startsWith('127.')) || host === '::1';
      return local ? [false] : [{ rejectUnauthorized: false, ...files }, false];
    }
    case 'require':
      return [{ rejectUnauthorized: files.ca !== undefined, ...files, ...anyName }];
    case 'verify-ca':
      return [{ rejectUnauthorized: true, ...files, ...anyName }];
    case 'verify-full':
      return [{ rejectUnauthorized: true, ...files }];
    default:
      throw new DatabaseError(
        `${args.setting}.args.sslmode is ${JSON.stringify(mode)}`,
        'Expected disable, allow, prefer, require, verify-ca or verify-full.',
      );
  }
}

function file(args: Args, name: string, as: 'ca' | 'cert' | 'key'): { ca?: string; cert?: string; key?: string } {
  const path = text(args, name);
  if (path === undefined || path === 'system') return {};
  try {
    return { [as]: readFileSync(path, 'utf8') };
  } catch (error) {
    throw new DatabaseError(`${args.setting}.args.${name}: ${errorText(error)}`, undefined, { cause: error });
  }
}

function text(args: Args, name: string): string | undefined {
  const value = args.values[name];
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return String(value);
  throw new DatabaseError(`${args.setting}.args.${name} must be text`);
}

function count(args: Args, name: string, otherwise: number, least: number, most: number): number {
  const value = args.values[name] ?? otherwise;
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isInteger(number) || number < least || number > most) {
    throw new DatabaseError(`${args.setting}.args.${name} must be a whole number from ${least} to ${most}`);
  }
  return number;
}

function isSection(value: unknown): value is Section {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
