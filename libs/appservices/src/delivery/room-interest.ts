import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RoomAudience } from '@rookery/ephemeral';
import { Cache, Config } from '@rookery/platform';
import { type EventBatch, EventStore, RoomHooks, type StoredEvent } from '@rookery/rooms';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { RoomMembers } from './room-members.js';
import { aliasesOfRooms, membersGoneSince, roomsOfUsers } from './room-interest.query.js';

/** Services that are interested in something. */
export type Services = ReadonlySet<Registration>;

/** A user of a service who came to a room or went, behind the position of the follower. */
interface Move {
  readonly userId: string;
  readonly streamOrdering: number;
  readonly came: boolean;
}

/** What is known of a room as it is now. */
interface RoomNow {
  /** Services that are interested in it by its id or an alias. */
  readonly named: Services;
  readonly members: RoomMembers;
}

const maxUsers = 50_000;
/** Rooms, and members in them, that are kept. */
const maxKept = 500_000;

/**
 * Which services want to know what happens in a room: those in whose namespaces its id or one of its aliases lies, and those
 * with a local user in it. From memory for rooms in use; how many are in a room does not matter.
 * @spec application-service-api#registration
 */
@Injectable()
export class RoomInterest implements OnModuleInit {
  #services: readonly Registration[] | undefined;
  readonly #ofUser: Cache<string, readonly Registration[]>;
  readonly #members: Cache<string, RoomMembers>;
  /** Moves by room: what was said before one is for those who were there then. */
  readonly #moves = new Map<string, Move[]>();

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly audience: RoomAudience,
    private readonly events: EventStore,
    private readonly hooks: RoomHooks,
    private readonly database: Database,
    private readonly config: Config,
  ) {
    this.#ofUser = new Cache(config, 'appservices_of_users', { invalidation: 'never', max: 2 * maxUsers });
    this.#members = new Cache(config, 'appservice_room_members', {
      ...{ invalidation: 'stream events', elsewhere: 'told', max: 2 * maxKept },
      sizeOf: (members) => 1 + members.size,
    });
  }

  onModuleInit(): void {
    if (this.services.length === 0) return;
    this.hooks.subscribe({
      afterCommit: (batch) => this.#noteMoves(batch),
      onElsewhere: (news) => {
        if (news === undefined) this.#members.clear();
        else if (news.members.length > 0) for (const roomId of news.rooms) this.#members.delete(roomId);
      },
      onRoomPurged: async (tx, roomId) => {
        tx.unlessRolledBack(() => this.#members.delete(roomId));
      },
    });
  }

  /** Services that want to be told anything. */
  get services(): readonly Registration[] {
    this.#services ??= this.registry.all.filter((one) => one.fields.url !== undefined);
    return this.#services;
  }

  /** Reads who went behind a position, as it was before a restart. */
  async recall(position: number): Promise<void> {
    const gone = await membersGoneSince(this.database, position, this.config.serverName);
    for (const { roomId, userId, streamOrdering } of gone)
      if (this.ofUser(userId).length > 0) this.#noteMove(roomId, { userId, streamOrdering, came: false });
  }

  /** Forgets who came and went up to a position. */
  forget(upTo: number): void {
    for (const [roomId, moves] of this.#moves) {
      const later = moves.filter(({ streamOrdering }) => streamOrdering > upTo);
      if (later.length > 0) this.#moves.set(roomId, later);
      else this.#moves.delete(roomId);
    }
  }

  /** Services that cover a user. */
  ofUser(userId: string): readonly Registration[] {
    const known = this.#ofUser.get(userId);
    if (known) return known;
    const services = this.services.filter((one) => one.covers(userId));
    this.#ofUser.set(userId, services);
    return services;
  }

  /** Joined local users of each of some rooms in whom a service is interested; in any process. */
  async membersOf(roomIds: ReadonlySet<string>): Promise<ReadonlySet<string>[]> {
    return [...(await this.#loadMembers(roomIds)).values()].map(({ users }) => users);
  }

  /** Services that are interested in each of some rooms as they are now, in two queries at most. */
  async ofRooms(roomIds: ReadonlySet<string>): Promise<Map<string, Services>> {
    const rooms = await this.#look(roomIds);
    return new Map([...rooms].map(([roomId, room]) => [roomId, union(room.named, room.members.services())]));
  }

  /** Services that are interested in each of some events, by who was in the room when it happened. */
  async ofEvents(events: readonly StoredEvent[]): Promise<Services[]> {
    const rooms = await this.#look(new Set(events.map(({ event }) => event.roomId)));
    return events.map(({ event, streamOrdering }) => {
      const room = rooms.get(event.roomId);
      const since = (this.#moves.get(event.roomId) ?? []).filter((move) => move.streamOrdering > streamOrdering);
      const services = new Set([...(room?.named ?? []), ...(room?.members.services(this.#undone(since)) ?? [])]);
      for (const one of this.ofUser(event.sender)) services.add(one);
      if (event.type === 'm.room.member' && event.stateKey !== undefined)
        for (const one of this.ofUser(event.stateKey)) services.add(one);
      return services;
    });
  }

  /** Services that cover each of some users, or have a room in common with them. */
  async ofUsers(userIds: readonly string[]): Promise<Map<string, Services>> {
    const rooms = await roomsOfUsers(this.database, userIds);
    const interested = await this.ofRooms(new Set([...rooms.values()].flat()));
    return new Map(
      userIds.map((userId) => {
        const services = new Set(this.ofUser(userId));
        for (const roomId of rooms.get(userId) ?? []) for (const one of interested.get(roomId) ?? []) services.add(one);
        return [userId, services];
      }),
    );
  }

  /** How many users of each service were more, or fewer, before some moves. */
  #undone(moves: readonly Move[]): ReadonlyMap<Registration, number> {
    const more = new Map<Registration, number>();
    for (const { userId, came } of moves)
      for (const one of this.ofUser(userId)) more.set(one, (more.get(one) ?? 0) + (came ? -1 : 1));
    return more;
  }

  async #look(roomIds: ReadonlySet<string>): Promise<Map<string, RoomNow>> {
    const [aliases, members] = await Promise.all([this.#aliases(roomIds), this.#loadMembers(roomIds)]);
    const rooms = new Map<string, RoomNow>();
    for (const [roomId, inRoom] of members) {
      const names = aliases.get(roomId) ?? [];
      const isNamed = (one: Registration): boolean =>
        one.coversRoom(roomId) || names.some((alias) => one.coversAlias(alias));
      rooms.set(roomId, { named: new Set(this.services.filter(isNamed)), members: inRoom });
    }
    return rooms;
  }

  async #aliases(roomIds: ReadonlySet<string>): Promise<ReadonlyMap<string, readonly string[]>> {
    const areWanted = this.services.some((one) => one.fields.namespaces.aliases.length > 0);
    return areWanted && roomIds.size > 0 ? aliasesOfRooms(this.database, [...roomIds]) : new Map<string, string[]>();
  }

  async #loadMembers(roomIds: ReadonlySet<string>): Promise<Map<string, RoomMembers>> {
    let missing = [...roomIds].filter((roomId) => !this.#members.has(roomId));
    const own = new Map<string, RoomMembers>();
    while (missing.length > 0) {
      const reading = this.#members.begin();
      try {
        for (const [roomId, users] of await this.audience.ofRooms(missing)) {
          const members = new RoomMembers((userId) => this.ofUser(userId), users);
          own.set(roomId, members);
          reading.keep(roomId, members);
        }
        missing = missing.filter((roomId) => !reading.isCurrent(roomId));
      } finally {
        reading.end();
      }
    }
    // Those in memory follow what happened since; a room too many for the memory is as it was read.
    return new Map([...roomIds].map((roomId) => [roomId, this.#members.get(roomId) ?? own.get(roomId)!]));
  }

  #noteMoves({ roomId, moves, room, backfilled }: EventBatch): void {
    if (backfilled) return;
    const members = this.#members.get(roomId);
    const moved = new Set<string>();
    for (const move of moves) {
      const { userId, streamOrdering } = move;
      if (this.ofUser(userId).length === 0) continue;
      const was = members ? members.users.has(userId) : this.#wasJoined(move);
      const is = move.membership === 'join';
      if (was !== undefined && was !== is) this.#noteMove(roomId, { userId, streamOrdering, came: is });
      members?.change(userId, is);
      moved.add(userId);
    }
    if (moved.size === 0) return;
    // What the room's state says has the last word.
    for (const userId of moved) members?.change(userId, room.localMembers.has(userId));
    if (members) this.#members.set(roomId, members);
    else this.#members.delete(roomId);
  }

  /** Whether somebody was in the room before a move; `undefined` where that is not in memory. */
  #wasJoined({ prevEventId, membership }: EventBatch['moves'][number]): boolean | undefined {
    if (prevEventId === undefined) return false;
    const before = this.events.peek(prevEventId)?.event.content['membership'];
    if (before !== undefined) return before === 'join';
    // Who left may have been there: better told of what was said before than not.
    return membership === 'join' ? undefined : true;
  }

  #noteMove(roomId: string, move: Move): void {
    const list = this.#moves.get(roomId);
    if (list) list.push(move);
    else this.#moves.set(roomId, [move]);
  }
}

const union = (one: Services, other: Services): Services =>
  one.size === 0 ? other : other.size === 0 ? one : new Set([...one, ...other]);
