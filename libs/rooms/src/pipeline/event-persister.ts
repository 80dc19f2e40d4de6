import type { JsonObject } from '@rookery/matrix-types';
import type { RoomEvent } from '@rookery/events';
import type { Requester } from '@rookery/platform';
import type { ClientTransaction, SentEvent, StoredEvent } from '../model/stored-event.js';

/** An event that a local user, or the server itself, wants to exist. Plain data: it may travel between processes. */
export interface EventDraft {
  readonly roomId: string;
  readonly type: string;
  /** Absent for a message event. */
  readonly stateKey?: string | undefined;
  /** A user of this server. */
  readonly sender: string;
  readonly content: Readonly<JsonObject>;
  /** Target of an `m.room.redaction`; put where the room version keeps it. */
  readonly redacts?: string | undefined;
  /** Set by application services only; milliseconds since the epoch. */
  readonly originServerTs?: number | undefined;
  /** For how long the event is sticky, milliseconds (MSC4354). */
  readonly stickyDurationMs?: number | undefined;
  /** A second draft with the same transaction makes no second event. */
  readonly transaction?: ClientTransaction | undefined;
  /** Answer with the event that holds the state already, if sender and content are the same. */
  readonly skipUnchanged?: boolean | undefined;
  /** Not shown to spam checkers or third-party rules: what the server sends on its own account. */
  readonly unchecked?: boolean | undefined;
  /** Who asked, for modules. */
  readonly origin?: DraftOrigin | undefined;
}

/** The request behind a draft. */
export interface DraftOrigin {
  readonly requester?: Requester | undefined;
  readonly requestId?: string | undefined;
  readonly ip?: string | undefined;
  readonly userAgent?: string | undefined;
  readonly duringRoomCreation?: boolean | undefined;
}

/** A room that is to be made, with all its first events in one step. */
export interface NewRoom {
  readonly roomVersion: string;
  readonly creator: string;
  /** `domain` room versions: the id; where the id is the create event's hash it must be absent. */
  readonly roomId?: string | undefined;
  /** The first is `m.room.create`, the second its sender's join; `roomId` of the drafts is ignored. */
  readonly drafts: readonly Omit<EventDraft, 'roomId' | 'transaction'>[];
  readonly isPublic: boolean;
  /** Local aliases to be made with the room. */
  readonly aliases?: readonly string[] | undefined;
}

/** A PDU whose format, hash and signatures were checked. */
export interface ForeignEvent {
  readonly event: RoomEvent;
  /** A gate refused it, or a policy server: it is kept and never served. */
  readonly softFail?: boolean | undefined;
  /** The server that sent it, for modules; else its sender's. */
  readonly origin?: string | undefined;
}

/** State of a room at an event, from a server that knows it: with it an event without known ancestors can be placed. */
export interface ForeignState {
  /** The state before the event. */
  readonly state: readonly RoomEvent[];
  /** Its auth chain. */
  readonly authChain: readonly RoomEvent[];
}

/** What became of a foreign event. */
export type ReceiveVerdict =
  | { readonly kind: 'accepted'; readonly stored: StoredEvent }
  | { readonly kind: 'known' }
  | { readonly kind: 'softFailed' }
  | { readonly kind: 'rejected'; readonly reason: string }
  /** Nothing was stored: these ancestors are missing and the room's state before it cannot be known. */
  | { readonly kind: 'missingAncestors'; readonly eventIds: readonly string[] };

/**
 * The only way into the tables of events. Events of one room are stored one after the other, rooms in parallel; what was
 * answered is durable.
 */
export abstract class EventPersister {
  /**
   * Builds, checks, signs and stores an event on top of the room's current state.
   * @throws MatrixError 403 `M_FORBIDDEN` (auth rules, modules), 404 `M_NOT_FOUND` (no such room), 413 `M_TOO_LARGE`,
   *   429 `M_LIMIT_EXCEEDED` (the room's queue is full)
   */
  abstract send(draft: EventDraft): Promise<SentEvent>;
  /** Makes a room and all its first events in one transaction. @throws MatrixError as {@link send} */
  abstract createRoom(room: NewRoom): Promise<{ readonly roomId: string; readonly events: readonly SentEvent[] }>;
  /**
   * Stores foreign events of one room in the order given. Each must have its auth events known (or earlier in the list).
   */
  abstract receive(roomId: string, events: readonly ForeignEvent[]): Promise<ReceiveVerdict[]>;
  /** Stores events outside the timeline: auth chains, out-of-band invites. Checked against their own auth events. */
  abstract receiveOutliers(roomId: string, roomVersion: string, events: readonly RoomEvent[]): Promise<void>;
  /**
   * Stores a member event about a user of this server, of a room in which this server has nobody: an invite, or what
   * becomes of it. The room's state is not known, so that nothing but its signatures can have been checked.
   */
  abstract receiveOutOfBand(roomVersion: string, event: RoomEvent): Promise<void>;
  /** Stores an event with the state before it, replacing what was known of the room: a join through another server. */
  abstract receiveWithState(roomVersion: string, event: RoomEvent, state: ForeignState): Promise<ReceiveVerdict>;
  /**
   * Stores history older than what is known, oldest first; the events get negative stream orderings. What has no known
   * ancestors, or an auth event that is not known, is left out.
   * @param state the state before the first of them, where its ancestors are not known
   */
  abstract backfill(roomId: string, events: readonly RoomEvent[], state?: ForeignState): Promise<void>;
  /**
   * Goes on from the newest head of a room alone: the others count no more, nor does the state that only they know.
   * @param draft the event that says so, on top of that head; not shown to modules
   * @returns how many heads went; with none nothing is sent
   * @throws MatrixError 403 `M_FORBIDDEN` when the sender may not send it there
   */
  abstract keepNewestHead(draft: EventDraft): Promise<number>;
  /**
   * Does something with a room's tables while none of its events is being stored, and forgets afterwards what is held in
   * memory about the room.
   */
  abstract exclusively<T>(roomId: string, work: () => Promise<T>): Promise<T>;
}
