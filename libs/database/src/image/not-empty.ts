import { DatabaseError } from '../errors.js';

/** What is said of a database that was to be empty. */
export const notEmpty = (): DatabaseError =>
  new DatabaseError('The database is not empty', 'Give an empty one, or move it away: nothing is written over.');
