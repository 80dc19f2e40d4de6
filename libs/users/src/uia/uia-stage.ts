import type { RequestOrigin } from '@rookery/platform';
import type { JsonObject } from '@rookery/matrix-types';
import type { Tx } from '@rookery/database';
import type { LimiterName } from '@rookery/http';

/** What a stage is told about the attempt. */
export interface StageAttempt {
  /** The `auth` object of the request, or what a fallback page sent. */
  readonly auth: JsonObject;
  /** The user who has to prove themself; absent where nobody is logged in. */
  readonly userId?: string | undefined;
  readonly request: RequestOrigin;
  /** What an address is proved for; an account that is about to be made, unless told. */
  readonly purpose?: 'password_reset' | undefined;
}

/** One way to prove something: a stage of interactive auth. */
export interface UiaStage {
  readonly type: string;
  /**
   * The limiter of attempts that fail, by address: who has failed too often is not heard. Absent where nothing can be guessed, and
   * nobody else is asked.
   */
  readonly failures?: LimiterName;
  /** What clients need to know to go through it; absent when that is nothing. */
  params?(): object | undefined;
  /**
   * Checks the proof.
   * @returns what was proved, as JSON; kept with the session
   * @throws MatrixError when it does not hold: the client may try again in the same session
   */
  check(attempt: StageAttempt): Promise<unknown>;
  /**
   * Writes what belongs to the stage's success in the same transaction, once per session.
   * @returns whether the stage counts
   */
  accept?(tx: Tx, result: unknown): Promise<boolean>;
  /** Takes back what {@link accept} wrote: the operation came to nothing. */
  release?(tx: Tx, result: unknown): Promise<void>;
}
