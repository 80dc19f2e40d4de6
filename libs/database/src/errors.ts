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
