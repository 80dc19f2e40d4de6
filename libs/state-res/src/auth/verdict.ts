import type { RoomEvent } from '@rookery/events';

/**
 * Whether an event may be part of its room. A refusal carries the number of the rule that refused it, as the section
 * "Authorization rules" of the room version counts it (`4.3.1`), and words for a log or a client.
 * @spec rooms#authorization-rules
 */
export type AuthVerdict =
  | { readonly allowed: true }
  | {
      readonly allowed: false;
      readonly rule: string;
      readonly reason: string;
      /** What is wrong is the content: nobody could send it. */
      readonly isMalformed?: true;
    };

/**
 * The state that an event is checked against: the event for a type and state key, `undefined` where there is none. The
 * create event must be found under `m.room.create` in every room version, also where auth events leave it out.
 */
export type AuthState = (type: string, stateKey: string) => RoomEvent | undefined;

/** The only verdict without a reason. */
export const allowed: AuthVerdict = Object.freeze({ allowed: true });

/** A refusal by one numbered rule. */
export function refuse(rule: string, reason: string): AuthVerdict {
  return { allowed: false, rule, reason };
}

/** A refusal of content that nobody could send. */
export function refuseContent(rule: string, reason: string): AuthVerdict {
  return { allowed: false, rule, reason, isMalformed: true };
}

/** A look-up over events at hand; of two with the same type and state key the later one counts. Messages are skipped. */
export function authStateOf(events: Iterable<RoomEvent>): AuthState {
  const byType = new Map<string, Map<string, RoomEvent>>();
  for (const event of events) {
    if (event.stateKey === undefined) continue;
    let ofType = byType.get(event.type);
    if (ofType === undefined) byType.set(event.type, (ofType = new Map()));
    ofType.set(event.stateKey, event);
  }
  return (type, stateKey) => byType.get(type)?.get(stateKey);
}
