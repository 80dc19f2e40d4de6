import type { RoomEvent } from '@rookery/events';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { creatorsOf, type PowerLevels } from './power-levels.js';
import type { RuleNumbers } from './rule-numbers.js';
import { isSignedByInvite } from './third-party-invite.js';
import { allowed, type AuthState, type AuthVerdict, refuse } from './verdict.js';

/** What the rules for one event share. */
export interface AuthContext {
  readonly event: RoomEvent;
  readonly create: RoomEvent;
  readonly state: AuthState;
  readonly levels: PowerLevels;
  readonly numbers: RuleNumbers;
}

/** A user's membership; `undefined` for somebody the room has never seen. */
export function membershipOf(state: AuthState, userId: string): string | undefined {
  const membership = state('m.room.member', userId)?.content['membership'];
  return typeof membership === 'string' ? membership : undefined;
}

/**
 * The rules for `m.room.member`.
 * @spec rooms/v12#authorization-rules (rule 5; 4 in versions 6 to 11)
 */
export function checkMembership(context: AuthContext): AuthVerdict {
  const { event, numbers } = context;
  const target = event.stateKey;
  if (target === undefined || !Object.hasOwn(event.content, 'membership')) {
    return refuse(`${numbers.member}.1`, 'A membership event needs a state key and a membership');
  }
  // Not in the rules' words, but a membership is somebody's. What old user ids hold besides is left open.
  if (!target.startsWith('@') || domainOf(target) === '') {
    return refuse(`${numbers.member}.1`, 'The state key of a membership event is a user id');
  }
  switch (event.content['membership']) {
    case 'join':
      return checkJoin(context, target);
    case 'invite':
      return checkInvite(context, target);
    case 'leave':
      return checkLeave(context, target);
    case 'ban':
      return checkBan(context, target);
    case 'knock':
      return event.rules.joinRules.knock ? checkKnock(context, target) : unknownMembership(numbers);
    default:
      return unknownMembership(numbers);
  }
}

function unknownMembership(numbers: RuleNumbers): AuthVerdict {
  return refuse(numbers.membership.unknown, 'Unknown membership');
}

/** A room without join rules, or with join rules that name none, is for the invited. */
function joinRuleOf(state: AuthState): unknown {
  const content = state('m.room.join_rules', '')?.content;
  return content !== undefined && Object.hasOwn(content, 'join_rule') ? content['join_rule'] : 'invite';
}

function checkJoin(context: AuthContext, target: string): AuthVerdict {
  const { event, create, state, levels, numbers } = context;
  const { joinRules } = event.rules;
  const rule = numbers.membership.join;
  if (
    event.prevEventIds.length === 1 &&
    event.prevEventIds[0] === create.eventId &&
    // Additional creators have no such shortcut: their first join follows the join rules.
    creatorsOf(create)[0] === target
  ) {
    return allowed;
  }
  if (event.sender !== target) return refuse(`${rule}.2`, 'Nobody can join for somebody else');
  const membership = membershipOf(state, target);
  if (membership === 'ban') return refuse(`${rule}.3`, `${target} is banned`);

  const joinRule = joinRuleOf(state);
  const isIn = membership === 'invite' || membership === 'join';
  const otherwise = `${rule}.${joinRules.restricted ? 7 : 6}`;
  const restricted =
    (joinRules.restricted && joinRule === 'restricted') ||
    (joinRules.knockRestricted && joinRule === 'knock_restricted');
  if (restricted) {
    if (isIn) return allowed;
    const authorizer = event.content['join_authorised_via_users_server'];
    const mayInvite =
      typeof authorizer === 'string' &&
      membershipOf(state, authorizer) === 'join' &&
      levels.user(authorizer) >= levels.scalar('invite');
    return mayInvite ? allowed : refuse(`${rule}.5.2`, 'No member who may invite has authorized the join');
  }
  if (joinRule === 'public') return allowed;
  if (joinRule === 'invite' || (joinRules.knock && joinRule === 'knock')) {
    return isIn ? allowed : refuse(otherwise, `${target} is not invited`);
  }
  return refuse(otherwise, 'The join rule lets nobody in');
}

function checkInvite(context: AuthContext, target: string): AuthVerdict {
  const { event, state, levels, numbers } = context;
  const rule = numbers.membership.invite;
  if (Object.hasOwn(event.content, 'third_party_invite')) return checkThirdPartyInvite(context, target, `${rule}.1`);
  if (membershipOf(state, event.sender) !== 'join') return refuse(`${rule}.2`, `${event.sender} is not in the room`);
  const membership = membershipOf(state, target);
  if (membership === 'join' || membership === 'ban') {
    return refuse(`${rule}.3`, membership === 'ban' ? `${target} is banned` : `${target} is in the room already`);
  }
  if (levels.user(event.sender) >= levels.scalar('invite')) return allowed;
  return refuse(`${rule}.5`, `${event.sender} may not invite`);
}

function checkThirdPartyInvite(context: AuthContext, target: string, rule: string): AuthVerdict {
  const { event, state } = context;
  if (membershipOf(state, target) === 'ban') return refuse(`${rule}.1`, `${target} is banned`);
  const invite = event.content['third_party_invite'];
  const signed = isJsonObject(invite) ? invite['signed'] : undefined;
  if (!isJsonObject(signed)) return refuse(`${rule}.2`, 'The third-party invite is not signed');
  const { mxid, token } = signed;
  if (typeof mxid !== 'string' || typeof token !== 'string') {
    return refuse(`${rule}.3`, 'The third-party invite lacks its user or its token');
  }
  if (mxid !== target) return refuse(`${rule}.4`, 'The third-party invite is for another user');
  const offer = state('m.room.third_party_invite', token);
  if (offer === undefined) return refuse(`${rule}.5`, 'The room has no such third-party invite');
  if (offer.sender !== event.sender) return refuse(`${rule}.6`, 'Somebody else made the third-party invite');
  if (isSignedByInvite(event, signed, offer)) return allowed;
  return refuse(`${rule}.8`, 'No key of the third-party invite has signed it');
}

function checkLeave(context: AuthContext, target: string): AuthVerdict {
  const { event, state, levels, numbers } = context;
  const rule = numbers.membership.leave;
  const membership = membershipOf(state, target);
  if (event.sender === target) {
    const mayLeave =
      membership === 'invite' || membership === 'join' || (event.rules.joinRules.knock && membership === 'knock');
    return mayLeave ? allowed : refuse(`${rule}.1`, `${target} has nothing to leave`);
  }
  if (membershipOf(state, event.sender) !== 'join') return refuse(`${rule}.2`, `${event.sender} is not in the room`);
  const level = levels.user(event.sender);
  if (membership === 'ban' && level < levels.scalar('ban')) return refuse(`${rule}.3`, `${event.sender} may not unban`);
  if (level >= levels.scalar('kick') && levels.user(target) < level) return allowed;
  return refuse(`${rule}.5`, `${event.sender} may not remove ${target}`);
}

function checkBan(context: AuthContext, target: string): AuthVerdict {
  const { event, state, levels, numbers } = context;
  const rule = numbers.membership.ban;
  if (membershipOf(state, event.sender) !== 'join') return refuse(`${rule}.1`, `${event.sender} is not in the room`);
  const level = levels.user(event.sender);
  if (level >= levels.scalar('ban') && levels.user(target) < level) return allowed;
  return refuse(`${rule}.3`, `${event.sender} may not ban ${target}`);
}

function checkKnock(context: AuthContext, target: string): AuthVerdict {
  const { event, state, numbers } = context;
  const rule = numbers.membership.knock;
  const joinRule = joinRuleOf(state);
  if (joinRule !== 'knock' && !(event.rules.joinRules.knockRestricted && joinRule === 'knock_restricted')) {
    return refuse(`${rule}.1`, 'The join rule does not let anybody knock');
  }
  if (event.sender !== target) return refuse(`${rule}.2`, 'Nobody can knock for somebody else');
  const membership = membershipOf(state, target);
  if (membership === 'ban' || membership === 'invite' || membership === 'join') {
    return refuse(`${rule}.4`, `${target} cannot knock with membership ${membership}`);
  }
  return allowed;
}
