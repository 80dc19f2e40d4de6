import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Database, failureLevel } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { Clock, Config, Logger, Semaphore, type Timer } from '@rookery/platform';
import { defineStream, type Stream, Streams } from '@rookery/replication';
import { RoomAudience } from '../common/room-audience.js';
import { EphemeralHooks, type PresenceTurn } from '../hooks.js';
import { PresenceBoard } from './presence-board.js';
import { PresenceRouting } from './presence-routing.js';
import { isNews, offlineState, type PresenceState } from '../model/presence-state.js';
import {
  highestPresence,
  presenceInStream,
  presenceOf,
  presentUsers,
  roomsOfUsers,
  type StoredPresence,
  writePresence,
} from './presence.query.js';

/** Changes of presence; by whom it concerns is on the {@link PresenceBoard}. */
export const presenceStream = defineStream({ name: 'presence', takenUpTo: highestPresence, read: presenceInStream });

/** Changes are told together, so often at most. */
const flushEveryMs = 1_000;
const firstFlushMs = 50;
/** Long polls that one round of changes ends; others hear with their next sync. */
const maxWoken = 2_000;
/** Rooms larger than this do not end long polls for presence. */
const largestWakingRoom = 1_000;
const maxWakingRooms = 2_000;
const maxRestored = 50_000;

/**
 * Tells others about presence: changes are gathered, written and told in rounds, at most one a second, and a round ends a
 * bounded number of long polls. What was told is on the board.
 */
@Injectable()
export class PresencePublisher implements OnModuleDestroy {
  readonly stream: Stream;
  #board = new PresenceBoard(0);
  #opening: Promise<readonly PresenceState[]> | undefined;
  // Who may have changed, with the new presence where it is not computed from devices.
  #dirty = new Map<string, PresenceState | undefined>();
  /** The same of the round that is being written. */
  #written: ReadonlyMap<string, PresenceState | undefined> = new Map();
  // Told again though nothing changed: rooms of the user did.
  readonly #retell = new Set<string>();
  // Whose rooms are being read, and what happened to them meanwhile.
  readonly #loading = new Set<string>();
  readonly #missed: (readonly [userId: string, roomId: string, joined: boolean])[] = [];
  #compute: (before: PresenceState) => PresenceState = (before) => before;
  #timer: Timer | undefined;
  #lastFlushMs = -Infinity;
  readonly #flushing = new Semaphore(1);
  #excluded: ReadonlySet<string> = new Set();

  // Eight parameters: what is told, to whom, when, and what is remembered of it.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly audience: RoomAudience,
    private readonly routing: PresenceRouting,
    private readonly hooks: EphemeralHooks,
    streams: Streams,
  ) {
    this.stream = streams.of(presenceStream);
  }

  async onModuleDestroy(): Promise<void> {
    this.#timer?.cancel();
    await this.flush();
  }

  /** Opens the stream and loads who was there. Needs the migrated schema. @returns who was there */
  open(): Promise<readonly PresenceState[]> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** Whether presence is shown at all. */
  get enabled(): boolean {
    return this.config.get('presence.enabled') !== false;
  }

  /** What was told. */
  get board(): PresenceBoard {
    return this.#board;
  }

  /** @param compute a local user's presence now, from the last one */
  computeBy(compute: (before: PresenceState) => PresenceState): void {
    this.#compute = compute;
  }

  /** Looks at a user in the next round. @param state what to begin with, where it is not the last presence told */
  mark(userId: string, state?: PresenceState): void {
    if (state !== undefined || !this.#dirty.has(userId)) this.#dirty.set(userId, state);
    this.#schedule();
  }

  /** A user joined or left a room: those in it see somebody new. */
  moved(userId: string, roomId: string, joined: boolean): void {
    if (this.#loading.has(userId)) return void this.#missed.push([userId, roomId, joined]);
    if ((this.#board.roomsOf(userId)?.has(roomId) ?? false) === joined || this.#excluded.has(roomId)) return;
    if (!this.#board.moved(userId, roomId, joined) || !joined) return;
    this.#retell.add(userId);
    this.mark(userId);
  }

  /** A user's presence, told or about to be. */
  async current(userId: string): Promise<PresenceState> {
    const known = this.#dirty.get(userId) ?? this.#written.get(userId) ?? this.#board.find(userId);
    if (known !== undefined) return known;
    const [stored] = await presenceOf(this.database, [userId]);
    return stored ?? offlineState(userId);
  }

  /** A local user's presence by what the devices do now; that of others as it was told. */
  now(before: PresenceState): PresenceState {
    return this.#isLocal(before.userId) ? this.#compute(before) : before;
  }

  /**
   * Takes a position and tells users of it, though no presence changed.
   * @param note remembers what it stands for, before anybody can be told of it
   */
  async announceTo(users: readonly string[], note: (position: number) => void): Promise<void> {
    const { ids, commit } = await this.stream.allocate();
    note(ids[0] ?? 0);
    commit({ users });
  }

  /** Writes and tells what changed until now; resolves when that is done. */
  flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    return this.#flushing.run(() => this.#flush());
  }

  #isLocal(userId: string): boolean {
    return domainOf(userId) === this.config.serverName;
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
    const dirty = (this.#written = this.#dirty);
    const retold = new Set(this.#retell);
    this.#dirty = new Map();
    this.#retell.clear();
    try {
      const turns = await this.#computed(dirty, retold);
      if (turns.length > 0) {
        await this.#tell(turns.map(({ after }) => after));
        this.hooks.presenceTurned(turns.filter(({ before, after }) => isNews(before, after)));
      }
    } catch (error) {
      this.#loading.clear();
      this.#missed.length = 0;
      this.logger[failureLevel(error)]('Could not tell about presence; trying again', {
        err: error,
        users: dirty.size,
      });
      for (const [userId, state] of dirty) if (!this.#dirty.has(userId)) this.#dirty.set(userId, state);
      for (const userId of retold) this.#retell.add(userId);
    }
    this.#written = new Map();
    this.#schedule();
  }

  async #computed(
    dirty: ReadonlyMap<string, PresenceState | undefined>,
    retold: ReadonlySet<string>,
  ): Promise<PresenceTurn[]> {
    const unknown = [...dirty.keys()].filter((userId) => this.#board.find(userId) === undefined);
    const stored = new Map<string, PresenceState>(
      (unknown.length > 0 ? await presenceOf(this.database, unknown) : []).map((one) => [one.userId, one]),
    );
    return [...dirty].flatMap(([userId, given]) => {
      const before = this.#board.find(userId) ?? stored.get(userId) ?? offlineState(userId);
      const base = given ?? before;
      const after = this.now(base);
      if (!retold.has(userId) && !isNews(before, after)) return [];
      return [{ before, after, isLocal: this.#isLocal(userId) }];
    });
  }

  async #tell(news: readonly PresenceState[]): Promise<void> {
    const unknown = news.map(({ userId }) => userId).filter((userId) => this.#board.roomsOf(userId) === undefined);
    for (const userId of unknown) this.#loading.add(userId);
    const loaded = await this.#roomsOf(unknown);
    const roomsOf = (userId: string): Set<string> => new Set(this.#board.roomsOf(userId) ?? loaded.get(userId) ?? []);
    const users = await this.#concerned(news.map(({ userId }) => ({ userId, rooms: roomsOf(userId) })));
    const routed = await this.routing.recipientsOf(news);
    for (const userId of routed.keys()) if (this.#isLocal(userId)) users.add(userId);
    await this.database.write(
      async (tx) => {
        const ids = await this.stream.allocateIn(tx, news.length);
        const placed = news.map((state, index): StoredPresence => ({ ...state, position: ids[index] ?? 0 }));
        await writePresence(tx, placed);
        tx.afterCommit(() => {
          for (const { position, ...state } of placed) this.#board.show(state, position, roomsOf(state.userId));
          this.#loading.clear();
          for (const [userId, roomId, joined] of this.#missed.splice(0)) this.moved(userId, roomId, joined);
        });
        this.stream.announceIn(tx, placed.at(-1)?.position ?? 0, { users });
      },
      { name: 'presence' },
    );
    const local = news.filter(({ userId }) => this.#isLocal(userId));
    if (local.length > 0) this.hooks.presenceChanged(local);
    this.#tellElsewhere(routed);
  }

  /** Tells users of other servers once more whom modules name: these servers forget whom they hear nothing of. */
  async remindElsewhere(states: readonly PresenceState[]): Promise<void> {
    this.#tellElsewhere(await this.routing.recipientsOf(states));
  }

  /** Each server speaks for its own users. */
  #tellElsewhere(routed: ReadonlyMap<string, readonly PresenceState[]>): void {
    for (const [userId, states] of routed) {
      if (this.#isLocal(userId)) continue;
      const ours = states.filter((state) => this.#isLocal(state.userId));
      if (ours.length > 0) this.hooks.presenceFor([userId], ours);
    }
  }

  async #roomsOf(userIds: readonly string[]): Promise<Map<string, Set<string>>> {
    if (userIds.length === 0) return new Map();
    const loaded = await roomsOfUsers(this.database, userIds);
    for (const rooms of loaded.values()) for (const roomId of this.#excluded) rooms.delete(roomId);
    return loaded;
  }

  /** Whose long polls end. */
  async #concerned(
    changed: readonly { readonly userId: string; readonly rooms: ReadonlySet<string> }[],
  ): Promise<Set<string>> {
    const users = new Set(changed.map(({ userId }) => userId));
    const roomIds = new Set<string>();
    for (const { rooms } of changed) {
      for (const roomId of rooms) if (roomIds.size < maxWakingRooms) roomIds.add(roomId);
    }
    for (const members of (await this.audience.ofRooms(roomIds)).values()) {
      if (users.size >= maxWoken) break;
      if (members.size <= largestWakingRoom) for (const member of members) users.add(member);
    }
    return users;
  }

  async #open(): Promise<readonly PresenceState[]> {
    await this.stream.open();
    this.#excluded = new Set(this.config.get('exclude_rooms_from_presence'));
    this.#board = new PresenceBoard(this.stream.current());
    if (!this.enabled) return [];
    const present = await presentUsers(this.database, maxRestored);
    if (present.length === 0) return [];
    const rooms = await this.#roomsOf(present.map(({ userId }) => userId));
    for (const { position, ...state } of present)
      this.#board.restore(state, position, rooms.get(state.userId) ?? new Set());
    return present;
  }
}
