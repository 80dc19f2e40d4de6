import type { SqlValue } from '@rookery/database';

/**
 * The part of a room event filter that selects events by themselves.
 * @spec client-server-api#filtering
 */
export interface EventFilter {
  /** `*` at any place stands for any text. */
  readonly types?: readonly string[];
  readonly notTypes?: readonly string[];
  readonly senders?: readonly string[];
  readonly notSenders?: readonly string[];
  readonly containsUrl?: boolean;
  /** Only events to which an event of one of these relation types points (MSC3440). */
  readonly relatedByRelTypes?: readonly string[];
  /** Only events to which one of these users points with a relation. */
  readonly relatedBySenders?: readonly string[];
}

const likePattern = (pattern: string): string =>
  pattern.replace(/[\\%_]/g, (character) => `\\${character}`).replaceAll('*', '%');

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

/** Whether one event passes, for events in memory. The conditions on relations are not looked at. */
export function passesFilter(
  filter: EventFilter | undefined,
  event: { readonly type: string; readonly sender: string; readonly content: Readonly<Record<string, unknown>> },
): boolean {
  if (!filter) return true;
  if (filter.types && !filter.types.some((pattern) => typeMatches(pattern, event.type))) return false;
  if (filter.notTypes?.some((pattern) => typeMatches(pattern, event.type))) return false;
  if (filter.senders && !filter.senders.includes(event.sender)) return false;
  if (filter.notSenders?.includes(event.sender)) return false;
  if (filter.containsUrl !== undefined && filter.containsUrl !== (typeof event.content['url'] === 'string'))
    return false;
  return true;
}

/** Matches a type against a pattern in which `*` stands for any text; linear in both. */
function typeMatches(pattern: string, type: string): boolean {
  if (!pattern.includes('*')) return pattern === type;
  const parts = pattern.split('*');
  const first = parts.shift()!;
  const last = parts.pop()!;
  if (!type.startsWith(first) || type.length < first.length + last.length || !type.endsWith(last)) return false;
  let at = first.length;
  const end = type.length - last.length;
  for (const part of parts) {
    const next = type.indexOf(part, at);
    if (next < 0 || next + part.length > end) return false;
    at = next + part.length;
  }
  return true;
}
