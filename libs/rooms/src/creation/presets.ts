import type { RoomVersionRules } from '@rookery/events';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';

/** Names of the presets. @spec client-server-api#post_matrixclientv3createroom */
export type PresetName = 'private_chat' | 'trusted_private_chat' | 'public_chat';

/** What a preset sets. */
export interface Preset {
  readonly joinRule: 'invite' | 'public';
  readonly historyVisibility: 'shared';
  readonly guestAccess: 'can_join' | 'forbidden';
  /** Everybody who is invited gets the creator's power. */
  readonly equals: boolean;
  /** The level needed to invite. */
  readonly invite: number;
  /** The level needed to ring everybody in the room. */
  readonly call: number;
}

export const presets: Readonly<Record<PresetName, Preset>> = {
  private_chat: {
    joinRule: 'invite',
    historyVisibility: 'shared',
    guestAccess: 'can_join',
    equals: false,
    invite: 0,
    call: 0,
  },
  trusted_private_chat: {
    joinRule: 'invite',
    historyVisibility: 'shared',
    guestAccess: 'can_join',
    equals: true,
    invite: 0,
    call: 0,
  },
  public_chat: {
    joinRule: 'public',
    historyVisibility: 'shared',
    guestAccess: 'forbidden',
    equals: false,
    invite: 50,
    call: 50,
  },
};

/**
 * The power levels of a new room.
 * @param override laid over the result, key by key
 */
export function initialPowerLevels(
  rules: RoomVersionRules,
  preset: Preset,
  creator: string,
  invited: readonly string[],
  override: Readonly<JsonObject> | undefined,
): JsonObject {
  const users: JsonObject = {};
  if (!rules.privilegedCreators) {
    users[creator] = 100;
    if (preset.equals) for (const userId of invited) users[userId] = 100;
  }
  const levels: JsonObject = {
    users,
    users_default: 0,
    events: {
      'm.room.name': 50,
      'm.room.power_levels': 100,
      'm.room.history_visibility': 100,
      'm.room.canonical_alias': 50,
      'm.room.avatar': 50,
      'm.room.tombstone': rules.privilegedCreators ? 150 : 100,
      'm.room.server_acl': 100,
      'm.room.encryption': 100,
      ...(preset.call > 0 && { 'm.call.invite': preset.call }),
    },
    events_default: 0,
    state_default: 50,
    ban: 50,
    kick: 50,
    redact: 50,
    invite: preset.invite,
    historical: 100,
  };
  for (const [key, value] of Object.entries(override ?? {})) {
    if (key === '__proto__') continue;
    levels[key] = value;
  }
  return levels;
}

/**
 * The users that are named as creators beside the sender, from a `creation_content`. That they are user ids is for the auth
 * rules to check.
 * @throws MatrixError 400 `M_INVALID_PARAM` where it is no list of text
 */
export function additionalCreators(content: Readonly<JsonObject>): string[] {
  const listed: unknown = content['additional_creators'] ?? [];
  if (Array.isArray(listed) && listed.every((entry) => typeof entry === 'string')) return listed;
  throw MatrixError.invalidParam('additional_creators must be a list of user ids');
}

/** A map of state given in a request, or nothing. */
export const objectIn = (value: unknown): Readonly<JsonObject> | undefined => (isJsonObject(value) ? value : undefined);
