/**
 * This process may not do what it was asked for: where several processes share a database, one of them writes. Thrown before
 * anything was done, so that a request that ran into it can be given to that process as it came.
 */
export class OnlyAtWriterError extends Error {
  constructor(what: string) {
    super(`${what}: only the process that writes may do that`);
    this.name = 'OnlyAtWriterError';
  }
}
