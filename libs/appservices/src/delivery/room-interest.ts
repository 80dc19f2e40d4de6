import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RoomAudience } from '@rookery/ephemeral';
import { Config } from '@rookery/platform';
import { type EventBatch, RoomHooks, type StoredEvent } from '@rookery/rooms';
import { LRUCache } from 'lru-cache';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { aliasesOfRooms, type Departure, departuresAfter, roomsOfUsers } from './room-interest.query.js';

type Services = ReadonlySet<Registration>;

const maxUsers = 50_000;
/** Rooms, and members in them, that are kept. */
const maxKept = 500_000;
const nobody: ReadonlySet<string> = new Set();

/**
 * Which services want to know what happens in a room: those in whose namespaces its id or one of its aliases lies, and those
 * with a local user in it. From memory for rooms in use; a room's other members cost nothing.
 * @spec application-service-api#registration
 */
@Injectable()
export class RoomInterest implements OnModuleInit {
  #services: readonly Registration[] | undefined;
  readonly #ofUser = new LRUCache<string, readonly Registration[]>({ maxSize: maxUsers, sizeCalculation: () => 1 });
  /** Joined local users of each room in whom a service is interested. */
  readonly #members = new LRUCache<string, Set<string>>({
    maxSize: maxKept,
    sizeCalculation: (members) => 1 + members.size,
  });
  /** Changes of membership so far: what was read before one may be old. */
  #changes = 0;
  /** Who went, behind the position of the follower: what was said before still concerns them. */
  #departures = new Map<string, Departure[]>();

  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly audience: RoomAudience,
    private readonly hooks: RoomHooks,
    private readonly database: Database,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    if (this.services.length === 0) return;
    this.hooks.subscribe({
      afterCommit: (batch) => this.#noteMoves(batch),
      onRoomPurged: async (tx, roomId) => {
        tx.afterCommit(() => this.#members.delete(roomId));
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
    const found = await departuresAfter(this.database, position, this.config.serverName);
    for (const departure of found) if (this.ofUser(departure.userId).length > 0) this.#noteDeparture(departure);
  }

  /** Forgets who went up to a position. */
  forget(upTo: number): void {
    for (const [roomId, departures] of this.#departures) {
      const later = departures.filter(({ streamOrdering }) => streamOrdering > upTo);
      if (later.length > 0) this.#departures.set(roomId, later);
      else this.#departures.delete(roomId);
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

  /** Joined local users of a room in whom a service is interested, as far as they are in memory. */
  membersOf(roomId: string): ReadonlySet<string> {
    return this.#members.get(roomId) ?? nobody;
  }

  /** Services that are interested in each of some rooms as they are now, in two queries at most. */
  async ofRooms(roomIds: ReadonlySet<string>): Promise<Map<string, Services>> {
    const [members, aliases] = await Promise.all([this.#loadMembers(roomIds), this.#aliases(roomIds)]);
    const interested = new Map<string, Services>();
    for (const roomId of roomIds) {
      const services = new Set(this.services.filter((one) => one.coversRoom(roomId)));
      for (const alias of aliases.get(roomId) ?? [])
        for (const one of this.services) if (one.coversAlias(alias)) services.add(one);
      for (const userId of members.get(roomId) ?? []) for (const one of this.ofUser(userId)) services.add(one);
      interested.set(roomId, services);
    }
    return interested;
  }

  /**
   * Services that are interested in an event.
   * @param room what {@link ofRooms} said
   */
  ofEvent({ event, streamOrdering }: StoredEvent, room: Services): Services {
    const more = [...this.ofUser(event.sender)];
    if (event.type === 'm.room.member' && event.stateKey !== undefined) more.push(...this.ofUser(event.stateKey));
    for (const { userId, streamOrdering: leftAt } of this.#departures.get(event.roomId) ?? [])
      if (leftAt > streamOrdering) more.push(...this.ofUser(userId));
    return more.every((one) => room.has(one)) ? room : new Set([...room, ...more]);
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

  async #aliases(roomIds: ReadonlySet<string>): Promise<ReadonlyMap<string, readonly string[]>> {
    const areWanted = this.services.some((one) => one.fields.namespaces.aliases.length > 0);
    return areWanted && roomIds.size > 0 ? aliasesOfRooms(this.database, [...roomIds]) : new Map<string, string[]>();
  }

  async #loadMembers(roomIds: ReadonlySet<string>): Promise<Map<string, ReadonlySet<string>>> {
    const found = new Map<string, ReadonlySet<string>>();
    const missing: string[] = [];
    for (const roomId of roomIds) {
      const known = this.#members.get(roomId);
      if (known) found.set(roomId, known);
      else missing.push(roomId);
    }
    if (missing.length === 0) return found;
    const before = this.#changes;
    for (const [roomId, users] of await this.audience.ofRooms(missing)) {
      const members = new Set([...users].filter((userId) => this.ofUser(userId).length > 0));
      found.set(roomId, members);
      if (before === this.#changes) this.#members.set(roomId, members);
    }
    return found;
  }

  #noteMoves({ roomId, events, room, backfilled }: EventBatch): void {
    if (backfilled) return;
    for (const { event, streamOrdering } of events) {
      const userId = event.stateKey;
      if (event.type !== 'm.room.member' || userId === undefined || this.ofUser(userId).length === 0) continue;
      this.#changes++;
      const members = this.#members.get(roomId);
      const { membership } = event.content;
      const isDeparture = (membership === 'leave' || membership === 'ban') && (members?.has(userId) ?? true);
      if (isDeparture) this.#noteDeparture({ roomId, userId, streamOrdering });
      if (!members) continue;
      if (room.localMembers.has(userId)) members.add(userId);
      else members.delete(userId);
      this.#members.set(roomId, members);
    }
  }

  #noteDeparture(departure: Departure): void {
    const list = this.#departures.get(departure.roomId);
    if (list) list.push(departure);
    else this.#departures.set(departure.roomId, [departure]);
  }
}
