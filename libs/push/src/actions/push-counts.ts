import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { batchesOf, Cache, Config, ownTurn, ReadGuard } from '@rookery/platform';
import { Invalidations, type KeysOf, type Stream, Streams } from '@rookery/replication';
import { eventsStream, InvitePermissions, RoomHooks } from '@rookery/rooms';
import { selectGroupsOf } from '../rules/rule-groups.query.js';
import { readCounts } from './counted-rooms.js';
import type { EventPush } from './event-push.js';
import { OwnReads } from './own-reads.js';
import {
  raiseMark,
  selectCountedRooms,
  selectMarksIn,
  selectReach,
  selectStoredPushes,
  type ThreadMark,
} from './push-actions.query.js';
import { type CountedPush, storedPushes } from './stored-pushes.js';
import { selectUnreadMessages } from './unread-messages.query.js';

/** Unread notifications. */
export interface UnreadCount {
  readonly notify: number;
  readonly highlight: number;
}

/** Unread notifications of a room by thread; `main` is what is in none. Threads without any are absent. */
export type RoomCounts = ReadonlyMap<string, UnreadCount>;

/** How far a user has read, as receipts tell it. */
export interface ReadReceipt {
  readonly roomId: string;
  readonly userId: string;
  /** `main`, a thread's root, or absent for the whole room. */
  readonly threadId?: string | undefined;
  /** Position of the event; absent where this server does not have it. */
  readonly eventStreamOrdering?: number | undefined;
}

/** Counts by thread. */
type Entry = Map<string, UnreadCount>;

/** A room in which somebody's counts are known. A member's count is what all have in common and their own difference to it. */
interface KnownRoom {
  /** What everybody was told of since the room is known. */
  readonly shared: Entry;
  /** What groups were spared of it, as far as somebody is in them. */
  readonly spared: Map<string, Entry>;
  readonly users: Map<string, KnownUser>;
  /** Up to where what another process stored is counted; of no meaning in the process that stores events. */
  upTo: number;
  /** That is being read now, up to a position. */
  following?: { readonly upTo: number; readonly done: Promise<void> } | undefined;
}

interface KnownUser {
  /** Of users whose rules about the room are the same. */
  readonly groupId: string | undefined;
  /** The difference between what the user has not read and what everybody was told of and the group was not spared. */
  readonly own: Entry;
}

const maxEntries = 200_000;
/** A room with more threads, or groups, than this in memory is read anew. */
const maxShared = 256;
/** Of so many events that another process stored, what they mean is read; beyond that, counts are read anew. */
const maxFollowed = 500;
/** Rooms whose unread messages are counted in a turn of the event loop. */
const messageRoomsPerTurn = 4;
/** Users whose marks are read at once. */
const marksAtOnce = 500;
/** Of events in more threads than this, it is looked only at who has read the whole room. */
const maxThreads = 20;
const keyOf = (roomId: string, userId: string): string => `${roomId}\n${userId}`;

/**
 * How much users have not read. What was asked for once stays in memory and is kept up to date as events are stored, so that
 * the cost of asking again does not grow with what is unread. A process that stores no events reads what they mean when somebody asks: once
 * for all members of their room.
 * @spec client-server-api#receiving-notifications
 */
@Injectable()
export class PushCounts {
  readonly #rooms = new Map<string, KnownRoom>();
  readonly #entries: Cache<string, { readonly roomId: string; readonly userId: string }>;
  /** By room. */
  readonly #guard = new ReadGuard<string>();
  readonly #events: Stream<KeysOf<typeof eventsStream>>;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly ownReads: OwnReads,
    private readonly invalidations: Invalidations,
    private readonly invites: InvitePermissions,
    streams: Streams,
    hooks: RoomHooks,
  ) {
    this.#events = streams.of(eventsStream);
    this.#entries = new Cache(config, 'push_counts', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 2 * maxEntries },
      onGone: ({ roomId, userId }) => this.#unlink(roomId, userId),
    });
    invalidations.on('push_counts', {
      forget: ([roomId = '', userId]) => this.#forgetElsewhere(roomId, userId),
      forgetAll: () => this.#forgetAll(),
    });
    hooks.subscribe({
      // What was stored is read when somebody asks.
      onElsewhere: (news) => {
        if (news === undefined) this.#forgetAll();
      },
    });
  }

  /** Unread counts of a user in rooms; one query for twenty that are not in memory, and more for large ones. Rooms without any have an empty map. */
  async read(userId: string, roomIds: readonly string[]): Promise<Map<string, RoomCounts>> {
    if (!this.#events.isWrittenHere) await this.#follow(roomIds);
    const result = new Map<string, RoomCounts>();
    const missing: string[] = [];
    for (const roomId of roomIds) {
      const room = this.#entries.get(keyOf(roomId, userId)) && this.#rooms.get(roomId);
      const known = room?.users.get(userId);
      if (room && known) result.set(roomId, summed(room, known));
      else missing.push(roomId);
    }
    if (missing.length === 0) return result;
    const reading = this.#guard.begin();
    try {
      const isSettled = await this.ownReads.settle(userId);
      const found = new Map<string, Entry>(missing.map((roomId) => [roomId, new Map()]));
      // Here all that is read before the end of the reading is counted; elsewhere it is known how far.
      const upTo = this.#events.isWrittenHere ? undefined : this.#events.current();
      const [rows, groups] = await Promise.all([
        readCounts(this.database, userId, missing, upTo),
        selectGroupsOf(this.database, userId, missing),
      ]);
      for (const row of rows) {
        const entry = found.get(row.room_id);
        if (entry) change(entry, row.thread_id, row, 1);
      }
      for (const roomId of missing) {
        const entry: Entry = found.get(roomId) ?? new Map();
        result.set(roomId, entry);
        // Somebody changed the counts meanwhile: what was read may be from before or after.
        if (isSettled && reading.isCurrent(roomId)) this.#keep(roomId, userId, groups.get(roomId), entry, upTo);
      }
    } finally {
      reading.end();
    }
    return result;
  }

  /** How many messages a user has not read in rooms, notified or not (MSC2654); one query for a few rooms. Rooms without any are absent. */
  async unreadMessages(userId: string, roomIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (roomIds.length === 0) return new Map();
    await this.ownReads.settle(userId);
    const counted = new Map<string, number>();
    for (const [index, rooms] of batchesOf(roomIds, messageRoomsPerTurn).entries()) {
      if (index > 0) await ownTurn();
      for (const [roomId, count] of await selectUnreadMessages(this.database, userId, rooms))
        counted.set(roomId, count);
    }
    return counted;
  }

  /** Unread notifications in all rooms of a user, and in how many rooms there are any: for badges. An open invite that the user is shown is one. */
  async badge(userId: string): Promise<{ readonly messages: number; readonly rooms: number }> {
    const [rooms, invites] = await Promise.all([
      selectCountedRooms(this.database, userId),
      this.invites.countShown(userId),
    ]);
    const counts = await this.read(userId, rooms);
    const totals = [...counts.values()].map((room) => totalOf(room).notify);
    return {
      messages: totals.reduce((sum, total) => sum + total, invites),
      rooms: totals.filter((total) => total > 0).length + invites,
    };
  }

  /**
   * Users have read something: called in the transaction that stores their receipts. Those of other servers and those of
   * events that are not here are passed over.
   */
  async receiptsInTransaction(tx: Tx, receipts: readonly ReadReceipt[]): Promise<void> {
    const local = receipts.filter(
      ({ userId, eventStreamOrdering }) =>
        eventStreamOrdering !== undefined && domainOf(userId) === this.config.serverName,
    );
    if (local.length === 0) return;
    await Promise.all(
      local.map(({ userId, roomId, threadId, eventStreamOrdering = 0 }) =>
        raiseMark(tx, userId, roomId, threadId, eventStreamOrdering),
      ),
    );
    for (const { roomId, userId } of local) this.changeIn(tx, roomId, () => this.forget(roomId, userId));
  }

  /**
   * Announces that a transaction changes counts of a room, and what to do in memory once it is durable. What is read of
   * the room until then is not kept, since nobody can tell whether it holds the change.
   */
  changeIn(tx: Tx, roomId: string, afterCommit: () => void): void {
    const done = this.#guard.changing(roomId);
    let isCommitted = false;
    tx.afterRollback(done);
    tx.afterCommit(() => {
      isCommitted = true;
      done();
      afterCommit();
    });
    // Where nobody knows whether it is durable, it is read anew.
    tx.unlessRolledBack(() => {
      done();
      if (!isCommitted) this.forget(roomId);
    });
  }

  /**
   * Events are taken back, or go: called in the transaction that does it, while it is still known whom they notified. Whoever had read them
   * counts on; a process that stores no events does not know who that is.
   */
  async takeBackIn(tx: Tx, roomId: string, eventIds: readonly string[]): Promise<void> {
    const reach = await selectReach(tx, eventIds);
    if (reach.size === 0) return;
    let concerned: readonly string[] = [];
    this.changeIn(tx, roomId, () => {
      for (const userId of concerned) this.#drop(roomId, userId);
      this.invalidations.send('push_counts', [roomId]);
    });
    concerned = await this.#unreadBy(tx, roomId, reach);
  }

  /** Users whose counts are in memory, and who may not have read some threads up to somewhere. */
  async #unreadBy(tx: Tx, roomId: string, reach: ReadonlyMap<string, number>): Promise<string[]> {
    const unread: string[] = [];
    const threads = reach.size > maxThreads ? [] : [...reach.keys()];
    for (const userIds of batchesOf([...(this.#rooms.get(roomId)?.users.keys() ?? [])], marksAtOnce)) {
      const marks = await selectMarksIn(tx, roomId, userIds, ['', ...threads]);
      for (const userId of userIds) {
        const read = marks.get(userId);
        const upTo = (threadId: string): number => Math.max(read?.get('') ?? 0, read?.get(threadId) ?? 0);
        if ([...reach].some(([threadId, position]) => upTo(threadId) < position)) unread.push(userId);
      }
    }
    return unread;
  }

  /**
   * Counts events for everybody whose counts are in memory, in the time of those who differ from everybody.
   * @param reads what senders of events have read by that, in the order of the events
   */
  add(roomId: string, pushes: readonly EventPush[], reads: readonly ThreadMark[] = []): void {
    const room = this.#rooms.get(roomId);
    let rest = pushes;
    for (const read of reads) {
      const before = rest.filter(({ streamOrdering }) => streamOrdering <= read.streamOrdering);
      if (room) this.#count(room, before);
      rest = rest.slice(before.length);
      this.#read(room, read);
    }
    if (room === undefined) return;
    this.#count(room, rest);
    if (room.shared.size > maxShared || room.spared.size > maxShared) this.forget(roomId);
  }

  /** What lies before an event in its thread was read by its sender; nothing is noted where nothing was unread. */
  #read(room: KnownRoom | undefined, mark: ThreadMark): void {
    const known = room?.users.get(mark.userId);
    if (room === undefined || known === undefined) {
      this.ownReads.note(mark);
      return;
    }
    const unread = countIn(room, known, mark.threadId);
    const isUnread = unread.notify !== 0 || unread.highlight !== 0;
    if (isUnread && this.ownReads.note(mark)) change(known.own, mark.threadId, unread, -1);
  }

  /** Counts what another process has stored in rooms, as far as it may be read now; one query for all of them. */
  async #follow(roomIds: readonly string[]): Promise<void> {
    const upTo = this.#events.current();
    const behind = new Map<string, KnownRoom>();
    const underWay: Promise<void>[] = [];
    for (const roomId of roomIds) {
      const room = this.#rooms.get(roomId);
      if (room === undefined || !this.#isBehind(roomId, room, upTo)) continue;
      if (room.following === undefined) behind.set(roomId, room);
      else
        underWay.push(
          room.following.upTo >= upTo ? room.following.done : this.#followAgain(roomId, room.following.done),
        );
    }
    if (behind.size > 0) {
      const done = this.#readStored(behind, upTo).finally(() => {
        for (const room of behind.values()) room.following = undefined;
      });
      for (const room of behind.values()) room.following = { upTo, done };
      underWay.push(done);
    }
    await Promise.all(underWay);
  }

  /** What is being read ends too early. */
  async #followAgain(roomId: string, done: Promise<void>): Promise<void> {
    await done;
    await this.#follow([roomId]);
  }

  /** Whether there may be something to count. Where nothing happened, that is known from now on. */
  #isBehind(roomId: string, room: KnownRoom, upTo: number): boolean {
    if (room.upTo >= upTo) return false;
    if (this.#events.changes('room').hasChanged(roomId, room.upTo)) return true;
    room.upTo = upTo;
    return false;
  }

  async #readStored(rooms: ReadonlyMap<string, KnownRoom>, upTo: number): Promise<void> {
    const after = Math.min(...[...rooms.values()].map((room) => room.upTo));
    const limit = maxFollowed + 1;
    const rows = await selectStoredPushes(this.database, [...rooms.keys()], { after, upTo, limit });
    const byRoom = Map.groupBy(rows, (row) => row.room_id);
    for (const [roomId, room] of rooms) {
      // Forgotten meanwhile, and perhaps read anew.
      if (this.#rooms.get(roomId) !== room) continue;
      if (rows.length === limit) {
        this.#drop(roomId);
        continue;
      }
      const stored = (byRoom.get(roomId) ?? []).filter((row) => row.stream_ordering > room.upTo);
      room.upTo = upTo;
      this.#count(room, storedPushes(stored));
      // They have read what lies before it: how much that was, the tables say.
      for (const sender of new Set(stored.map((row) => row.sender))) this.#drop(roomId, sender);
      if (room.shared.size > maxShared || room.spared.size > maxShared) this.#drop(roomId);
    }
  }

  #count(room: KnownRoom, pushes: readonly CountedPush[]): void {
    for (const { everyone, own, except, exceptGroups, sender, threadId } of pushes) {
      const shared = everyone && { notify: 1, highlight: everyone.highlight ? 1 : 0 };
      if (shared) {
        change(room.shared, threadId, shared, 1);
        for (const groupId of exceptGroups) {
          const spared = room.spared.get(groupId);
          if (spared) change(spared, threadId, shared, 1);
        }
      }
      for (const userId of new Set([sender, ...except, ...own.keys()])) {
        const known = room.users.get(userId);
        if (known === undefined) continue;
        const outcome = own.get(userId);
        if (outcome) change(known.own, threadId, { notify: 1, highlight: outcome.highlight ? 1 : 0 }, 1);
        // With a group that was spared, its members were: once is enough. A member with an own way need not be named.
        const isSpared = known.groupId !== undefined && exceptGroups.includes(known.groupId);
        if (shared && !isSpared) change(known.own, threadId, shared, -1);
      }
    }
  }

  /** Drops what is in memory of a room, or of one user in it, in all processes. */
  forget(roomId: string, userId?: string): void {
    this.#drop(roomId, userId);
    this.invalidations.send('push_counts', userId === undefined ? [roomId] : [roomId, userId]);
  }

  /** Another process changed counts: what is being read may be from before. */
  #forgetElsewhere(roomId: string, userId?: string): void {
    this.#guard.changed(roomId);
    this.#drop(roomId, userId);
  }

  #forgetAll(): void {
    this.#guard.changedAll();
    this.#entries.clear();
  }

  #drop(roomId: string, userId?: string): void {
    if (userId !== undefined) this.#entries.delete(keyOf(roomId, userId));
    else
      for (const each of [...(this.#rooms.get(roomId)?.users.keys() ?? [])]) this.#entries.delete(keyOf(roomId, each));
  }

  /** @param upTo how far was counted; absent for everything */
  #keep(roomId: string, userId: string, groupId: string | undefined, counts: Entry, upTo = 0): void {
    const known = this.#rooms.get(roomId);
    // What all have in common was counted up to somewhere else.
    if (known !== undefined && (this.#isBehind(roomId, known, upTo) || known.upTo > upTo)) return;
    this.#entries.set(keyOf(roomId, userId), { roomId, userId });
    const room: KnownRoom = this.#rooms.get(roomId) ?? { shared: new Map(), spared: new Map(), users: new Map(), upTo };
    this.#rooms.set(roomId, room);
    const own: Entry = new Map(counts);
    for (const [threadId, count] of room.shared) change(own, threadId, count, -1);
    if (groupId !== undefined) {
      const spared = room.spared.get(groupId);
      if (spared === undefined) room.spared.set(groupId, new Map());
      for (const [threadId, count] of spared ?? []) change(own, threadId, count, 1);
    }
    room.users.set(userId, { groupId, own });
  }

  #unlink(roomId: string, userId: string): void {
    const room = this.#rooms.get(roomId);
    room?.users.delete(userId);
    if (room?.users.size === 0) this.#rooms.delete(roomId);
  }
}

function change(entry: Entry, threadId: string, by: UnreadCount, sign: 1 | -1): void {
  const before = entry.get(threadId);
  const notify = (before?.notify ?? 0) + sign * by.notify;
  const highlight = (before?.highlight ?? 0) + sign * by.highlight;
  if (notify === 0 && highlight === 0) entry.delete(threadId);
  else entry.set(threadId, { notify, highlight });
}

function summed({ shared, spared }: KnownRoom, { groupId, own }: KnownUser): Entry {
  const sum: Entry = new Map(shared);
  if (groupId !== undefined)
    for (const [threadId, count] of spared.get(groupId) ?? []) change(sum, threadId, count, -1);
  for (const [threadId, count] of own) change(sum, threadId, count, 1);
  return sum;
}

function countIn({ shared, spared }: KnownRoom, { groupId, own }: KnownUser, threadId: string): UnreadCount {
  const told = shared.get(threadId);
  const not = groupId === undefined ? undefined : spared.get(groupId)?.get(threadId);
  const differing = own.get(threadId);
  return {
    notify: (told?.notify ?? 0) - (not?.notify ?? 0) + (differing?.notify ?? 0),
    highlight: (told?.highlight ?? 0) - (not?.highlight ?? 0) + (differing?.highlight ?? 0),
  };
}

/** The sum over all threads of a room. */
export function totalOf(counts: RoomCounts): UnreadCount {
  let notify = 0;
  let highlight = 0;
  for (const count of counts.values()) {
    notify += count.notify;
    highlight += count.highlight;
  }
  return { notify, highlight };
}
