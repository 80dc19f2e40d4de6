import { checkOwnContent, InvalidEventError, serverAclOf } from '@rookery/events';
import { isJsonObject, isValidRoomAlias, type JsonObject, MatrixError } from '@rookery/matrix-types';

const maxAliases = 1000;

/**
 * What this server does not let its own users send although the auth rules would: contents that break the room.
 * @param roomId absent for a room that is being made
 * @throws MatrixError 400 `M_BAD_JSON` or `M_INVALID_PARAM`
 */
export function checkContent(
  type: string,
  stateKey: string | undefined,
  content: Readonly<JsonObject>,
  serverName: string,
  roomId?: string,
): void {
  if (stateKey === undefined) {
    if (type === 'm.room.create' || type === 'm.room.member') {
      throw MatrixError.badJson('Events of this type need a state key');
    }
    return;
  }
  if (type === 'm.room.create') throw MatrixError.badJson('A room is created once');
  if (type === 'm.room.tombstone' && roomId !== undefined && content['replacement_room'] === roomId) {
    throw MatrixError.badJson('A room cannot replace itself');
  }
  if (type === 'm.room.server_acl') checkServerAcl(content, serverName);
  if (type === 'm.room.canonical_alias') checkCanonicalAlias(content);
}

/**
 * Refuses what could never become an event, where the event is made later or with the help of another server.
 * @throws MatrixError 400 `M_BAD_JSON`
 */
export function checkNesting(content: Readonly<JsonObject>): void {
  try {
    checkOwnContent(content);
  } catch (error) {
    throw error instanceof InvalidEventError ? MatrixError.badJson(`This cannot be an event: ${error.reason}`) : error;
  }
}

/** Whoever locks out his own server can never take it back. */
function checkServerAcl(content: Readonly<JsonObject>, serverName: string): void {
  for (const key of ['allow', 'deny']) {
    const list = content[key];
    if (list !== undefined && !(Array.isArray(list) && list.every((entry) => typeof entry === 'string'))) {
      throw MatrixError.badJson(`${key} must be a list of server names`);
    }
  }
  if (!serverAclOf(content).allows(serverName)) {
    throw MatrixError.badJson('The list would lock this server out of the room');
  }
}

function checkCanonicalAlias(content: Readonly<JsonObject>): void {
  const { alias, alt_aliases: others } = content;
  if (alias !== undefined && alias !== null && alias !== '' && typeof alias !== 'string') {
    throw MatrixError.badJson('alias must be a string');
  }
  if (others !== undefined && !Array.isArray(others)) throw MatrixError.badJson('alt_aliases must be a list');
  if (Array.isArray(others) && others.length > maxAliases) throw MatrixError.badJson('Too many aliases');
  for (const entry of aliasesIn(content)) {
    if (!isValidRoomAlias(entry)) throw MatrixError.invalidParam(`${entry.slice(0, 100)} is not a room alias`);
  }
}

/** The aliases that a canonical alias event names. */
export function aliasesIn(content: Readonly<JsonObject>): string[] {
  const { alias, alt_aliases: others } = content;
  const named = typeof alias === 'string' && alias !== '' ? [alias] : [];
  return Array.isArray(others) ? [...named, ...others.map(String)] : named;
}

/** A JSON object, or an empty one in place of anything else. */
export const objectOr = (value: unknown): Readonly<JsonObject> => (isJsonObject(value) ? value : {});
