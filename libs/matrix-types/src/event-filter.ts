import { MatrixError } from './errors.js';
import { isJsonObject, type JsonObject } from './json.js';

/** A filter over events, read from what a client sent. @spec client-server-api#filtering */
export interface EventFilter {
  /** Largest number of events; `undefined` leaves it to the server. */
  readonly limit: number | undefined;
  readonly types: readonly string[] | undefined;
  readonly notTypes: readonly string[];
  /** Whether a type passes `types` and `notTypes`. Told of a type again and again, it looks at the patterns once. */
  readonly passesType: (type: string) => boolean;
  readonly senders: readonly string[] | undefined;
  readonly notSenders: readonly string[];
  readonly rooms: ReadonlySet<string> | undefined;
  readonly notRooms: ReadonlySet<string>;
  /** Only events whose content has a `url` (true) or has none (false). */
  readonly containsUrl: boolean | undefined;
  readonly lazyLoadMembers: boolean;
  readonly includeRedundantMembers: boolean;
  readonly unreadThreadNotifications: boolean;
  /** MSC3874: only events with one of these relations. */
  readonly relTypes: readonly string[] | undefined;
  /** The same: only events without any of these. */
  readonly notRelTypes: readonly string[];
  /** MSC3440: only events to which another points with one of these relations; known to the database, not to the event. */
  readonly relatedByRelTypes: readonly string[] | undefined;
  /** The same: only events to which one of these users points with a relation. */
  readonly relatedBySenders: readonly string[] | undefined;
  /** Whether every event passes, so that nothing needs to be looked at. */
  readonly passesEverything: boolean;
}

/** The parts of an event that a filter looks at. */
export interface FilterableEvent {
  readonly type: string;
  readonly sender: string;
  readonly roomId?: string | undefined;
  readonly content: Readonly<JsonObject>;
}

const maxListLength = 1000;
/** Types of which a filter remembers whether they pass: there are few, unless somebody makes them up. */
const maxRemembered = 500;

function stringList(source: JsonObject, key: string, where: string): string[] | undefined {
  const value = source[key];
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value) || value.some((entry) => typeof entry !== 'string')) {
    throw MatrixError.badJson(`${where}.${key} must be a list of strings`);
  }
  if (value.length > maxListLength) throw MatrixError.badJson(`${where}.${key} has more than ${maxListLength} entries`);
  return value as string[];
}

/** Ids as far as they can be told from other text: rooms and users of all times are meant. */
function idList(source: JsonObject, key: string, where: string, sigil: '!' | '@'): string[] | undefined {
  const list = stringList(source, key, where);
  const odd = list?.find((id) => !id.startsWith(sigil) || (sigil === '@' && !id.includes(':')));
  if (odd === undefined) return list;
  throw MatrixError.badJson(`${where}.${key} has an entry that is not a ${sigil === '@' ? 'user' : 'room'} id`);
}

function flag(source: JsonObject, key: string, where: string): boolean | undefined {
  const value = source[key];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'boolean') throw MatrixError.badJson(`${where}.${key} must be true or false`);
  return value;
}

const setOf = (list: readonly string[] | undefined): ReadonlySet<string> | undefined =>
  list === undefined ? undefined : new Set(list);

function typeCheck(types: readonly string[] | undefined, notTypes: readonly string[]): (type: string) => boolean {
  if (types === undefined && notTypes.length === 0) return () => true;
  const [isWanted, isUnwanted] = [types && typeMatcher(types), typeMatcher(notTypes)];
  const verdicts = new Map<string, boolean>();
  return (type) => {
    let passes = verdicts.get(type);
    if (passes === undefined) {
      passes = !isUnwanted(type) && (isWanted?.(type) ?? true);
      if (verdicts.size >= maxRemembered) verdicts.clear();
      verdicts.set(type, passes);
    }
    return passes;
  };
}

/** Whether an event type is matched by one of the patterns, in which `*` stands for any characters. */
function typeMatcher(patterns: readonly string[]): (type: string) => boolean {
  const names = new Set(patterns.filter((pattern) => !pattern.includes('*')));
  const split = patterns.filter((pattern) => pattern.includes('*')).map((pattern) => pattern.split('*'));
  return (type) => names.has(type) || split.some((parts) => matchesParts(parts, type));
}

/** @param parts what stands between the wildcards of a pattern, at least two */
function matchesParts(parts: readonly string[], type: string): boolean {
  const first = parts[0] ?? '';
  const last = parts[parts.length - 1] ?? '';
  if (type.length < first.length + last.length || !type.startsWith(first) || !type.endsWith(last)) return false;
  let at = first.length;
  const end = type.length - last.length;
  for (let i = 1; i < parts.length - 1; i++) {
    const part = parts[i] ?? '';
    const found = type.indexOf(part, at);
    if (found === -1 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/**
 * Reads an event filter.
 * @param where how messages name the value: `filter.room.timeline`
 * @throws MatrixError 400 `M_BAD_JSON`
 */
export function parseEventFilter(value: unknown, where = 'filter'): EventFilter {
  const source = value ?? undefined;
  if (source === undefined) return emptyEventFilter;
  if (!isJsonObject(source)) throw MatrixError.badJson(`${where} must be an object`);
  const limit = source['limit'] ?? undefined;
  if (limit !== undefined && (!Number.isSafeInteger(limit) || (limit as number) < 0)) {
    throw MatrixError.badJson(`${where}.limit must be a positive integer`);
  }
  const types = stringList(source, 'types', where);
  const notTypes = stringList(source, 'not_types', where) ?? [];
  const senders = idList(source, 'senders', where, '@');
  const notSenders = idList(source, 'not_senders', where, '@') ?? [];
  const rooms = setOf(idList(source, 'rooms', where, '!'));
  const notRooms = new Set(idList(source, 'not_rooms', where, '!'));
  const containsUrl = flag(source, 'contains_url', where);
  const relTypes = stringList(source, 'rel_types', where) ?? stringList(source, 'org.matrix.msc3874.rel_types', where);
  const notRelTypes =
    stringList(source, 'not_rel_types', where) ?? stringList(source, 'org.matrix.msc3874.not_rel_types', where) ?? [];
  const relatedByRelTypes = stringList(source, 'related_by_rel_types', where);
  const relatedBySenders = stringList(source, 'related_by_senders', where);
  return {
    limit: limit as number | undefined,
    types,
    notTypes,
    passesType: typeCheck(types, notTypes),
    senders,
    notSenders,
    rooms,
    notRooms,
    containsUrl,
    lazyLoadMembers: flag(source, 'lazy_load_members', where) ?? false,
    includeRedundantMembers: flag(source, 'include_redundant_members', where) ?? false,
    unreadThreadNotifications:
      flag(source, 'unread_thread_notifications', where) ??
      flag(source, 'org.matrix.msc3773.unread_thread_notifications', where) ??
      false,
    relTypes,
    notRelTypes,
    relatedByRelTypes,
    relatedBySenders,
    passesEverything:
      types === undefined &&
      notTypes.length === 0 &&
      senders === undefined &&
      notSenders.length === 0 &&
      rooms === undefined &&
      notRooms.size === 0 &&
      containsUrl === undefined &&
      relTypes === undefined &&
      notRelTypes.length === 0 &&
      relatedByRelTypes === undefined &&
      relatedBySenders === undefined,
  };
}

/** The filter that lets everything pass. */
export const emptyEventFilter: EventFilter = parseEventFilter({});

/** Whether a filter looks at this room at all. */
export function passesRoom(filter: EventFilter, roomId: string): boolean {
  return !filter.notRooms.has(roomId) && (filter.rooms === undefined || filter.rooms.has(roomId));
}

/** Whether an event passes by itself, whatever points to it; an exclusion beats an inclusion. */
export function passesFilter(filter: EventFilter, event: FilterableEvent): boolean {
  if (filter.passesEverything) return true;
  if (filter.notSenders.includes(event.sender)) return false;
  if (filter.senders !== undefined && !filter.senders.includes(event.sender)) return false;
  if (event.roomId !== undefined && !passesRoom(filter, event.roomId)) return false;
  if (!filter.passesType(event.type)) return false;
  if (filter.containsUrl !== undefined && (typeof event.content['url'] === 'string') !== filter.containsUrl)
    return false;
  if (filter.relTypes === undefined && filter.notRelTypes.length === 0) return true;
  const relation = event.content['m.relates_to'];
  const relType = isJsonObject(relation) ? relation['rel_type'] : undefined;
  if (typeof relType !== 'string') return filter.relTypes === undefined;
  return (filter.relTypes?.includes(relType) ?? true) && !filter.notRelTypes.includes(relType);
}

function profileFieldsOf(value: unknown): ReadonlySet<string> | undefined {
  const where = 'filter.org.matrix.msc4429.profile_fields';
  if (value === undefined) return undefined;
  if (!isJsonObject(value)) throw MatrixError.badJson(`${where} must be an object`);
  return setOf(stringList(value, 'ids', where));
}

/** The filter of a sync, every part of it. @spec client-server-api#post_matrixclientv3useruseridfilter */
export interface SyncFilter {
  /** Dotted paths of event fields to keep; `undefined` keeps all. */
  readonly eventFields: readonly string[] | undefined;
  readonly eventFormat: 'client' | 'federation';
  /** MSC4429: fields of profiles whose changes are wanted. */
  readonly profileFields: ReadonlySet<string> | undefined;
  readonly presence: EventFilter;
  readonly accountData: EventFilter;
  readonly room: {
    readonly rooms: ReadonlySet<string> | undefined;
    readonly notRooms: ReadonlySet<string>;
    readonly includeLeave: boolean;
    readonly ephemeral: EventFilter;
    readonly state: EventFilter;
    readonly timeline: EventFilter;
    readonly accountData: EventFilter;
  };
}

/**
 * Reads a sync filter as clients send and store it.
 * @throws MatrixError 400 `M_BAD_JSON` naming the part that is wrong
 */
export function parseSyncFilter(value: unknown): SyncFilter {
  if (!isJsonObject(value)) throw MatrixError.badJson('a filter must be an object');
  const room = value['room'] ?? {};
  if (!isJsonObject(room)) throw MatrixError.badJson('filter.room must be an object');
  const format = value['event_format'] ?? 'client';
  if (format !== 'client' && format !== 'federation')
    throw MatrixError.badJson('filter.event_format must be client or federation');
  return {
    eventFields: stringList(value, 'event_fields', 'filter'),
    eventFormat: format,
    profileFields: profileFieldsOf(value['org.matrix.msc4429.profile_fields'] ?? undefined),
    presence: parseEventFilter(value['presence'], 'filter.presence'),
    accountData: parseEventFilter(value['account_data'], 'filter.account_data'),
    room: {
      rooms: setOf(idList(room, 'rooms', 'filter.room', '!')),
      notRooms: new Set(idList(room, 'not_rooms', 'filter.room', '!')),
      includeLeave: flag(room, 'include_leave', 'filter.room') ?? false,
      ephemeral: parseEventFilter(room['ephemeral'], 'filter.room.ephemeral'),
      state: parseEventFilter(room['state'], 'filter.room.state'),
      timeline: parseEventFilter(room['timeline'], 'filter.room.timeline'),
      accountData: parseEventFilter(room['account_data'], 'filter.room.account_data'),
    },
  };
}
