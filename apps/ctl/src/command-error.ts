/** A command cannot do what it was asked; the message is the one line that the operator reads. */
export class CommandError extends Error {
  constructor(
    message: string,
    /** What the process exits with: 1 when it failed, 2 when it was called wrongly. */
    readonly exitCode: 1 | 2 = 1,
  ) {
    super(message);
    this.name = 'CommandError';
  }
}
