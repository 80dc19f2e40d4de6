import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { isMembership, type Membership } from '@rookery/matrix-types';
import { splitStateKey, stateKeyOf, type StateMap } from '@rookery/state-res';
import type { GroupPlan } from '../state/state-groups.js';
import type { ChainLink } from '../state/state-groups.query.js';
import type { Extremity, RoomSnapshot, SnapshotReader, Unwritten } from './room-snapshot.js';
import type { PartialJoin } from '../store/partial-rooms.query.js';
import type { StagedEvent } from './staged-event.js';

/** A change of current state, caused by the staged event with this index. */
export interface CurrentChange {
  readonly cause: number;
  readonly type: string;
  readonly stateKey: string;
  readonly eventId: string | undefined;
  readonly prevEventId: string | undefined;
  readonly membership: Membership | undefined;
  readonly event: RoomEvent | undefined;
}

/** What has become of a stored event that was judged once more. */
export interface RejudgedEvent {
  readonly event: RoomEvent;
  readonly group: number;
  readonly rejectedReason: string | undefined;
  readonly wasRejected: boolean;
  readonly replacesState: string | undefined;
  readonly softFailed: boolean;
  readonly streamOrdering: number;
  readonly receivedTs: number;
  /** For redactions: whether it counts only for events of the sender's own server. */
  readonly redactionRecheck: boolean | undefined;
}

/** A part of the state before the join of a room that is known in part. */
export interface FoundState {
  readonly group: number;
  /** The join; given with the first part. */
  readonly begins: string | undefined;
  readonly rows: StateMap;
}

/**
 * A room in the middle of a batch: the snapshot, and on top of it what the staged events change. It belongs to whoever has
 * the room's turn; everybody else looks at one that {@link aside} or {@link still} gave.
 */
export class WorkingRoom implements SnapshotReader {
  chain: readonly ChainLink[] | undefined;
  /** Current state is still that of the forward extremities before some events: see `EventContexts.settle`. */
  isUnsettled = false;
  readonly extremities: Map<string, Extremity>;
  readonly staged: StagedEvent[] = [];
  readonly stagedById = new Map<string, StagedEvent>();
  readonly groups = new Map<number, GroupPlan>();
  readonly changes: CurrentChange[] = [];
  /** Stream orderings of those before which something is missing, once they are written. */
  gaps: readonly number[] = [];
  /** What has become of stored events, once all of the room's state is here; absent in every other batch. */
  rejudged: Map<string, RejudgedEvent> | undefined;
  #groupsBefore: ReadonlyMap<string, number | undefined> = new Map();
  /** The batch joins the room before its state is here; the event that does, and how. */
  partialJoin: ({ readonly joinEventId: string } & PartialJoin) | undefined;
  /** A part of all of the room's state that is written with the batch, and its members become known; nothing else is in it. */
  found: FoundState | undefined;
  /** With the batch all of the room's state is here. */
  becomesWhole = false;
  /** Once that is so: other servers that were in the room, or are, and of which that was not known. */
  missedServers: readonly string[] | undefined;
  /** Forward extremities before the batch. */
  readonly extremitiesBefore: ReadonlySet<string>;
  readonly #delta = new Map<string, string | undefined>();
  #size: number;

  constructor(
    readonly base: RoomSnapshot,
    readonly isNew = false,
  ) {
    this.chain = base.chain;
    this.extremities = new Map(base.extremities);
    this.extremitiesBefore = new Set(base.extremities.keys());
    this.#size = base.state.size;
  }

  /**
   * A room as it is now, for whoever does not have its turn. Nothing of it is ever written.
   * Stays as it is, whatever becomes of the room, until it is given back with {@link release}.
   */
  static aside(base: RoomSnapshot): WorkingRoom {
    const room = new WorkingRoom(base);
    if (base.unwritten) room.#lookThrough(base.unwritten);
    base.readers.add(room);
    return room;
  }

  /** The room as it is at this moment, for whoever looks at it for longer than the turn lasts. As {@link aside}. */
  still(): WorkingRoom {
    const room = new WorkingRoom(this.base);
    room.chain = this.chain;
    room.extremities.clear();
    for (const [eventId, extremity] of this.extremities) room.extremities.set(eventId, extremity);
    for (const [key, eventId] of this.#delta) room.#delta.set(key, eventId);
    room.#size = this.#size;
    room.#lookThrough(this);
    this.base.readers.add(room);
    return room;
  }

  /** Told by whoever was given it that nothing of it is read any more. */
  release(): void {
    this.base.readers.delete(this);
  }

  keep(key: string): void {
    if (!this.#delta.has(key)) this.#delta.set(key, this.base.state.get(key));
  }

  #lookThrough({ stagedById, groups }: Unwritten): void {
    for (const [eventId, staged] of stagedById) this.stagedById.set(eventId, staged);
    for (const [group, plan] of groups) this.groups.set(group, plan);
  }

  /** Not all of the room's state is here: what is judged now is judged again when it is (MSC3902). */
  get isPartial(): boolean {
    return this.partialJoin !== undefined || (this.base.partialServers !== undefined && !this.becomesWhole);
  }

  get roomId(): string {
    return this.base.roomId;
  }

  get rules(): RoomVersionRules {
    return this.base.rules;
  }

  /** Entries of current state. */
  get size(): number {
    return this.#size;
  }

  /** The event that holds a piece of current state. */
  stateId(type: string, stateKey: string): string | undefined {
    return this.idAt(stateKeyOf(type, stateKey));
  }

  idAt(key: string): string | undefined {
    return this.#delta.size > 0 && this.#delta.has(key) ? this.#delta.get(key) : this.base.state.get(key);
  }

  /** The keys of current state. */
  *keys(): Generator<string> {
    for (const key of this.base.state.keys())
      if (this.#delta.get(key) !== undefined || !this.#delta.has(key)) yield key;
    for (const [key, eventId] of this.#delta) if (eventId !== undefined && !this.base.state.has(key)) yield key;
  }

  /** All of current state, copied. */
  wholeState(): Map<string, string> {
    const whole = new Map(this.base.state);
    for (const [key, eventId] of this.#delta) {
      if (eventId === undefined) whole.delete(key);
      else whole.set(key, eventId);
    }
    return whole;
  }

  /** Sets one entry of current state because of the event staged last. */
  change(key: string, event: RoomEvent | undefined): void {
    const prevEventId = this.idAt(key);
    if (prevEventId === event?.eventId) return;
    const [type, stateKey] = splitStateKey(key);
    this.#size += (event ? 1 : 0) - (prevEventId === undefined ? 0 : 1);
    this.#delta.set(key, event?.eventId);
    const cause = this.staged.length - 1;
    const membership = type === 'm.room.member' && event ? membershipIn(event) : undefined;
    this.changes.push({ cause, type, stateKey, eventId: event?.eventId, prevEventId, membership, event });
  }

  /** The last change of each entry. */
  finalChanges(): readonly CurrentChange[] {
    // Of a large state that came in nothing has changed twice.
    if (this.changes.length === this.#delta.size) return this.changes;
    const last = new Map<string, CurrentChange>();
    for (const change of this.changes) last.set(stateKeyOf(change.type, change.stateKey), change);
    return [...last.values()];
  }

  /**
   * Begins to judge stored events once more.
   * @param groups that they have
   * @returns where to note what becomes of them
   */
  rejudge(groups: ReadonlyMap<string, number | undefined>): Map<string, RejudgedEvent> {
    this.#groupsBefore = groups;
    return (this.rejudged = new Map());
  }

  /** The group of a stored event, once events are judged once more. */
  groupOf(eventId: string): number | undefined {
    return this.rejudged?.get(eventId)?.group ?? this.#groupsBefore.get(eventId);
  }

  stage(staged: StagedEvent): void {
    this.staged.push(staged);
    this.stagedById.set(staged.event.eventId, staged);
  }

  /**
   * Puts what was staged into the snapshot. Done before the write, so that hooks see the room as it will be; whatever fails
   * afterwards throws the snapshot away.
   */
  applyToBase(): void {
    const { base } = this;
    for (const [key, eventId] of this.#delta) base.set(key, eventId);
    for (const { type, stateKey, membership } of this.changes)
      if (type === 'm.room.member') base.setMembership(stateKey, membership);
    base.extremities = this.extremities;
    base.chain = this.chain;
    base.unwritten = this;
    if (this.partialJoin) base.partialServers = new Set(this.partialJoin.servers);
    else if (this.becomesWhole) base.partialServers = undefined;
  }
}

/** The membership in a member event; something else than the five counts as a leave. */
export function membershipIn(event: RoomEvent): Membership {
  const membership = event.content['membership'];
  return isMembership(membership) ? membership : 'leave';
}
