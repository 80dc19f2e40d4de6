import type { RoomEvent } from '@rookery/events';
import { domainOf, isValidUserId } from '@rookery/matrix-types';
import { type AuthContext, checkMembership, membershipOf } from './membership-rules.js';
import { checkPowerLevels } from './power-level-rules.js';
import { PowerLevels } from './power-levels.js';
import { ruleNumbersOf } from './rule-numbers.js';
import { allowed, type AuthState, type AuthVerdict, refuse } from './verdict.js';

/**
 * Whether the auth rules allow an event in a room with this state: the state before it, its own auth events, or the
 * current state. Needs no signatures, so that a draft can be checked before it is signed; {@link checkAuthEvents} is
 * the other half of the rules.
 * @spec rooms/v12#authorization-rules
 */
export function checkAuth(event: RoomEvent, state: AuthState): AuthVerdict {
  if (event.type === 'm.room.create') return checkCreate(event);
  const { rules } = event;
  const numbers = ruleNumbersOf(rules);
  const create = state('m.room.create', '');
  if (create === undefined || (rules.createEventImplied && create.eventId !== `$${event.roomId.slice(1)}`)) {
    return rules.createEventImplied
      ? refuse('2', 'The room id is not that of an accepted create event')
      : refuse(`${numbers.authEvents}.4`, 'The room has no create event');
  }
  if (create.content['m.federate'] === false && domainOf(event.sender) !== domainOf(create.sender)) {
    return refuse(`${numbers.federate}`, 'The room is not open to other servers');
  }
  if (rules.aliasesAuthRule && event.type === 'm.room.aliases') return checkAliases(event, numbers.aliases);

  const levels = new PowerLevels(state('m.room.power_levels', ''), create, rules);
  const context: AuthContext = { event, create, state, levels, numbers };
  if (event.type === 'm.room.member') return checkMembership(context);

  if (membershipOf(state, event.sender) !== 'join') {
    return refuse(`${numbers.senderJoined}`, `${event.sender} is not in the room`);
  }
  const level = levels.user(event.sender);
  if (event.type === 'm.room.third_party_invite') {
    if (level >= levels.scalar('invite')) return allowed;
    return refuse(`${numbers.thirdPartyInvite}.1`, `${event.sender} may not invite`);
  }
  const required = levels.event(event.type, event.stateKey !== undefined);
  if (required > level) {
    return refuse(`${numbers.requiredLevel}`, `${event.type} needs level ${required}, ${event.sender} has ${level}`);
  }
  if (event.stateKey?.startsWith('@') && event.stateKey !== event.sender) {
    return refuse(`${numbers.ownStateKey}`, 'State that belongs to a user can be set by that user only');
  }
  if (event.type === 'm.room.power_levels') return checkPowerLevels(context);
  if (rules.redactionAuthRule && event.type === 'm.room.redaction') {
    if (level >= levels.scalar('redact')) return allowed;
    if (event.redacts !== undefined && domainOf(event.redacts) === domainOf(event.eventId)) return allowed;
    return refuse(`${numbers.redaction}.3`, `${event.sender} may not redact events of other servers`);
  }
  return allowed;
}

/** @spec rooms/v12#authorization-rules (rule 1) */
function checkCreate(event: RoomEvent): AuthVerdict {
  const { rules, content } = event;
  if (event.prevEventIds.length > 0) return refuse('1.1', 'A create event cannot follow another event');
  if (rules.createEventImplied) {
    if (Object.hasOwn(event.pdu, 'room_id')) return refuse('1.2', 'A create event cannot name its own room id');
  } else if (domainOf(event.roomId) !== domainOf(event.sender)) {
    return refuse('1.2', 'The room id belongs to another server');
  }
  // The event's rules were chosen by this very property, so anything else in it is a version that nobody knows.
  if (Object.hasOwn(content, 'room_version') && content['room_version'] !== rules.version) {
    return refuse('1.3', 'The room version is unknown');
  }
  if (!rules.creatorIsSender && !Object.hasOwn(content, 'creator')) return refuse('1.4', 'The creator is missing');
  if (rules.privilegedCreators && Object.hasOwn(content, 'additional_creators')) {
    const creators = content['additional_creators'];
    if (!Array.isArray(creators) || !creators.every((id) => typeof id === 'string' && isValidUserId(id))) {
      return refuse('1.4', 'additional_creators is not a list of user ids');
    }
  }
  return allowed;
}

/** @spec rooms/v1#authorization-rules (rule 4) */
function checkAliases(event: RoomEvent, rule: number): AuthVerdict {
  if (event.stateKey === undefined) return refuse(`${rule}.1`, 'Aliases need a state key');
  if (event.stateKey !== domainOf(event.sender)) return refuse(`${rule}.2`, 'Aliases belong to another server');
  return allowed;
}
