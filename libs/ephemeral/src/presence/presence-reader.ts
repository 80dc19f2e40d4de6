import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { defineRpc, type Stream } from '@rookery/replication';
import { MembershipReader, RoomHooks } from '@rookery/rooms';
import { LRUCache } from 'lru-cache';
import { EphemeralHooks } from '../hooks.js';
import { offlineState, type PresenceState } from '../model/presence-state.js';
import { type BoardQuery, shares } from './presence-board.js';
import { PresencePublisher } from './presence-publisher.js';
import { PresenceRouting } from './presence-routing.js';
import { latestPresence, presenceOf, roomsOfUsers } from './presence.query.js';

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

/** Stored presences that one answer reads at most: of users who are offline. */
const maxOffline = 50_000;
/** Changes that somebody is told who was away since before this process began; and how many of anybody's are looked at for them. */
const maxCaughtUp = 1_000;
const changesPerPage = 1_000;
const maxPages = 20;

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

/** Who of those that are there is shown to whom. */
@Injectable()
export class PresenceReader {
  // Who is to get the presence of everybody here, from which position on.
  readonly #everybody = new LRUCache<string, number>({ maxSize: 50_000, sizeCalculation: () => 1 });
  #lastEverybody = 0;
  readonly #reads = { changes: 0, whole: 0 };

  constructor(
    private readonly publisher: PresencePublisher,
    private readonly routing: PresenceRouting,
    private readonly database: Database,
    private readonly config: Config,
    private readonly memberships: MembershipReader,
    private readonly hooks: EphemeralHooks,
    roomHooks: RoomHooks,
  ) {
    publisher.stream.serve(presenceChanges, ({ joined, fresh, userId, since, upTo }) =>
      this.changes({ userId, since, upTo, joinedRooms: new Set(joined), freshRooms: fresh }),
    );
    roomHooks.subscribe({
      afterCommit: ({ roomId, moves, backfilled }) => {
        if (backfilled || publisher.board.size === 0) return;
        for (const { userId, membership } of moves) publisher.moved(userId, roomId, membership === 'join');
      },
    });
  }

  /** How often what changed was read, and how often everybody, since the start; counted by the process that writes presence. */
  get reads(): Readonly<Record<'changes' | 'whole', number>> {
    return this.#reads;
  }

  /** Whether presence is shown at all. */
  get enabled(): boolean {
    return this.publisher.enabled;
  }

  /**
   * A user's presence for somebody who asks.
   * @throws MatrixError 403 `M_FORBIDDEN` for users who share no room
   */
  async visibleTo(requesterId: string, userId: string): Promise<PresenceState> {
    if (!this.enabled) return offlineState(userId);
    if (userId !== requesterId && !(await this.memberships.sharing(requesterId, [userId])).has(userId))
      throw MatrixError.forbidden('You may not see the presence of this user');
    return this.publisher.now(await this.publisher.current(userId));
  }

  /**
   * Sends users the presence of everybody here who is there, whatever rooms they share: by a module.
   */
  async sendLocalPresenceTo(userIds: readonly string[]): Promise<void> {
    if (!this.enabled) return;
    await this.publisher.flush();
    const local = userIds.filter((userId) => this.#isLocal(userId));
    const others = userIds.filter((userId) => !this.#isLocal(userId));
    if (others.length > 0) this.hooks.presenceFor(others, this.localPresent());
    if (local.length === 0) return;
    await this.publisher.announceTo(local, (position) => {
      for (const userId of local) this.#everybody.set(userId, position);
      this.#lastEverybody = position;
    });
  }

  /** Tells users of other servers once more to whom modules send these presences, whatever rooms they share. */
  async remindElsewhere(states: readonly PresenceState[]): Promise<void> {
    if (this.enabled) await this.publisher.remindElsewhere(states);
  }

  /** Whether {@link changes} could find anything, fresh rooms apart; `false` is certain. Costs no query. */
  mayHaveChanged(since: number): boolean {
    if (!this.#stream.isWrittenHere) return this.enabled && this.#stream.current() > since;
    return this.enabled && (this.#lastEverybody > since || this.publisher.board.changedSince(since));
  }

  /**
   * Presences that changed in `(since, upTo]` of those who share a room, and of everybody who is there in fresh rooms; all
   * of these without `since`. From memory, but for a client that was away since before this process began.
   */
  async changes({ userId, joinedRooms, freshRooms, since, upTo }: PresenceQuery): Promise<PresenceState[]> {
    if (!this.enabled) return [];
    if (!this.#stream.isWrittenHere) {
      const [joined, fresh] = [[...joinedRooms], [...freshRooms]];
      return [...(await this.#stream.askWriter(presenceChanges, { userId, joined, fresh, since, upTo }))];
    }
    const { board } = this.publisher;
    const interest = await this.routing.interestOf(userId);
    const changed: BoardQuery = { userId, joinedRooms, freshRooms, after: since ?? upTo, upTo, interest };
    const isWhole = since === undefined || since < board.earliestKnown;
    this.#reads[isWhole ? 'whole' : 'changes']++;
    const found = new Map(
      (isWhole ? this.#whole(changed) : board.news(changed)).map((state) => [state.userId, state] as const),
    );
    const everybody = this.#everybody.get(userId) ?? 0;
    if (everybody > (since ?? upTo) && everybody <= upTo)
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

  get #stream(): Stream {
    return this.publisher.stream;
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
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

  /** Who changed before this process began, the latest first: all who went offline are among them. */
  async #changedBefore({ userId, joinedRooms, upTo, interest }: BoardQuery, since: number): Promise<PresenceState[]> {
    const seen: PresenceState[] = [];
    let last = upTo;
    for (let page = 0; page < maxPages && seen.length < maxCaughtUp; page++) {
      const changed = await latestPresence(this.database, since, last, changesPerPage);
      const rooms = await roomsOfUsers(
        this.database,
        changed.map((state) => state.userId),
      );
      const isSeen = (other: string): boolean =>
        other === userId || interest?.(other) === true || shares(rooms.get(other) ?? new Set(), joinedRooms);
      seen.push(...changed.filter((state) => isSeen(state.userId)));
      if (changed.length < changesPerPage) break;
      last = changed.at(-1)!.position - 1;
    }
    return seen.slice(0, maxCaughtUp);
  }

  /** Who is offline, where the server is set to tell that to new clients. */
  async #offline({ userId, upTo }: BoardQuery): Promise<PresenceState[]> {
    if (!this.config.get('presence.include_offline_users_on_sync')) return [];
    const others = [...(await this.memberships.usersSharingRoomsWith(userId))].slice(0, maxOffline);
    return (await presenceOf(this.database, others)).filter((state) => state.position <= upTo);
  }
}
