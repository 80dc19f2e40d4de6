import { type Dialect, likeText, type SqlValue } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';
import type { EventFilter } from './event-filter.js';

/** No event has a longer type: what asks for more asks for nothing, and databases refuse patterns that are far too long. */
const longestType = 255;

/** `*` is the only wildcard, and case counts: for SQLite that is GLOB, whose other special characters stand in brackets. */
const patternOf = (pattern: string, isSqlite: boolean): string =>
  isSqlite ? pattern.replace(/[?[]/g, '[$&]') : likeText(pattern).replaceAll('*', '%');

/** What a database can hold; nothing else can match. */
const texts = (list: readonly string[]): string[] => list.filter((text) => !text.includes('\0'));

/** Events that a statement looks at for a filter: a database may do nothing else meanwhile. */
const mostLookedAt = 20_000;
/** ...and patterns that it holds against them: each takes about as long as looking at an event ten times. */
const mostMatches = 200_000;
const leastLookedAt = 100;

/** How many events a statement may look at for a filter, so that nobody waits for it long: fewer where each is held against many patterns. */
export function lookedAtFor(filter: EventFilter | undefined): number {
  const patterns = [...(filter?.types ?? []), ...(filter?.notTypes ?? [])].filter((type) => type.includes('*')).length;
  return Math.max(leastLookedAt, Math.min(mostLookedAt, Math.trunc(mostMatches / Math.max(1, patterns))));
}

function typeCondition(column: string, wanted: readonly string[], params: SqlValue[], dialect: Dialect): string {
  const types = texts(wanted);
  const exact = types.filter((type) => !type.includes('*'));
  const parts: string[] = [];
  if (exact.length > 0) {
    parts.push(dialect.anyOf(column));
    params.push(exact);
  }
  const isSqlite = dialect.name === 'sqlite';
  const patterns = types
    .filter((type) => type.includes('*') && type.replaceAll('*', '').length <= longestType)
    .map((type) => patternOf(type.replace(/\*+/g, '*'), isSqlite));
  if (patterns.length > 0) {
    // As a list: SQLite takes no thousand conditions, one for each. A backslash is what escapes by default.
    parts.push(
      isSqlite
        ? `EXISTS (SELECT 1 FROM json_each(?) AS pattern WHERE ${column} GLOB pattern.value)`
        : `${column} LIKE ANY (?)`,
    );
    params.push([...new Set(patterns)]);
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
  dialect: Dialect,
  alias = 'e',
): string[] {
  const anyOf = (column: string): string => dialect.anyOf(column);
  const parts: string[] = [];
  if (!filter) return parts;
  if (filter.types) parts.push(typeCondition(`${alias}.type`, filter.types, params, dialect));
  if (filter.notTypes && filter.notTypes.length > 0)
    parts.push(`NOT ${typeCondition(`${alias}.type`, filter.notTypes, params, dialect)}`);
  if (filter.senders) {
    parts.push(anyOf(`${alias}.sender`));
    params.push(texts(filter.senders));
  }
  if (filter.notSenders && filter.notSenders.length > 0) {
    parts.push(`NOT ${anyOf(`${alias}.sender`)}`);
    params.push(texts(filter.notSenders));
  }
  if (filter.containsUrl !== undefined) {
    parts.push(`${alias}.contains_url = ?`);
    params.push(filter.containsUrl);
  }
  if (filter.relTypes) {
    parts.push(
      `EXISTS (SELECT 1 FROM event_relations mr WHERE mr.event_id = ${alias}.event_id AND ${anyOf('mr.relation_type')})`,
    );
    params.push(texts(filter.relTypes));
  }
  if (filter.notRelTypes && filter.notRelTypes.length > 0) {
    parts.push(
      `NOT EXISTS (SELECT 1 FROM event_relations nr WHERE nr.event_id = ${alias}.event_id AND ${anyOf('nr.relation_type')})`,
    );
    params.push(texts(filter.notRelTypes));
  }
  if (filter.relatedByRelTypes || filter.relatedBySenders) {
    // What another room holds, or nobody is shown, tells nothing about an event.
    const inner = [`er.relates_to_id = ${alias}.event_id`, `re.room_id = ${alias}.room_id`, servableSql('re.')];
    if (filter.relatedByRelTypes) {
      inner.push(anyOf('er.relation_type'));
      params.push(texts(filter.relatedByRelTypes));
    }
    if (filter.relatedBySenders) {
      inner.push(anyOf('re.sender'));
      params.push(texts(filter.relatedBySenders));
    }
    parts.push(
      `EXISTS (SELECT 1 FROM event_relations er JOIN events re ON re.event_id = er.event_id WHERE ${inner.join(' AND ')})`,
    );
  }
  return parts;
}
