import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database, StreamIds } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Logger, type Timer } from '@rookery/platform';
import { defineStream, Notifier } from '@rookery/replication';
import { MembershipReader, RoomHooks } from '@rookery/rooms';
import { UserHooks } from '@rookery/users';
import { RoomAudience } from '../common/room-audience.js';
import { EphemeralHooks } from '../hooks.js';
import { PresenceBoard, shares } from './presence-board.js';
import { LocalPresence } from './local-presence.js';
import { isNews, offlineState, type PresenceName, type PresenceState } from './presence-state.js';
import {
  highestPresence,
  presenceInStream,
  presenceOf,
  presentUsers,
  roomsOfUsers,
  type StoredPresence,
  writePresence,
} from './presence.query.js';

/** Changes are told together, so often at most. */
const flushEveryMs = 1_000;
const firstFlushMs = 50;
const sweepEveryMs = 5_000;
/** Users of another server go offline when nothing is heard of them for so long. */
const remoteTimeoutMs = 30 * 60_000;
/** Long polls that one round of changes ends; others hear with their next sync. */
const maxWoken = 2_000;
/** Rooms larger than this do not end long polls for presence. */
const largestWakingRoom = 1_000;
const maxRestored = 50_000;
/** Changes that somebody is told who was away since before this process began. */
const maxCaughtUp = 1_000;
const longestStatusBytes = 1_024;

/** Presences in stream order, for followers. */
export const presenceStream = defineStream<StoredPresence>({ name: 'presence', read: presenceInStream });

/** Whom somebody may see, and since when. */
export interface PresenceQuery {
  readonly userId: string;
  /** Rooms that the user has joined. */
  readonly joinedRooms: ReadonlySet<string>;
  /** Those of them that the client hears of for the first time. */
  readonly freshRooms: readonly string[];
  /** Absent for an initial sync. */
  readonly since: number | undefined;
  readonly upTo: number;
}

/**
 * Who is there. Devices' syncs and actions are noted in memory; what others should know is written and told in rounds, at
 * most one a second, and a round ends a bounded number of long polls.
 * @spec client-server-api#presence
 */
@Injectable()
export class PresenceService implements OnModuleInit, OnModuleDestroy {
  #board = new PresenceBoard(0);
  readonly #local: LocalPresence;
  #stream: StreamIds | undefined;
  #opening: Promise<void> | undefined;
  // Who may have changed, with the new presence where it is not computed from devices.
  #dirty = new Map<string, PresenceState | undefined>();
  // Told again though nothing changed: rooms of the user did.
  readonly #retell = new Set<string>();
  #timer: Timer | undefined;
  #sweeper: Timer | undefined;
  #lastFlushMs = -Infinity;
  #flushing: Promise<void> = Promise.resolve();
  #excluded: ReadonlySet<string> = new Set();

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly memberships: MembershipReader,
    private readonly audience: RoomAudience,
    private readonly hooks: EphemeralHooks,
    private readonly rateLimiter: RateLimiter,
    userHooks: UserHooks,
    roomHooks: RoomHooks,
  ) {
    this.#local = new LocalPresence(() => ({
      activeMs: config.get('presence.last_active_granularity'),
      syncGapMs: config.get('presence.sync_online_timeout'),
      idleMs: config.get('presence.idle_timeout'),
    }));
    roomHooks.subscribe({
      afterCommit: ({ roomId, events, room, backfilled }) => {
        if (backfilled || this.#board.size === 0) return;
        for (const { event } of events) {
          const { stateKey: userId } = event;
          if (event.type !== 'm.room.member' || userId === undefined) continue;
          const joined = this.#isLocal(userId) ? room.localMembers.has(userId) : event.content['membership'] === 'join';
          const known = this.#board.roomsOf(userId)?.has(roomId) ?? false;
          if (known === joined || this.#excluded.has(roomId)) continue;
          // The others in the room see somebody new.
          if (this.#board.moved(userId, roomId, joined) && joined) this.#retell.add(userId);
          if (this.#retell.has(userId)) this.#mark(userId);
        }
      },
    });
    userHooks.deactivated.subscribe({
      afterCommit: async ({ userId }) => {
        this.#local.forget(userId);
        this.#mark(userId);
      },
    });
  }

  onModuleInit(): Promise<void> {
    return this.open();
  }

  async onModuleDestroy(): Promise<void> {
    this.#sweeper?.cancel();
    this.#timer?.cancel();
    await this.flush();
  }

  /** Loads the stream's counter and who was there. Needs the migrated schema. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The stream; `current()` is what readers may read up to. */
  get stream(): StreamIds {
    if (!this.#stream) throw new Error('PresenceService.open() has not finished');
    return this.#stream;
  }

  /** Whether presence is shown at all. */
  get enabled(): boolean {
    return this.config.get('presence.enabled') !== false;
  }

  /** Whether devices of local users make their presence. */
  get #tracked(): boolean {
    return this.config.get('presence.enabled') === true;
  }

  /**
   * A device begins to sync. Call what it gives when the sync ends.
   * @param state what the sync says with `set_presence`; `offline` changes nothing
   */
  syncing(userId: string, deviceId: string | undefined, state: PresenceName): () => void {
    if (!this.#tracked || state === 'offline') return () => {};
    const nowMs = this.clock.nowMs();
    const shown = this.#checked(state);
    const changes = this.#local.wouldChange(userId, deviceId, shown, nowMs);
    const ended = this.#local.syncing(userId, deviceId, nowMs);
    if (changes) void this.#comeBy(userId, deviceId, shown);
    return () => ended(this.clock.nowMs());
  }

  /** A device's user did something: sent, read, typed. Costs a look-up while nothing changes by it. */
  active(userId: string, deviceId: string | undefined): void {
    if (!this.#tracked) return;
    this.#local.active(userId, deviceId, this.clock.nowMs());
    if (this.#differs(userId)) this.#mark(userId);
  }

  /**
   * A user sets presence and status message.
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  async setByClient(
    userId: string,
    deviceId: string | undefined,
    state: PresenceName,
    statusMsg: string | undefined,
  ): Promise<void> {
    if (statusMsg !== undefined && (Buffer.byteLength(statusMsg) > longestStatusBytes || !statusMsg.isWellFormed()))
      throw MatrixError.invalidParam(`The status message may not be longer than ${longestStatusBytes} bytes`);
    if (!this.#tracked) return;
    this.#local.set(userId, deviceId, this.#checked(state), this.clock.nowMs());
    await this.#setStatus(userId, statusMsg?.replaceAll('\0', ''));
  }

  /** Sets presences of local users whatever their devices do: by a module. */
  async setForUsers(
    states: readonly { readonly userId: string; readonly state: PresenceName; readonly statusMsg?: string }[],
  ): Promise<void> {
    if (!this.enabled) return;
    for (const { userId, state, statusMsg } of states) {
      this.#local.set(userId, undefined, state, this.clock.nowMs());
      await this.#setStatus(userId, statusMsg);
    }
  }

  /** Presences of users of other servers, as those say. */
  receive(states: readonly PresenceState[]): void {
    if (!this.enabled) return;
    for (const state of states) {
      if (this.#isLocal(state.userId)) continue;
      this.#dirty.set(state.userId, { ...state, lastFederationMs: this.clock.nowMs() });
    }
    this.#schedule();
  }

  /**
   * A user's presence for somebody who asks.
   * @throws MatrixError 403 `M_FORBIDDEN` for users who share no room
   */
  async visibleTo(requesterId: string, userId: string): Promise<PresenceState> {
    if (!this.enabled) return offlineState(userId);
    if (userId !== requesterId && !(await this.memberships.sharing(requesterId, [userId])).has(userId))
      throw MatrixError.forbidden('You may not see the presence of this user');
    return this.#current(userId);
  }

  /** Whether {@link changes} could find anything, fresh rooms apart; `false` is certain. Costs no query. */
  mayHaveChanged(since: number): boolean {
    return this.enabled && this.#board.changedSince(since);
  }

  /**
   * Presences that changed in `(since, upTo]` of those who share a room, and of everybody who is there in fresh rooms; all
   * of these without `since`. From memory, but for a client that was away since before this process began.
   */
  async changes({ userId, joinedRooms, freshRooms, since, upTo }: PresenceQuery): Promise<PresenceState[]> {
    if (!this.enabled) return [];
    const withOffline = this.config.get('presence.include_offline_users_on_sync');
    if (since === undefined) {
      const here = this.#board.news({ userId, joinedRooms, freshRooms: [...joinedRooms], after: upTo, upTo });
      const own = here.some((state) => state.userId === userId) ? [] : this.#board.find(userId);
      const present = own === undefined ? here : here.concat(own);
      return withOffline ? this.#withOffline(userId, present, upTo) : present;
    }
    if (since >= this.#board.earliestKnown)
      return this.#board.news({ userId, joinedRooms, freshRooms, after: since, upTo });
    return this.#caughtUp(userId, joinedRooms, since, upTo);
  }

  /** Who of this server is there now. */
  localPresent(): PresenceState[] {
    return [...this.#board.present()].filter((state) => this.#isLocal(state.userId));
  }

  /** Writes and tells what changed until now; resolves when that is done. */
  flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#flushing = this.#flushing.then(() => this.#flush());
    return this.#flushing;
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
  }

  #checked(state: PresenceName): PresenceName {
    return state === 'busy' && !this.config.get('experimental_features.msc3026_enabled') ? 'online' : state;
  }

  /** A device comes back by a sync, or changes its mind; too often is passed over, until the next sync. */
  async #comeBy(userId: string, deviceId: string | undefined, state: PresenceName): Promise<void> {
    try {
      await this.rateLimiter.take('rc_presence.per_user', userId);
    } catch (error) {
      if (!MatrixError.is(error)) this.logger.error('Could not limit presence', { err: error });
      return;
    }
    this.#local.set(userId, deviceId, state, this.clock.nowMs());
    if (this.#differs(userId)) this.#mark(userId);
  }

  async #setStatus(userId: string, statusMsg: string | undefined): Promise<void> {
    const before = this.#dirty.get(userId) ?? (await this.#current(userId));
    this.#mark(userId, { ...before, statusMsg });
  }

  async #current(userId: string): Promise<PresenceState> {
    const shown = this.#board.find(userId);
    if (shown !== undefined) return shown;
    const [stored] = await presenceOf(this.database, [userId]);
    return stored ?? offlineState(userId);
  }

  #differs(userId: string): boolean {
    const before = this.#board.find(userId) ?? offlineState(userId);
    return isNews(before, this.#local.combined(before, this.clock.nowMs()));
  }

  #mark(userId: string, state?: PresenceState): void {
    if (state !== undefined || !this.#dirty.has(userId)) this.#dirty.set(userId, state);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#dirty.size === 0) return;
    const sinceLastMs = this.clock.monotonicMs() - this.#lastFlushMs;
    const delayMs = Math.max(firstFlushMs, flushEveryMs - sinceLastMs);
    this.#timer = this.clock.after(delayMs, () => void this.flush());
  }

  async #flush(): Promise<void> {
    if (this.#dirty.size === 0) return;
    this.#lastFlushMs = this.clock.monotonicMs();
    const dirty = this.#dirty;
    const retold = new Set(this.#retell);
    this.#dirty = new Map();
    this.#retell.clear();
    try {
      const news = await this.#computed(dirty, retold);
      if (news.length > 0) await this.#tell(news);
    } catch (error) {
      this.logger.error('Could not tell about presence; trying again', { err: error, users: dirty.size });
      for (const [userId, state] of dirty) if (!this.#dirty.has(userId)) this.#dirty.set(userId, state);
      for (const userId of retold) this.#retell.add(userId);
    }
    this.#schedule();
  }

  async #computed(
    dirty: ReadonlyMap<string, PresenceState | undefined>,
    retold: ReadonlySet<string>,
  ): Promise<PresenceState[]> {
    const unknown = [...dirty.keys()].filter((userId) => this.#board.find(userId) === undefined);
    const stored = new Map<string, PresenceState>(
      (unknown.length > 0 ? await presenceOf(this.database, unknown) : []).map((one) => [one.userId, one]),
    );
    const nowMs = this.clock.nowMs();
    return [...dirty].flatMap(([userId, given]) => {
      const before = this.#board.find(userId) ?? stored.get(userId) ?? offlineState(userId);
      const base = given ?? before;
      const after = this.#isLocal(userId) ? this.#local.combined(base, nowMs) : base;
      return retold.has(userId) || isNews(before, after) ? [after] : [];
    });
  }

  async #tell(news: readonly PresenceState[]): Promise<void> {
    const unknown = news.filter(({ userId }) => this.#board.roomsOf(userId) === undefined);
    const loaded = await roomsOfUsers(
      this.database,
      unknown.map(({ userId }) => userId),
    );
    for (const rooms of loaded.values()) for (const roomId of this.#excluded) rooms.delete(roomId);
    const roomsOf = (userId: string): Set<string> => new Set(this.#board.roomsOf(userId) ?? loaded.get(userId) ?? []);
    const users = await this.#concerned(news.map(({ userId }) => ({ userId, rooms: roomsOf(userId) })));
    await this.database.write(
      async (tx) => {
        const ids = await this.stream.allocateIn(tx, news.length);
        const placed = news.map((state, index): StoredPresence => ({ ...state, position: ids[index] ?? 0 }));
        await writePresence(tx, placed);
        tx.afterCommit(() => {
          for (const { position, ...state } of placed) this.#board.show(state, position, roomsOf(state.userId));
          this.notifier.announce(this.stream.name, placed.at(-1)?.position ?? 0, { users });
        });
      },
      { name: 'presence' },
    );
    const local = news.filter(({ userId }) => this.#isLocal(userId));
    if (local.length > 0) this.hooks.presenceChanged(local);
  }

  /** Whose long polls end. */
  async #concerned(
    changed: readonly { readonly userId: string; readonly rooms: ReadonlySet<string> }[],
  ): Promise<Set<string>> {
    const users = new Set<string>();
    const seen = new Set<string>();
    for (const { userId, rooms } of changed) {
      users.add(userId);
      for (const roomId of rooms) {
        if (users.size >= maxWoken) return users;
        if (seen.has(roomId)) continue;
        seen.add(roomId);
        const members = await this.audience.localMembers(roomId);
        if (members.size > largestWakingRoom) continue;
        for (const member of members) users.add(member);
      }
    }
    return users;
  }

  /** For a client that was away since before this process began. */
  async #caughtUp(
    userId: string,
    joinedRooms: ReadonlySet<string>,
    since: number,
    upTo: number,
  ): Promise<PresenceState[]> {
    const here = this.#board.news({ userId, joinedRooms, freshRooms: [...joinedRooms], after: upTo, upTo });
    const known = new Set(here.map((state) => state.userId));
    const changed = await presenceInStream(this.database, since, upTo, maxCaughtUp);
    const others = changed.filter((state) => !known.has(state.userId));
    if (others.length === 0) return here;
    const rooms = await roomsOfUsers(
      this.database,
      others.map((state) => state.userId),
    );
    return here.concat(
      others.filter((state) => state.userId === userId || shares(rooms.get(state.userId) ?? new Set(), joinedRooms)),
    );
  }

  async #withOffline(userId: string, present: readonly PresenceState[], upTo: number): Promise<PresenceState[]> {
    const known = new Set(present.map((state) => state.userId));
    const others = [...(await this.memberships.usersSharingRoomsWith(userId))].filter((other) => !known.has(other));
    const stored = await presenceOf(this.database, others.slice(0, maxRestored));
    return present.concat(stored.filter((state) => state.position <= upTo));
  }

  #sweep(): void {
    const nowMs = this.clock.nowMs();
    for (const state of this.#board.present()) {
      if (this.#isLocal(state.userId)) {
        if (this.#differs(state.userId)) this.#mark(state.userId);
      } else if (nowMs - state.lastFederationMs > remoteTimeoutMs) {
        this.#mark(state.userId, { ...state, state: 'offline', currentlyActive: false });
      }
    }
    this.#local.sweep(nowMs);
  }

  async #open(): Promise<void> {
    this.#stream = await StreamIds.load(this.database, 'presence', {
      takenUpTo: await highestPresence(this.database),
    });
    this.#excluded = new Set(this.config.get('exclude_rooms_from_presence'));
    this.#board = new PresenceBoard(this.#stream.current());
    this.notifier.track(this.#stream);
    const present = this.enabled ? await presentUsers(this.database, maxRestored) : [];
    if (present.length > 0) {
      const rooms = await roomsOfUsers(
        this.database,
        present.map(({ userId }) => userId),
      );
      for (const { position, ...state } of present) {
        this.#board.restore(state, position, rooms.get(state.userId) ?? new Set());
        // Everybody has the usual time to sync again.
        if (this.#isLocal(state.userId)) this.#local.restore(state, this.clock.nowMs());
      }
    }
    this.#sweeper = this.clock.every(sweepEveryMs, () => this.#sweep());
  }
}
