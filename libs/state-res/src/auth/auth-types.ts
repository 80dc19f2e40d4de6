import type { RoomVersionRules, StateKeyTuple } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

/** What decides which state an event has to name in `auth_events`; a draft has it as well as an event. */
export interface AuthTypesInput {
  readonly type: string;
  readonly stateKey: string | undefined;
  readonly sender: string;
  readonly content: Readonly<JsonObject>;
}

/** Types of the events that others can name in `auth_events`: what else is in a room's state authorizes nothing. */
const citable: ReadonlySet<string> = new Set([
  'm.room.create',
  'm.room.power_levels',
  'm.room.join_rules',
  'm.room.member',
  'm.room.third_party_invite',
]);

/** Whether an event of this type can be what authorizes another. @spec server-server-api#auth-events-selection */
export const isCitable = (type: string): boolean => citable.has(type);

/**
 * The pieces of state that authorize an event: what `auth_events` must be chosen from, and all that the auth rules look
 * at, except that room version 12 leaves the create event out. Without duplicates; empty for the create event.
 * @spec server-server-api#auth-events-selection
 */
export function authTypesFor(event: AuthTypesInput, rules: RoomVersionRules): StateKeyTuple[] {
  if (event.type === 'm.room.create') return [];
  const wanted: StateKeyTuple[] = [];
  if (!rules.createEventImplied) wanted.push(['m.room.create', '']);
  wanted.push(['m.room.power_levels', ''], ['m.room.member', event.sender]);
  if (event.type !== 'm.room.member') return wanted;

  const target = event.stateKey;
  if (target !== undefined && target !== event.sender) wanted.push(['m.room.member', target]);
  const membership = event.content['membership'];
  if (membership === 'join' || membership === 'invite' || membership === 'knock') {
    wanted.push(['m.room.join_rules', '']);
  }
  if (membership === 'invite') {
    const token = thirdPartyToken(event.content);
    if (token !== undefined) wanted.push(['m.room.third_party_invite', token]);
  }
  if (membership === 'join' && rules.joinRules.restricted) {
    const authorizer = event.content['join_authorised_via_users_server'];
    if (typeof authorizer === 'string' && authorizer !== event.sender && authorizer !== target) {
      wanted.push(['m.room.member', authorizer]);
    }
  }
  return wanted;
}

function thirdPartyToken(content: Readonly<JsonObject>): string | undefined {
  const invite = content['third_party_invite'];
  if (!isJsonObject(invite) || !isJsonObject(invite['signed'])) return undefined;
  const token = invite['signed']['token'];
  return typeof token === 'string' ? token : undefined;
}
