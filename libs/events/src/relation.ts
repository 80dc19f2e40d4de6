import { isJsonObject } from '@rookery/matrix-types';

/** What an event says about another one. */
export interface Relation {
  /** The event related to. */
  readonly eventId: string;
  /** `m.thread`, `m.replace`, `m.annotation`, `m.reference`… */
  readonly type: string;
  /** For annotations. */
  readonly key: string | undefined;
}

/** Whether a content's value can be an id, or a key: what is not cannot be stored, nor found in an index. */
export const isIdLike = (value: unknown): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= 255 && !value.includes('\0');

/**
 * Reads `m.relates_to`; `undefined` when there is none of use. A plain reply is not a relation of this kind.
 * @spec client-server-api#forming-relationships-between-events
 */
export function relationOf(content: Readonly<Record<string, unknown>>): Relation | undefined {
  const relatesTo = content['m.relates_to'];
  if (!isJsonObject(relatesTo)) return undefined;
  const { event_id: eventId, rel_type: type, key } = relatesTo;
  if (!isIdLike(eventId) || !isIdLike(type)) return undefined;
  return { eventId, type, key: isIdLike(key) ? key : undefined };
}
