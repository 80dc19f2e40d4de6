import { isValidServerName } from './server-name.js';

/** `@localpart:domain` */
export type UserId = `@${string}:${string}`;
/** `!opaque:domain`, or from room version 12 on `!` and the create event's hash. */
export type RoomId = `!${string}`;
/** `#localpart:domain` */
export type RoomAlias = `#${string}:${string}`;
/** `$opaque:domain` in room versions 1 and 2, else `$` and the event's hash. */
export type EventId = `$${string}`;
/** DNS name or IP literal, with an optional port. */
export type ServerName = string;

/** A parsed identifier that always has a domain. */
export interface DomainId<Id extends string> {
  readonly id: Id;
  readonly localpart: string;
  readonly serverName: ServerName;
}

/** A parsed identifier whose domain depends on the room version. */
export interface OpaqueId<Id extends string> {
  readonly id: Id;
  readonly opaque: string;
  /** `undefined` for identifiers that are hashes. */
  readonly serverName: ServerName | undefined;
}

/** Longest user, room and event id, room alias, event type and state key, in bytes of UTF-8. */
export const maxIdBytes = 255;

/** Whether a text is at most `maxBytes` of UTF-8. */
export function fitsBytes(text: string, maxBytes: number): boolean {
  // A UTF-16 code unit takes at most three bytes.
  return text.length * 3 <= maxBytes || (text.length <= maxBytes && Buffer.byteLength(text) <= maxBytes);
}

/** Characters that no identifier may hold: NUL, and surrogates without their half. */
const isClean = (text: string): boolean => !text.includes('\0') && text.isWellFormed();

function parseDomainId<Id extends string>(sigil: string, text: string): DomainId<Id> | undefined {
  if (!text.startsWith(sigil) || !fitsBytes(text, maxIdBytes) || !isClean(text)) return undefined;
  const colon = text.indexOf(':');
  if (colon < 0) return undefined;
  const serverName = text.slice(colon + 1);
  if (!isValidServerName(serverName)) return undefined;
  return { id: text as Id, localpart: text.slice(1, colon), serverName };
}

function parseOpaqueId<Id extends string>(sigil: string, text: string): OpaqueId<Id> | undefined {
  if (text.includes(':')) {
    const parsed = parseDomainId<Id>(sigil, text);
    if (parsed === undefined || parsed.localpart === '') return undefined;
    return { id: parsed.id, opaque: parsed.localpart, serverName: parsed.serverName };
  }
  if (!text.startsWith(sigil) || text.length < 2 || !fitsBytes(text, maxIdBytes) || !isClean(text)) return undefined;
  return { id: text as Id, opaque: text.slice(1), serverName: undefined };
}

/**
 * Parses a user id as it may come from any server: historical ids included, so that the localpart may be empty or hold
 * any character but `:` and NUL.
 * @returns `undefined` when it is not one
 * @spec appendices#user-identifiers
 */
export function parseUserId(text: string): DomainId<UserId> | undefined {
  return parseDomainId('@', text);
}

/** Whether a text is a user id that some server may have made, historical ones included. */
export function isValidUserId(text: string): text is UserId {
  return parseUserId(text) !== undefined;
}

const newLocalpart = /^[a-z0-9._=/+-]+$/;

/**
 * Whether a localpart may be given to a new user: lower-case letters, digits and `._=/+-`. The caller checks that the
 * whole id stays within 255 bytes ({@link isValidUserId}).
 * @spec appendices#user-identifiers
 */
export function isValidNewLocalpart(localpart: string): boolean {
  return newLocalpart.test(localpart);
}

const historicalLocalpart = /^[\x21-\x39\x3b-\x7e]+$/;

/**
 * Whether a localpart is one that servers gave to users in the past, and that every server still has to know: printable
 * ASCII but for spaces and colons.
 * @spec appendices#historical-user-ids
 */
export function isHistoricalLocalpart(localpart: string): boolean {
  return historicalLocalpart.test(localpart);
}

/**
 * Parses a room id, with or without a domain.
 * @returns `undefined` when it is not one
 * @spec appendices#room-ids
 */
export function parseRoomId(text: string): OpaqueId<RoomId> | undefined {
  return parseOpaqueId('!', text);
}

/** Whether a text is a room id, with or without a domain. */
export function isValidRoomId(text: string): text is RoomId {
  return parseRoomId(text) !== undefined;
}

/**
 * Parses a room alias.
 * @returns `undefined` when it is not one
 * @spec appendices#room-aliases
 */
export function parseRoomAlias(text: string): DomainId<RoomAlias> | undefined {
  const parsed = parseDomainId<RoomAlias>('#', text);
  return parsed === undefined || parsed.localpart === '' ? undefined : parsed;
}

/** Whether a text is a room alias. */
export function isValidRoomAlias(text: string): text is RoomAlias {
  return parseRoomAlias(text) !== undefined;
}

/**
 * Parses an event id of any room version.
 * @returns `undefined` when it is not one
 * @spec appendices#event-ids
 */
export function parseEventId(text: string): OpaqueId<EventId> | undefined {
  return parseOpaqueId('$', text);
}

/** Whether a text is an event id of some room version. */
export function isValidEventId(text: string): text is EventId {
  return parseEventId(text) !== undefined;
}

/**
 * The domain of an identifier that was checked before: all behind the first colon, port included.
 * @returns an empty text when the identifier has no domain
 */
export function domainOf(id: string): ServerName {
  const colon = id.indexOf(':');
  return colon < 0 ? '' : id.slice(colon + 1);
}

/** The part of an identifier between its sigil and the first colon. The identifier was checked before. */
export function localpartOf(id: string): string {
  const colon = id.indexOf(':');
  return id.slice(1, colon < 0 ? undefined : colon);
}
