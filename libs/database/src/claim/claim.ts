import { DatabaseError } from '../errors.js';

/** The right to be the only server on a database. It ends with the process, however that ends. */
export interface DatabaseClaim {
  /**
   * Resolves, with the reason, once another server has the database: this one must stop at once, since each would overlook
   * what the other writes. Also once the database has gone back in time. Never rejects; stays open for ever where that does not happen.
   */
  readonly lost: Promise<DatabaseError>;
  /** Gives it up; safe to call twice. */
  release(): Promise<void>;
}

/** What an attempt finds when somebody else has the claim. */
export interface Held {
  /** Which database, and who has it as far as that can be told. */
  readonly heldBy: string;
}

/** The refusal to be the second server on a database. */
export function heldByAnother(heldBy: string): DatabaseError {
  return new DatabaseError(
    `Another server runs on the database ${heldBy}`,
    'Stop that one first, or give this one a database of its own: two on one database would each overlook what the other writes. Processes of one server need redis.enabled, all of them.',
  );
}
