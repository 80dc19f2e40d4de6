import { MatrixError } from '@rookery/matrix-types';

/** Whether something failed because it is refused: asking again would change nothing, unlike where a room is full, or another server away. */
export const isRefusal = (error: unknown): error is MatrixError =>
  MatrixError.is(error) && error.status < 500 && error.status !== 429;
