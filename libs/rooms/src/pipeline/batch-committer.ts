import { Injectable } from '@nestjs/common';
import { DataStores, type Tx } from '@rookery/database';
import { Clock, isAwaited } from '@rookery/platform';
import type { News } from '@rookery/replication';
import { isStored } from '../store/event-store.query.js';
import { type EventBatch, type MemberMove, type PushNote, RoomHooks, type RoomView } from '../hooks.js';
import { RecentEvents } from '../store/recent-events.js';
import { PartialRooms } from '../store/partial-rooms.js';
import { TimelineGaps } from '../store/timeline-gaps.js';
import { EventStore, sameServer } from '../store/event-store.js';
import { hiddenFrom } from './fork-audience.js';
import { GroupCommit } from './group-commit.js';
import { type EventKey, RoomIds } from '../store/room-ids.js';
import { isServable, type StoredEvent } from '../model/stored-event.js';
import type { WorkingRoom } from '../room/working-room.js';
import { areGroupsWritten, bringGroups, type WritableBatch, writeBatches, writeGroups } from './write-events.query.js';

/** A batch of more events is written by itself: a room with a long past must not hold up those that send a message. */
const maxShared = 20;

/** How a batch is written. */
export interface CommitOptions {
  /** Written before the events, in the same transaction: the row of a new room. */
  readonly first?: (tx: Tx) => Promise<void>;
  /** The events are older than what is known: they get negative stream orderings and wake nobody. */
  readonly backfilled?: boolean;
  /** Nothing else is written with it. */
  readonly alone?: boolean;
}

/** A batch on its way into the database. */
interface Writing extends WritableBatch {
  readonly batch: EventBatch;
  /** What the hooks have prepared, in their order. */
  readonly prepared: readonly unknown[];
  readonly first: CommitOptions['first'];
}

/** Makes a batch of staged events durable, with everything that hooks add, and tells the world. */
@Injectable()
export class BatchCommitter {
  /** Those whose state groups are durable in a database of their own. */
  readonly #withGroups = new WeakSet<Writing>();
  readonly #groupCommit = new GroupCommit<Writing>(
    (writings) => this.#write(writings),
    (ms, then) => this.clock.after(ms, then),
  );

  // Eight parameters: one transaction, and each thing in memory that has to know once it holds.
  constructor(
    private readonly stores: DataStores,
    private readonly ids: RoomIds,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly gaps: TimelineGaps,
    private readonly hooks: RoomHooks,
    private readonly clock: Clock,
    private readonly partial: PartialRooms,
  ) {}

  /**
   * @returns the events with their stream orderings, once they are durable
   * @throws what the database or a hook throws; then nothing was written and `room` must be thrown away
   */
  async commit(room: WorkingRoom, options: CommitOptions = {}): Promise<StoredEvent[]> {
    const chainIds = await this.ids.authChains(
      room.staged.filter((staged) => staged.event.stateKey !== undefined).length,
    );
    // What changes without an event has a position of its own.
    const count = Math.max(1, room.staged.length);
    const allocation = await (options.backfilled ? this.ids.backfill : this.ids.events).allocate(count);
    // The past goes downwards: the older, the smaller.
    const orderings = options.backfilled ? [...allocation.ids].reverse() : allocation.ids;
    try {
      const receivedTs = this.clock.nowMs();
      const stored = room.staged.map((staged, index): StoredEvent => ({
        event: staged.event,
        streamOrdering: orderings[index]!,
        receivedTs,
        outlier: staged.outlier,
        rejectedReason: staged.rejectedReason,
        softFailed: staged.softFailed,
        isSpammy: staged.isSpammy,
        transaction: staged.transaction,
        replacesState: staged.replacesState,
        redactedBy: undefined,
        onBehalfOf: staged.onBehalfOf,
        isHandedOver: staged.isHandedOver,
      }));
      const position = orderings.at(-1)!;
      room.applyToBase();
      const notes = new Map<string, PushNote>();
      const batch: EventBatch = {
        roomId: room.roomId,
        events: stored,
        moves: movesIn(room, stored, position),
        backfilled: options.backfilled ?? false,
        missedServers: room.missedServers,
        hiddenFrom: await hiddenFrom(room, this.events),
        room: this.#view(room),
        extremities: () => extremitiesOf(room),
        changed: (type) => room.changes.some((change) => change.type === type),
        note: (eventId, note) => void notes.set(eventId, note),
      };
      const prepared: unknown[] = [];
      for (const hook of this.hooks.all) {
        const answer = hook.prepare?.(batch);
        prepared.push(isAwaited(answer) ? await answer : answer);
      }
      const { first } = options;
      const { serverName } = room.base;
      const writing = { room, stored, position, chainIds, notes, batch, prepared, first, serverName };
      const isAlone = first !== undefined || options.alone === true || stored.length > maxShared;
      if (isAlone) await this.#write([writing]);
      else await this.#groupCommit.add(writing);
      room.base.unwritten = undefined;
      this.#remember(room, stored);
      this.#notePartial(room, position);
      if (options.backfilled) this.recent.rememberPast(stored);
      else this.recent.remember(room, stored);
      this.gaps.note(room.roomId, room.gaps);
      if (options.backfilled) allocation.done();
      else allocation.commit(this.#news(room, stored, batch.moves));
      this.#tellHooks(batch, prepared);
      return stored;
    } finally {
      allocation.done();
    }
  }

  #tellHooks(batch: EventBatch, prepared: readonly unknown[]): void {
    const hooks = this.hooks.all;
    // By index here and below: each send goes through all of them, and a pair for each would be a tenth of what it allocates.
    for (let n = 0; n < hooks.length; n++) hooks[n]?.afterCommit?.(batch, prepared[n]);
  }

  /** Writes batches of different rooms, all or none. */
  async #write(writings: readonly Writing[]): Promise<void> {
    if (this.stores.isSplit) await this.#writeGroupsApart(writings);
    const hooks = this.hooks.all;
    const [{ stored }] = writings as [Writing, ...Writing[]];
    await this.stores.main.write(
      async (tx) => {
        for (const { first } of writings) if (first) await first(tx);
        await writeBatches(tx, writings, this.stores.isSplit);
        for (const { batch, prepared } of writings) {
          for (let n = 0; n < hooks.length; n++) {
            const hook = hooks[n];
            if (hook?.inTransaction) await hook.inTransaction(tx, batch, prepared[n]);
          }
        }
      },
      { name: 'persist_events', happened: async (db) => stored[0] !== undefined && isStored(db, stored[0]) },
    );
  }

  /**
   * Makes the rows of new state groups durable in their own database, before anything refers to them. Where that then fails, nothing
   * ever does, and the collector takes them away.
   */
  async #writeGroupsApart(writings: readonly Writing[]): Promise<void> {
    // What failed together is written again alone: the groups of some are there already.
    const missing = writings.filter((writing) => !this.#withGroups.has(writing) && bringGroups([writing]));
    if (missing.length > 0)
      await this.stores.state.write((tx) => writeGroups(tx, missing), {
        name: 'persist_state_groups',
        happened: (db) => areGroupsWritten(db, missing),
      });
    for (const writing of missing) this.#withGroups.add(writing);
  }

  /** Before anybody can be told: who asks then must find it. */
  #notePartial(room: WorkingRoom, position: number): void {
    const { roomId, partialJoin, rejudged } = room;
    if (room.found) this.partial.grew(roomId, position);
    if (partialJoin) this.partial.begin(roomId, partialJoin.joinEventId, partialJoin);
    else if (room.becomesWhole) this.partial.end(roomId, position);
    if (!rejudged) return;
    const redacted = [...rejudged.values()].flatMap(({ event }) => event.redacts ?? []);
    this.events.forget([...rejudged.keys(), ...redacted]);
    this.recent.forget(roomId, rejudged.keys());
  }

  #view(room: WorkingRoom): RoomView {
    const { events } = this;
    return {
      roomId: room.roomId,
      rules: room.rules,
      stateId: (type, stateKey) => room.stateId(type, stateKey),
      state(type, stateKey) {
        const id = room.stateId(type, stateKey);
        if (id === undefined) return undefined;
        return (room.stagedById.get(id) ?? events.peek(id))?.event ?? events.one(id).then((stored) => stored?.event);
      },
      localMembers: room.base.localMembers,
      joinedCount: room.base.tally.join,
      remoteServers: room.base.remoteServers,
      isPartial: room.isPartial,
    };
  }

  /** What was made here goes into the cache; for what came from elsewhere a redaction may be waiting, and it is read when needed. */
  #remember(room: WorkingRoom, stored: readonly StoredEvent[]): void {
    for (const [index, entry] of stored.entries()) {
      const staged = room.staged[index]!;
      const { event } = entry;
      if (staged.replacesOutlier) this.events.forget([event.eventId]);
      if (!staged.isRemote) this.events.remember(entry, staged.json.length * 2);
      if (staged.redactionRecheck === undefined || event.redacts === undefined || !isServable(entry)) continue;
      const target = this.events.peek(event.redacts);
      if (target && target.event.roomId !== event.roomId) continue;
      const counts = !target || !staged.redactionRecheck || sameServer(event.sender, target.event.sender);
      if (counts) this.events.redact(event.redacts, event.eventId);
    }
  }

  #news(room: WorkingRoom, stored: readonly StoredEvent[], moves: readonly MemberMove[]): News<EventKey> {
    const member = stored.flatMap(({ event }) => (event.type === 'm.room.member' ? (event.stateKey ?? []) : []));
    // Resolution may choose among events of long ago.
    for (const { userId } of moves) member.push(userId);
    const affected = member.filter((userId) => !room.base.localMembers.has(userId));
    const rooms = [room.roomId];
    const users = affected.length === 0 ? room.base.localMembers : new Set([...room.base.localMembers, ...affected]);
    const moved = moves.length === 0 ? [] : moves.filter((move) => this.#isMove(move)).map(({ userId }) => userId);
    return {
      changed: {
        room: rooms,
        ...(room.changes.length > 0 && { state: rooms }),
        ...(member.length > 0 && { member }),
        ...(moved.length > 0 && { entered_or_left: moved, room_entered_or_left: rooms }),
      },
      ...(room.found ? nobody : { users, rooms }),
    };
  }

  /** A new name or avatar is the commonest change of a member, and no move. */
  #isMove({ membership, prevEventId }: MemberMove): boolean {
    return membership !== 'join' || this.#membershipIn(prevEventId) !== 'join';
  }

  /** As far as it is known without a query. */
  #membershipIn(eventId: string | undefined): unknown {
    return eventId === undefined ? undefined : this.events.peek(eventId)?.event.content['membership'];
  }
}

function extremitiesOf({ extremities, extremitiesBefore }: WorkingRoom): { now: number; left: number } {
  let left = 0;
  for (const id of extremitiesBefore) if (extremities.has(id)) left++;
  return { now: extremities.size, left };
}

/** That more members became known wakes none before all are. */
const nobody = { users: [], rooms: [] };

const movesIn = ({ changes }: WorkingRoom, stored: readonly StoredEvent[], position: number): MemberMove[] =>
  changes.flatMap(({ type, stateKey: userId, cause, eventId, prevEventId, membership, event }) =>
    type === 'm.room.member'
      ? [
          {
            ...{ userId, eventId, prevEventId, membership, event },
            streamOrdering: stored[cause]?.streamOrdering ?? position,
          },
        ]
      : [],
  );
