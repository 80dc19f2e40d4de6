import type { Logger } from '@rookery/platform';
import { DatabaseError } from '../errors.js';
import { isOlder } from '../version.js';

const oldest = '12';

/** What a PostgreSQL database says about itself. */
export interface PostgresFacts {
  readonly version: string;
  readonly collate: string;
  readonly ctype: string;
  /** Who orders text: `c` the system's library, `i` ICU, `b` PostgreSQL itself; absent before version 15. */
  readonly provider: string | null;
  /** The locale of ICU or of PostgreSQL itself, which then counts instead of the other two. */
  readonly locale: string | null;
  readonly encoding: string;
  readonly database: string;
  readonly standby: boolean;
}

const quoted = (name: string): string => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

/** The statement that makes a database fit for Rookery. */
export function createStatement(database: string, owner: string): string {
  return `CREATE DATABASE ${quoted(database)} OWNER ${quoted(owner)} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;`;
}

/**
 * Refuses a database that would lose or misread data: another order of text makes indexes wrong as soon as the system's
 * library that defines it changes.
 * @throws DatabaseError
 */
export function checkPostgres(facts: PostgresFacts, allowUnsafeLocale: boolean, user: string, logger: Logger): void {
  const { version, encoding, database } = facts;
  const recreate = `Dump it, make a new one and restore: ${createStatement(database, user)}`;
  if (isOlder(version, oldest)) {
    throw new DatabaseError(`PostgreSQL ${version} is too old`, `Rookery needs PostgreSQL ${oldest} or newer.`);
  }
  if (facts.standby)
    throw new DatabaseError(`The database ${database} is a read-only standby`, 'Connect to the primary server.');
  if (encoding !== 'UTF8')
    throw new DatabaseError(`The database ${database} has the encoding ${encoding} instead of UTF8`, recreate);
  const found = unsuitedLocale(facts);
  if (found === undefined) return;
  const message = `The database ${database} has ${found} instead of 'C'`;
  if (!allowUnsafeLocale) {
    throw new DatabaseError(
      message,
      `${recreate} Or set database.allow_unsafe_locale, and rebuild every index after each system update.`,
    );
  }
  logger.warn(message, { consequence: 'indexes on text may break when the system is updated' });
}

function unsuitedLocale({ collate, ctype, provider, locale }: PostgresFacts): string | undefined {
  // PostgreSQL's own orders never change with the system, and sort as C does.
  if (provider === 'b') return undefined;
  if (provider === 'i') return `the ICU locale '${locale ?? ''}'`;
  const isC = (name: string): boolean => name === 'C' || name === 'POSIX';
  return isC(collate) && isC(ctype) ? undefined : `COLLATE '${collate}' and CTYPE '${ctype}'`;
}
