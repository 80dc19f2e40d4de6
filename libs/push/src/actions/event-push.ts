import { clientEventView, type RoomEvent } from '@rookery/events';
import {
  type CompiledRuleset,
  evaluate,
  outcomeOf,
  type PushAction,
  type PushContext,
  type PushEvent,
} from '@rookery/push-rules';
import { nobody } from '../rules/push-rules.service.js';
import type { EventBatch, StoredEvent } from '@rookery/rooms';

/** What a notification asks of the client. */
export interface NotifyOutcome {
  readonly highlight: boolean;
  /** The actions, as they are stored. */
  readonly json: string;
}

/**
 * Whether a user is not to be told of an event any more: it was redacted or purged. An invite that came from another server has no place
 * in a timeline, and is told to its target nevertheless.
 */
export const isGone = ({ redactedBy, outlier, event }: StoredEvent, userId: string): boolean =>
  redactedBy !== undefined || (outlier && event.stateKey !== userId);

/** What an event means to the local members of its room. */
export interface EventPush {
  readonly eventId: string;
  readonly roomId: string;
  readonly streamOrdering: number;
  readonly sender: string;
  /** Id of the thread's root, or `main`. */
  readonly threadId: string;
  /** For all joined users but the sender and {@link except}; absent where it does not notify. */
  readonly everyone: NotifyOutcome | undefined;
  /** Users to whom `everyone` does not apply. */
  readonly except: readonly string[];
  /** Groups of users, by id, to whom it does not apply either. */
  readonly exceptGroups: readonly string[];
  /** Users who are notified in their own way. */
  readonly own: ReadonlyMap<string, NotifyOutcome>;
  /** An invite that another server sent: it counts only if it became the user's membership. */
  readonly outOfBand: boolean;
  /** Whom such an invite is for, in a room that this server is in or not. */
  readonly invited?: string | undefined;
}

/** The part of {@link PushContext} that is the same for all users of a room; `threadSubscribed` for those who are not. */
export type RoomContext = Omit<PushContext, 'userId' | 'displayName'>;

/** A user whose rules are looked at one by one. */
export interface PushCandidate {
  readonly userId: string;
  readonly ruleset: CompiledRuleset;
  /** The event does not single the user out: with the same rules, others are told the same. */
  readonly isLikeOthers: boolean;
  readonly displayName?: string | undefined;
  /** Whether the user is subscribed to the event's thread; absent where there is none (MSC4306). */
  readonly threadSubscribed?: boolean | undefined;
}

// Compiled rules keep their lists of actions, so what these mean is found out once for each of them.
const outcomes = new WeakMap<readonly PushAction[], { readonly outcome: NotifyOutcome | undefined }>();

/** What most events ask for, as it is stored. */
export const usualActions = JSON.stringify(['notify']);

/** An event as push rules look at it. */
export const pushEventOf = (event: RoomEvent): PushEvent => clientEventView(event) as unknown as PushEvent;

/** What rules say to users whom the event does not name. */
export function outcomeForMany(rules: CompiledRuleset, event: PushEvent, room: RoomContext): NotifyOutcome | undefined {
  return outcome(rules, event, { ...room, userId: nobody });
}

/** What a user's own rules say. */
export function ownOutcome(event: PushEvent, candidate: PushCandidate, room: RoomContext): NotifyOutcome | undefined {
  const { userId, displayName, threadSubscribed } = candidate;
  return outcome(candidate.ruleset, event, { ...room, userId, displayName, threadSubscribed });
}

function outcome(ruleset: CompiledRuleset, event: PushEvent, context: PushContext): NotifyOutcome | undefined {
  const match = evaluate(ruleset, event, context);
  if (match === undefined) return undefined;
  const known = outcomes.get(match.actions);
  if (known !== undefined) return known.outcome;
  const { notify, highlight } = outcomeOf(match.actions);
  const found = notify ? { highlight, json: JSON.stringify(match.actions) } : undefined;
  outcomes.set(match.actions, { outcome: found });
  return found;
}

/** Whether two outcomes are the same to a client. */
export function sameOutcome(a: NotifyOutcome | undefined, b: NotifyOutcome | undefined): boolean {
  return a?.highlight === b?.highlight && a?.json === b?.json;
}

/** Users whom an event names, so that even default rules tell them apart from others. */
export function namedUsers(event: RoomEvent): string[] {
  const mentions = event.content['m.mentions'];
  const listed =
    typeof mentions === 'object' && mentions !== null ? (mentions as Record<string, unknown>)['user_ids'] : undefined;
  const users = Array.isArray(listed) ? listed.filter((one): one is string => typeof one === 'string') : [];
  return event.stateKey === undefined ? users : [...users, event.stateKey];
}

/** Stands in an event's note for a member who may not see the event, notified or not. */
export const hiddenEntry = (userId: string): string => `-${userId}`;

/**
 * What everybody is told, as it lies in the event's row; undefined where nobody is by default, and all may see it.
 * @param push what the event means; undefined for nothing
 * @param hidden members who may not see it
 */
export function noteOf(
  push: EventPush | undefined,
  hidden: ReadonlySet<string> | undefined,
): Parameters<EventBatch['note']>[1] | undefined {
  const unseen = [...(hidden ?? [])].map(hiddenEntry);
  if (push?.everyone === undefined) {
    if (unseen.length === 0) return undefined;
    return { thread: undefined, highlight: false, actions: undefined, except: JSON.stringify(unseen) };
  }
  const { everyone, threadId, except, exceptGroups } = push;
  const excepted = [...exceptGroups, ...except, ...unseen];
  return {
    thread: threadId,
    highlight: everyone.highlight,
    actions: everyone.json === usualActions ? undefined : everyone.json,
    except: excepted.length === 0 ? undefined : JSON.stringify(excepted),
  };
}
