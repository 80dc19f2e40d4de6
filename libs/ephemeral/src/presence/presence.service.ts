import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { BackgroundTasks, Clock, Config, Logger } from '@rookery/platform';
import { defineRpc, type Stream } from '@rookery/replication';
import { MembershipReader, RoomHooks } from '@rookery/rooms';
import { UserHooks } from '@rookery/users';
import { LRUCache } from 'lru-cache';
import { EphemeralHooks } from '../hooks.js';
import { LocalPresence } from './local-presence.js';
import { type BoardQuery, shares } from './presence-board.js';
import { PresencePublisher } from './presence-publisher.js';
import { PresenceRouting } from './presence-routing.js';
import { isNews, offlineState, type PresenceName, type PresenceState } from '../model/presence-state.js';
import { presenceInStream, presenceOf, roomsOfUsers } from './presence.query.js';

/** A device syncs by way of another process. */
const syncingElsewhere = defineRpc<SyncingDevice, void>('presence_syncing');

interface SyncingDevice {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly state: PresenceName;
}

/** Whom somebody sees, for another process: who is there is in memory where the stream is written. */
const presenceChanges = defineRpc<
  {
    readonly userId: string;
    readonly joined: readonly string[];
    readonly fresh: readonly string[];
    readonly since: number | undefined;
    readonly upTo: number;
  },
  readonly PresenceState[]
>('presence_changes');

/** How often another process tells that a sync goes on; less than what counts as its end. */
const tellAgainMs = 10_000;
const sweepEveryMs = 5_000;
/** Users of another server go offline when nothing is heard of them for so long. */
const remoteTimeoutMs = 30 * 60_000;
/** Stored presences that one answer reads at most: of users who are offline. */
const maxOffline = 50_000;
/** Changes that somebody is told who was away since before this process began. */
const maxCaughtUp = 1_000;
const longestStatusBytes = 1_024;

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
 * Who is there. What devices of local users do is noted in memory; {@link PresencePublisher} tells others what they should
 * know.
 * @spec client-server-api#presence
 */
@Injectable()
export class PresenceService implements OnModuleInit {
  readonly #local: LocalPresence;
  /** Users whose presence a sync is about to change. */
  readonly #coming = new Map<string, Promise<void>>();
  // Who is to get the presence of everybody here, from which position on.
  readonly #everybody = new LRUCache<string, number>({ maxSize: 50_000, sizeCalculation: () => 1 });
  #lastEverybody = 0;
  #opening: Promise<void> | undefined;

  // Twelve parameters: what clients do, what others may see, and what is swept all work on the one board of the
  // publisher.
  constructor(
    private readonly publisher: PresencePublisher,
    private readonly routing: PresenceRouting,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly memberships: MembershipReader,
    private readonly rateLimiter: RateLimiter,
    private readonly hooks: EphemeralHooks,
    private readonly tasks: BackgroundTasks,
    userHooks: UserHooks,
    roomHooks: RoomHooks,
  ) {
    this.#local = new LocalPresence(() => ({
      activeMs: config.get('presence.last_active_granularity'),
      syncGapMs: config.get('presence.sync_online_timeout'),
      idleMs: config.get('presence.idle_timeout'),
    }));
    publisher.stream.serve(syncingElsewhere, async ({ userId, deviceId, state }) =>
      this.syncing(userId, deviceId, state)(),
    );
    publisher.stream.serve(presenceChanges, ({ joined, fresh, userId, since, upTo }) =>
      this.changes({ userId, since, upTo, joinedRooms: new Set(joined), freshRooms: fresh }),
    );
    publisher.computeBy((before) => this.#now(before));
    roomHooks.subscribe({
      afterCommit: ({ roomId, moves, backfilled }) => {
        if (backfilled || publisher.board.size === 0) return;
        for (const { userId, membership } of moves) publisher.moved(userId, roomId, membership === 'join');
      },
    });
    userHooks.deactivated.subscribe({
      afterCommit: async ({ userId }) => {
        this.#local.forget(userId);
        this.publisher.mark(userId);
      },
    });
  }

  onModuleInit(): Promise<void> {
    return this.open();
  }

  /** Loads the stream's counter and who was there. Needs the migrated schema. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** The stream; `current()` is what readers may read up to. */
  get stream(): Stream {
    return this.publisher.stream;
  }

  /** How many users' presence is in memory. */
  get known(): number {
    return this.publisher.board.size;
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
    if (!this.stream.isWrittenHere) return this.#syncingElsewhere({ userId, deviceId, state });
    const nowMs = this.clock.nowMs();
    const shown = this.#checked(state);
    const changes = this.#local.wouldChange(userId, deviceId, shown, nowMs);
    const ended = this.#local.syncing(userId, deviceId, nowMs);
    if (changes) this.#noteComing(userId, this.#comeBy(userId, deviceId, shown));
    return () => ended(this.clock.nowMs());
  }

  /**
   * Tells the process that knows who is there, again and again while the sync goes on: nobody is left online by a process that is
   * lost.
   */
  #syncingElsewhere(who: SyncingDevice): () => void {
    const tell = (): void => {
      this.stream.atWriter(syncingElsewhere, who).catch((err: unknown) => {
        this.logger.debug('Nobody could be told that a device syncs', { err });
      });
    };
    tell();
    const telling = this.clock.every(tellAgainMs, tell);
    return () => {
      telling.cancel();
      tell();
    };
  }

  /** Resolves when it is told what a sync that has just begun makes of a user's presence. */
  async arrived(userId: string): Promise<void> {
    const coming = this.#coming.get(userId);
    if (coming === undefined) return;
    await coming;
    await this.publisher.flush();
  }

  #noteComing(userId: string, coming: Promise<void>): void {
    this.#coming.set(userId, coming);
    void coming.finally(() => {
      if (this.#coming.get(userId) === coming) this.#coming.delete(userId);
    });
  }

  /** A device's user did something: sent, read, typed. Costs a look-up while nothing changes by it. */
  active(userId: string, deviceId: string | undefined): void {
    if (!this.#tracked) return;
    this.#local.active(userId, deviceId, this.clock.nowMs());
    if (this.#differs(userId)) this.publisher.mark(userId);
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
      this.publisher.mark(state.userId, { ...state, lastFederationMs: this.clock.nowMs() });
    }
  }

  /**
   * A user's presence for somebody who asks.
   * @throws MatrixError 403 `M_FORBIDDEN` for users who share no room
   */
  async visibleTo(requesterId: string, userId: string): Promise<PresenceState> {
    if (!this.enabled) return offlineState(userId);
    if (userId !== requesterId && !(await this.memberships.sharing(requesterId, [userId])).has(userId))
      throw MatrixError.forbidden('You may not see the presence of this user');
    return this.#now(await this.publisher.current(userId));
  }

  /**
   * Sends users the presence of everybody here who is there, whatever rooms they share: by a module.
   */
  async sendLocalPresenceTo(userIds: readonly string[]): Promise<void> {
    if (!this.enabled) return;
    await this.flush();
    const local = userIds.filter((userId) => this.#isLocal(userId));
    const others = userIds.filter((userId) => !this.#isLocal(userId));
    if (others.length > 0) this.hooks.presenceFor(others, this.localPresent());
    if (local.length === 0) return;
    await this.publisher.announceTo(local, (position) => {
      for (const userId of local) this.#everybody.set(userId, position);
      this.#lastEverybody = position;
    });
  }

  /** Whether {@link changes} could find anything, fresh rooms apart; `false` is certain. Costs no query. */
  mayHaveChanged(since: number): boolean {
    if (!this.stream.isWrittenHere) return this.enabled && this.stream.current() > since;
    return this.enabled && (this.#lastEverybody > since || this.publisher.board.changedSince(since));
  }

  /**
   * Presences that changed in `(since, upTo]` of those who share a room, and of everybody who is there in fresh rooms; all
   * of these without `since`. From memory, but for a client that was away since before this process began.
   */
  async changes({ userId, joinedRooms, freshRooms, since, upTo }: PresenceQuery): Promise<PresenceState[]> {
    if (!this.enabled) return [];
    if (!this.stream.isWrittenHere) {
      const [joined, fresh] = [[...joinedRooms], [...freshRooms]];
      return [...(await this.stream.atWriter(presenceChanges, { userId, joined, fresh, since, upTo }))];
    }
    const { board } = this.publisher;
    const interest = await this.routing.interestOf(userId);
    const changed: BoardQuery = { userId, joinedRooms, freshRooms, after: since ?? upTo, upTo, interest };
    const isWhole = since === undefined || since < board.earliestKnown;
    const found = new Map(
      (isWhole ? this.#whole(changed) : board.news(changed)).map((state) => [state.userId, state] as const),
    );
    if ((this.#everybody.get(userId) ?? 0) > (since ?? upTo))
      for (const state of this.localPresent()) found.set(state.userId, state);
    if (isWhole) {
      const offline = since === undefined ? await this.#offline(changed) : await this.#changedBefore(changed, since);
      for (const state of offline) if (!found.has(state.userId)) found.set(state.userId, state);
    }
    return [...found.values()];
  }

  /** Who of this server is there now. */
  localPresent(): PresenceState[] {
    return [...this.publisher.board.present()].filter((state) => this.#isLocal(state.userId));
  }

  /** Writes and tells what changed until now; resolves when that is done. */
  flush(): Promise<void> {
    return this.publisher.flush();
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
    if (this.#differs(userId)) this.publisher.mark(userId);
  }

  async #setStatus(userId: string, statusMsg: string | undefined): Promise<void> {
    const before = await this.publisher.current(userId);
    this.publisher.mark(userId, { ...before, statusMsg });
  }

  /** A local user's presence by what the devices do now; that of others as it was told. */
  #now(before: PresenceState): PresenceState {
    return this.#isLocal(before.userId) ? this.#local.combined(before, this.clock.nowMs()) : before;
  }

  #differs(userId: string): boolean {
    const before = this.publisher.board.find(userId) ?? offlineState(userId);
    return isNews(before, this.#now(before));
  }

  /** Everybody who is there. */
  #whole({ userId, joinedRooms, upTo, interest }: BoardQuery): PresenceState[] {
    const { board } = this.publisher;
    const here = board.news({ userId, joinedRooms, freshRooms: [...joinedRooms], after: upTo, upTo });
    const known = new Set(here.map((state) => state.userId));
    const own = known.has(userId) ? undefined : board.find(userId);
    const others = interest ? [...board.present()].filter((one) => interest(one.userId) && !known.has(one.userId)) : [];
    return own === undefined ? here.concat(others) : here.concat(own, others);
  }

  /** Who changed before this process began: all who went offline are among them. */
  async #changedBefore({ userId, joinedRooms, upTo, interest }: BoardQuery, since: number): Promise<PresenceState[]> {
    const changed = await presenceInStream(this.database, since, upTo, maxCaughtUp);
    if (changed.length === 0) return [];
    const userIds = changed.map((state) => state.userId);
    const rooms = await roomsOfUsers(this.database, userIds);
    const isSeen = (other: string): boolean =>
      other === userId || interest?.(other) === true || shares(rooms.get(other) ?? new Set(), joinedRooms);
    return changed.filter((state) => isSeen(state.userId));
  }

  /** Who is offline, where the server is set to tell that to new clients. */
  async #offline({ userId, upTo }: BoardQuery): Promise<PresenceState[]> {
    if (!this.config.get('presence.include_offline_users_on_sync')) return [];
    const others = [...(await this.memberships.usersSharingRoomsWith(userId))].slice(0, maxOffline);
    return (await presenceOf(this.database, others)).filter((state) => state.position <= upTo);
  }

  #sweep(): void {
    const nowMs = this.clock.nowMs();
    for (const state of this.publisher.board.present()) {
      if (this.#isLocal(state.userId)) {
        if (this.#differs(state.userId)) this.publisher.mark(state.userId);
      } else if (nowMs - state.lastFederationMs > remoteTimeoutMs) {
        this.publisher.mark(state.userId, { ...state, state: 'offline', currentlyActive: false });
      }
    }
    this.#local.sweep(nowMs);
  }

  async #open(): Promise<void> {
    // What devices do is known where the stream is written.
    if (!this.stream.isWrittenHere) return void (await this.publisher.open());
    for (const state of await this.publisher.open()) {
      // Everybody has the usual time to sync again.
      if (this.#isLocal(state.userId)) this.#local.restore(state, this.clock.nowMs());
    }
    const run = (): void => this.#sweep();
    this.tasks.add({ name: 'sweep_presence', role: 'presence', everyMs: sweepEveryMs, run }).start();
  }
}
