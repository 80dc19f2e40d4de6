import { likeText, type SqlValue } from '@rookery/database';

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

const likePattern = (pattern: string): string => likeText(pattern).replaceAll('*', '%');

function typeCondition(
  column: string,
  types: readonly string[],
  params: SqlValue[],
  anyOf: (column: string) => string,
): string {
  const exact = types.filter((type) => !type.includes('*'));
  const parts: string[] = [];
  if (exact.length > 0) {
    parts.push(anyOf(column));
    params.push(exact);
  }
  for (const type of types) {
    if (!type.includes('*')) continue;
    parts.push(`${column} LIKE ? ESCAPE '\\'`);
    params.push(likePattern(type));
  }
  return parts.length > 0 ? `(${parts.join(' OR ')})` : '1 = 0';
}

/**
 * Writes a filter as conditions on `events`.
 * @param params receives the values to bind
 * @param alias the alias of `events`
 * @returns conditions to be joined by AND; may be empty
 */
export function eventFilterSql(
  filter: EventFilter | undefined,
  params: SqlValue[],
  anyOf: (column: string) => string,
  alias = 'e',
): string[] {
  const parts: string[] = [];
  if (!filter) return parts;
  if (filter.types) parts.push(typeCondition(`${alias}.type`, filter.types, params, anyOf));
  if (filter.notTypes && filter.notTypes.length > 0)
    parts.push(`NOT ${typeCondition(`${alias}.type`, filter.notTypes, params, anyOf)}`);
  if (filter.senders) {
    parts.push(anyOf(`${alias}.sender`));
    params.push(filter.senders);
  }
  if (filter.notSenders && filter.notSenders.length > 0) {
    parts.push(`NOT ${anyOf(`${alias}.sender`)}`);
    params.push(filter.notSenders);
  }
  if (filter.containsUrl !== undefined) {
    parts.push(`${alias}.contains_url = ?`);
    params.push(filter.containsUrl);
  }
  if (filter.relTypes) {
    parts.push(
      `EXISTS (SELECT 1 FROM event_relations mr WHERE mr.event_id = ${alias}.event_id AND ${anyOf('mr.relation_type')})`,
    );
    params.push(filter.relTypes);
  }
  if (filter.notRelTypes && filter.notRelTypes.length > 0) {
    parts.push(
      `NOT EXISTS (SELECT 1 FROM event_relations nr WHERE nr.event_id = ${alias}.event_id AND ${anyOf('nr.relation_type')})`,
    );
    params.push(filter.notRelTypes);
  }
  if (filter.relatedByRelTypes || filter.relatedBySenders) {
    const inner: string[] = [`er.relates_to_id = ${alias}.event_id`];
    if (filter.relatedByRelTypes) {
      inner.push(anyOf('er.relation_type'));
      params.push(filter.relatedByRelTypes);
    }
    if (filter.relatedBySenders) {
      inner.push(anyOf('re.sender'));
      params.push(filter.relatedBySenders);
    }
    parts.push(
      `EXISTS (SELECT 1 FROM event_relations er JOIN events re ON re.event_id = er.event_id WHERE ${inner.join(' AND ')})`,
    );
  }
  return parts;
}
