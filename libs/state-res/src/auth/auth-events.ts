import type { RoomEvent } from '@rookery/events';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { stateKeyOf } from '../state-map.js';
import { authTypesFor } from './auth-types.js';
import { ruleNumbersOf } from './rule-numbers.js';
import { allowed, type AuthVerdict, refuse } from './verdict.js';

/** What {@link checkAuthEvents} cannot read from the events. */
export interface AuthEventsOptions {
  /** Those of the auth events that this server has rejected. */
  readonly rejected?: ReadonlySet<string>;
  /**
   * Whether the event carries a valid signature of a server. Left out, a signature counts as valid when it is there,
   * which is right for events whose signatures were verified on arrival.
   */
  readonly signedBy?: (serverName: string) => boolean;
}

/**
 * The checks of an event that no room state can change: its choice of auth events, and the signature that a restricted
 * join needs. Run once, when the event arrives; {@link checkAuth} is the other half.
 * @param authEvents the events that `auth_events` names, all of them and in any order
 * @spec rooms/v12#authorization-rules (rules 3 and 5.2; before version 12: rule 2 and the second rule of `m.room.member`)
 */
export function checkAuthEvents(
  event: RoomEvent,
  authEvents: readonly RoomEvent[],
  options: AuthEventsOptions = {},
): AuthVerdict {
  if (event.type === 'm.room.create') return allowed;
  const { rules } = event;
  const numbers = ruleNumbersOf(rules);
  const group = numbers.authEvents;

  if (new Set(event.authEventIds).size !== event.authEventIds.length) {
    return refuse(`${group}.1`, 'The same auth event is named twice');
  }
  const expected = new Set(authTypesFor(event, rules).map(([type, key]) => stateKeyOf(type, key)));
  const seen = new Set<string>();
  for (const authEvent of authEvents) {
    const key = authEvent.stateKey === undefined ? undefined : stateKeyOf(authEvent.type, authEvent.stateKey);
    if (key !== undefined && seen.has(key)) {
      return refuse(`${group}.1`, `Two auth events for ${authEvent.type}`);
    }
    if (key === undefined || !expected.has(key)) {
      return refuse(`${group}.2`, `An event of type ${authEvent.type} may not be among the auth events`);
    }
    seen.add(key);
  }
  if (options.rejected !== undefined && options.rejected.size > 0) {
    const rejected = authEvents.find((authEvent) => options.rejected?.has(authEvent.eventId));
    if (rejected !== undefined) return refuse(`${group}.3`, `Auth event ${rejected.eventId} was rejected`);
  }
  if (!rules.createEventImplied && !seen.has(stateKeyOf('m.room.create', ''))) {
    return refuse(`${group}.4`, 'The create event is not among the auth events');
  }
  if (authEvents.some((authEvent) => authEvent.roomId !== event.roomId)) {
    return refuse(`${group}.${rules.createEventImplied ? 4 : 5}`, 'An auth event belongs to another room');
  }
  return checkAuthorizer(event, numbers.member, options.signedBy);
}

function checkAuthorizer(event: RoomEvent, member: number, signedBy: AuthEventsOptions['signedBy']): AuthVerdict {
  if (event.type !== 'm.room.member' || !event.rules.joinRules.restricted) return allowed;
  if (!Object.hasOwn(event.content, 'join_authorised_via_users_server')) return allowed;
  const authorizer = event.content['join_authorised_via_users_server'];
  const server = typeof authorizer === 'string' ? domainOf(authorizer) : '';
  const isSigned = server !== '' && (signedBy?.(server) ?? hasSignature(event, server));
  return isSigned ? allowed : refuse(`${member}.2.1`, 'The server of the authorizing user has not signed the join');
}

function hasSignature(event: RoomEvent, server: string): boolean {
  const signatures = event.pdu['signatures'];
  if (!isJsonObject(signatures) || !Object.hasOwn(signatures, server)) return false;
  const ofServer = signatures[server];
  return isJsonObject(ofServer) && Object.keys(ofServer).length > 0;
}
