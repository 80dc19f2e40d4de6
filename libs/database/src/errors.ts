/**
 * The database cannot be used as it is: unreachable, of the wrong version, damaged, refused. `message` is one line for the
 * operator, `hint` says how to mend it.
 */
export class DatabaseError extends Error {
  constructor(
    message: string,
    readonly hint?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'DatabaseError';
  }
}

/** The driver's code of an error: an SQLSTATE, `SQLITE_…` or a system error such as `ECONNREFUSED`. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : undefined;
}

/** The text of anything that was thrown. */
export function errorText(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(errorText).join(', ');
  return error instanceof Error ? error.message : String(error);
}

/** Whether a statement failed because a row with the same key is already there. */
export function isUniqueViolation(error: unknown): boolean {
  const code = errorCode(error);
  return code === '23505' || code === 'SQLITE_CONSTRAINT_UNIQUE' || code === 'SQLITE_CONSTRAINT_PRIMARYKEY';
}

// By class of SQLSTATE: connection, conflict, resources, shutdown, system. Besides them a standby that takes no writes yet, a
// time limit for idle transactions, and a lock that was not to be had. A statement that took too long may do so every time.
const passingStates = /^(08|40|53|58)...$|^57P0.$|^25006$|^25P03$|^55P03$/;
const passingCodes =
  /^SQLITE_(BUSY|LOCKED|FULL|IOERR|NOMEM|CANTOPEN|READONLY|PROTOCOL)|^(ECONN|ETIMEDOUT|EPIPE|EHOST|ENET|ENOTFOUND|EAI_AGAIN|EMFILE|ENFILE)/;
/** What PostgreSQL's driver says, without a code, of a connection that is gone. */
export const brokenTexts =
  /^(Connection terminated|Client has encountered a connection error|Connection ended unexpectedly|Query read timeout)/;
const passingTexts = /^(timeout exceeded when trying to connect|Cannot use a pool after calling end)/;

/** Errors of this lib's databases: elsewhere a refused connection may be to anybody. */
const transients = new WeakSet<object>();

/** Says of an error that it will pass; gives it back. */
export function passing<E extends object>(error: E): E {
  transients.add(error);
  return error;
}

function passes(error: unknown): boolean {
  const code = errorCode(error);
  if (code !== undefined) return passingStates.test(code) || passingCodes.test(code);
  const text = errorText(error);
  return brokenTexts.test(text) || passingTexts.test(text);
}

/** Remembers of an error of a driver whether it says nothing about what was asked; gives it back. */
export function noted(error: unknown): unknown {
  return typeof error === 'object' && error !== null && passes(error) ? passing(error) : error;
}

/**
 * Whether something failed because the database could not do it just now, whatever it was: it is away, busy or full. The same
 * may succeed later; nothing of it was kept, unless the connection broke at the very end of a transaction that cannot be
 * asked after (`happened` of `WriteOptions`).
 * @param error as a `Database` threw it
 */
export function isTransient(error: unknown): boolean {
  return typeof error === 'object' && error !== null && transients.has(error);
}

/**
 * How to log that something failed that is tried again: a database that is away, or a process that has lost its place at it, is no mistake of
 * the server. @param error as a `Database` threw it
 */
export const failureLevel = (error: unknown): 'warn' | 'error' => (isTransient(error) ? 'warn' : 'error');

/** Whether something failed because there is no room left where the database lies. @param error as a `Database` threw it */
export function isStorageFull(error: unknown): boolean {
  const code = errorCode(error);
  return isTransient(error) && (code === '53100' || code === 'SQLITE_FULL');
}
