import type { RoomEvent } from '@rookery/events';
import type { EventDraft, NewRoom } from '../model/drafts.js';
import type { GivenState, KnownState, RemoteEvent, StateAfter, ReceiveVerdict } from '../model/remote-events.js';
import type { PartialJoin } from '../store/partial-rooms.query.js';
import type { SentEvent } from '../model/stored-event.js';

/**
 * The only way into the tables of events. Events of one room are stored one after the other, rooms in parallel; what was
 * answered is durable.
 */
export abstract class EventPersister {
  /**
   * Builds, checks, signs and stores an event on top of the room's current state.
   * @throws MatrixError 403 `M_FORBIDDEN` (auth rules, modules), 404 `M_NOT_FOUND` (no such room), 413 `M_TOO_LARGE`,
   *   429 `M_LIMIT_EXCEEDED` (the room's queue is full); StateMovedOn where the draft was to replace other state than there is;
   *   OnlyAtWriterError where another process writes
   */
  abstract send(draft: EventDraft): Promise<SentEvent>;
  /** Makes a room and all its first events in one transaction. @throws MatrixError as {@link send} */
  abstract createRoom(room: NewRoom): Promise<{ readonly roomId: string; readonly events: readonly SentEvent[] }>;
  /**
   * Stores remote events of one room in the order given. Each must have its auth events known (or earlier in the list).
   */
  abstract receive(roomId: string, events: readonly RemoteEvent[]): Promise<ReceiveVerdict[]>;
  /**
   * Stores events of a room outside its timeline: auth chains, states. Checked against their own auth events.
   * @throws MatrixError 403 `M_FORBIDDEN` where the room is not known, or not any more: it does not come back by them
   */
  abstract receiveOutliers(roomId: string, events: readonly RoomEvent[]): Promise<void>;
  /**
   * Stores a member event about a user of this server, of a room in which this server has nobody: an invite, or what
   * becomes of it. The room's state is not known, so that nothing but its signatures can have been checked.
   * @param roomVersion with which a room is made that is not known yet, for an invite or a knock
   * @throws MatrixError 403 `M_FORBIDDEN` for what ends a membership of a room that is not known any more
   */
  abstract receiveOutOfBand(roomVersion: string, event: RoomEvent): Promise<void>;
  /**
   * Stores an event with the state before it, replacing what was known of the room: a join through another server.
   * @param roomVersion with which a room is made that is not known yet; absent where nobody comes into it
   * @param partial members are missing from that state (MSC3902); the rest comes with {@link completeState}
   * @throws MatrixError 403 `M_FORBIDDEN` for a room that is neither known nor to be made
   */
  abstract receiveWithState(
    roomVersion: string | undefined,
    remote: RemoteEvent,
    state: GivenState,
    partial?: PartialJoin,
  ): Promise<ReceiveVerdict>;
  /**
   * Puts all of the state before a join in place of the part that came with it (MSC3902): what was stored since is judged by it,
   * and current state follows. Does nothing where the room is not known in part any more, or another join counts.
   * @param joinEventId with which this server came in
   * @param earlier the state before other joins that came with a part of it, by event
   * @param signal gives it up: the room stays known in part, and whoever comes next begins anew
   * @returns whether the join stands in that state; otherwise nothing was changed
   * @throws the reason of `signal` when it was given up
   */
  abstract completeState(
    roomId: string,
    joinEventId: string,
    state: KnownState,
    earlier?: ReadonlyMap<string, KnownState>,
    signal?: AbortSignal,
  ): Promise<boolean>;
  /**
   * Gives up to learn the rest of a room's state, where nobody of this server is in it any more.
   * @returns whether there is nothing left to be learned
   * @throws the reason of `signal` when it was given up before the end
   */
  abstract abandonState(roomId: string, joinEventId: string, signal?: AbortSignal): Promise<boolean>;
  /**
   * Stores history older than what is known, oldest first; the events get negative stream orderings. What has no known
   * ancestors, or an auth event that is not known, is left out.
   * @param state the state before the first of them, where its ancestors are not known
   * @throws MatrixError 403 `M_FORBIDDEN` where the room is not known, or not any more
   */
  abstract backfill(roomId: string, events: readonly RoomEvent[], state?: GivenState | StateAfter): Promise<void>;
  /**
   * Goes on from the newest forward extremity of a room alone: the others count no more, nor does the state that only they know.
   * @param draft the event that says so, on top of that one; not shown to modules
   * @returns how many went; with none nothing is sent
   * @throws MatrixError 403 `M_FORBIDDEN` when the sender may not send it there
   */
  abstract keepNewestExtremity(draft: EventDraft): Promise<number>;
  /**
   * Does something with a room's tables while none of its events is being stored, and forgets afterwards what is held in
   * memory about the room.
   */
  abstract exclusively<T>(roomId: string, work: () => Promise<T>): Promise<T>;
}
