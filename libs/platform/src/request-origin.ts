/**
 * A request as services see it: where it came from and which one it is. Headers, query and body stay with the controllers, which
 * hand in what of them is meant.
 */
export interface RequestOrigin {
  /** The id in every log line of this request. */
  readonly requestId: string;
  readonly method: string;
  /** Path with query, as received after the prefixes were normalised to `/_matrix` and `/_synapse`. */
  readonly url: string;
  /** The client's address; behind a proxy the forwarded one, where the listener trusts it. */
  readonly ip: string;
  readonly userAgent: string;
}
