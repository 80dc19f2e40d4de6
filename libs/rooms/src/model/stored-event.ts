import type { RoomEvent } from '@rookery/events';

/** The request of a local client that made an event; shown as `unsigned.transaction_id` to that device only. */
export interface ClientTransaction {
  readonly userId: string;
  /** The device, or `as:<id>` for an application service that does not act as one. */
  readonly deviceId: string;
  readonly txnId: string;
}

/**
 * An event and this server's view of it. Immutable; a later redaction or verdict makes a new object.
 */
export interface StoredEvent {
  /** As it may be served: already pruned when a valid redaction is known. */
  readonly event: RoomEvent;
  /** Positive for events that arrived live, negative for history fetched later. Unique. */
  readonly streamOrdering: number;
  /** When this server stored it, milliseconds since the epoch. */
  readonly receivedTs: number;
  /** Known only as part of an auth chain or an invite: no place in the room's timeline, no state. */
  readonly outlier: boolean;
  /** Why the auth rules refused it; a rejected event is never served. */
  readonly rejectedReason: string | undefined;
  /** Allowed where it was sent, refused by the room's current state; kept but never served to clients. */
  readonly softFailed: boolean;
  /** The room's policy server did not approve of it: it is soft-failed for that. */
  readonly isSpammy?: boolean | undefined;
  readonly transaction: ClientTransaction | undefined;
  /** The state event that it took the place of. */
  readonly replacesState: string | undefined;
  /** The redaction that pruned it. */
  readonly redactedBy: string | undefined;
  /** Of another server's event: the server that asked this one to send it on to the others in the room. */
  readonly onBehalfOf?: string | undefined;
  /** Another server, which took it from this one, sends it on to the room. */
  readonly isHandedOver?: boolean | undefined;
}

/** Whether clients may ever see it: it is in the timeline and was accepted. Says nothing about who may. */
export const isServable = (stored: StoredEvent): boolean => !stored.softFailed && isInTimeline(stored);

/** The same with everything that was soft-failed. */
export const isInTimeline = (stored: StoredEvent): boolean => !stored.outlier && stored.rejectedReason === undefined;

/** Which soft-failed events administrators ask to see: none, those of which a room's policy server did not approve, or all. */
export type ShownSoftFailed = 'none' | 'spammy' | 'all';

/** {@link isServable} for whoever is shown some of the soft-failed events as well. */
export const isShown = (stored: StoredEvent, softFailed: ShownSoftFailed): boolean =>
  isServable(stored) ||
  (isInTimeline(stored) && (softFailed === 'all' || (softFailed === 'spammy' && stored.isSpammy === true)));

/** Whether a redaction can count for an event of a type: without its create event a room is none. */
export const isRedactable = (type: string): boolean => type !== 'm.room.create';

/** What a sender learns about the event that was made. */
export interface SentEvent {
  readonly eventId: string;
  readonly roomId: string;
  readonly streamOrdering: number;
}

/** Type of events that servers send to join the forward extremities of a room; no client is to see them. */
export const dummyEventType = 'org.matrix.dummy_event';
