/** What is wrong with an event: not JSON that may be used, not the shape of a PDU, or beyond a limit of size. */
export type InvalidEventKind = 'json' | 'shape' | 'tooLarge';

/** The one thing thrown for malformed input, whatever it is. */
export class InvalidEventError extends Error {
  /**
   * @param kind callers answer `tooLarge` with 413, the others with 400
   * @param reason for people; holds no content of the event beyond names of keys
   * @param eventId where it could be computed
   */
  constructor(
    readonly kind: InvalidEventKind,
    readonly reason: string,
    readonly eventId?: string,
  ) {
    super(reason);
    this.name = 'InvalidEventError';
  }
}
