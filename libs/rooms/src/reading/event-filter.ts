/**
 * The part of a room event filter that selects events by themselves.
 * @spec client-server-api#filtering
 */
export interface EventFilter {
  /** `*` at any place stands for any text. */
  readonly types?: readonly string[] | undefined;
  readonly notTypes?: readonly string[];
  readonly senders?: readonly string[] | undefined;
  readonly notSenders?: readonly string[];
  readonly containsUrl?: boolean | undefined;
  /** Only events that themselves relate to another in one of these ways (MSC3874). */
  readonly relTypes?: readonly string[] | undefined;
  /** Only events that do not relate to another in one of these ways. */
  readonly notRelTypes?: readonly string[];
  /** Only events to which an event of one of these relation types points (MSC3440). */
  readonly relatedByRelTypes?: readonly string[] | undefined;
  /** Only events to which one of these users points with a relation. */
  readonly relatedBySenders?: readonly string[] | undefined;
}
