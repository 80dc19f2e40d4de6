import { Injectable } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import {
  activityTypes,
  EventStore,
  isServable,
  type RoomFacts,
  RoomFactsReader,
  RoomHooks,
  RoomStateReader,
} from '@rookery/rooms';
import { splitStateKey } from '@rookery/state-res';

const maxRooms = 200_000;
const maxSpaceChildren = 500_000;
/** State whose change is read anew. */
const factTypes: ReadonlySet<string> = new Set(['m.room.create', 'm.room.name', 'm.room.encryption']);
const childType = 'm.space.child';

/**
 * Facts of rooms by which lists are sorted and filtered, in memory: sorting a user's thousand rooms asks the database
 * nothing. Kept up to date as events are stored.
 */
@Injectable()
export class RoomFactsCache {
  readonly #facts: Cache<string, RoomFacts>;
  readonly #children: Cache<string, ReadonlySet<string>>;
  /** Rooms in which something was stored while rooms are being read: what was read of them may be older. */
  readonly #touched = new Set<string>();
  #reading = 0;
  /** How often something was missed of which nobody knows the room. */
  #missed = 0;

  constructor(
    private readonly reader: RoomFactsReader,
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    hooks: RoomHooks,
    config: Config,
  ) {
    this.#facts = new Cache(config, 'room_facts', { invalidation: 'stream events', elsewhere: 'told', max: maxRooms });
    this.#children = new Cache(config, 'space_children', {
      invalidation: 'stream events',
      elsewhere: 'told',
      max: maxSpaceChildren,
    });
    hooks.subscribe({
      afterCommit: ({ roomId, events: stored }) => {
        if (this.#reading > 0) this.#touched.add(roomId);
        // Without events: all of the state has become known.
        if (stored.length === 0) {
          this.#children.delete(roomId);
          this.#facts.delete(roomId);
        }
        for (const each of stored) {
          const { type, stateKey } = each.event;
          if (stateKey !== undefined && type === childType) this.#children.delete(roomId);
          // A state event may also bring back what resolution had put aside: names above all.
          if (stateKey !== undefined && (factTypes.has(type) || each.outlier)) this.#facts.delete(roomId);
          if (activityTypes.has(type) && each.streamOrdering > 0 && isServable(each))
            this.#moveOn(roomId, each.streamOrdering);
        }
      },
      onElsewhere: (news) => {
        if (news === undefined) {
          this.#facts.clear();
          this.#children.clear();
          this.#forgetAll();
        }
        for (const roomId of news?.rooms ?? []) void this.#forget(roomId);
      },
      onEventsPurged: (_tx, roomId) => this.#forget(roomId),
      onRoomPurged: (_tx, roomId) => this.#forget(roomId),
    });
  }

  /** Facts by room; one query for all that are not in memory. */
  async of(roomIds: Iterable<string>): Promise<Map<string, RoomFacts>> {
    const found = new Map<string, RoomFacts>();
    const missing: string[] = [];
    for (const roomId of roomIds) {
      const facts = this.#facts.get(roomId);
      if (facts === undefined) missing.push(roomId);
      else found.set(roomId, facts);
    }
    if (missing.length === 0) return found;
    const read = await this.#read(() => this.reader.of(missing));
    for (const [roomId, facts] of read.value) {
      found.set(roomId, facts);
      if (read.isKept && !read.touched.has(roomId)) this.#facts.set(roomId, facts);
    }
    return found;
  }

  /** The rooms that any of the spaces names as its child; two queries for the spaces that are not in memory. */
  async childrenOf(spaceIds: readonly string[]): Promise<Set<string>> {
    const children = new Set<string>();
    const missing: string[] = [];
    for (const spaceId of spaceIds) {
      const known = this.#children.get(spaceId);
      if (known === undefined) missing.push(spaceId);
      for (const roomId of known ?? []) children.add(roomId);
    }
    if (missing.length === 0) return children;
    const read = await this.#read(async () => {
      const ids = await this.state.currentIdsOf(missing, { types: [[childType]] });
      const events = await this.events.many([...ids.values()].flatMap((entries) => [...entries.values()]));
      return { ids, events };
    });
    for (const spaceId of missing) {
      const named = new Set<string>();
      for (const [key, eventId] of read.value.ids.get(spaceId) ?? []) {
        // A child without servers is one that was taken out.
        if (Array.isArray(read.value.events.get(eventId)?.event.content['via'])) named.add(splitStateKey(key)[1]);
      }
      if (read.isKept && !read.touched.has(spaceId)) this.#children.set(spaceId, named, named.size + 1);
      for (const roomId of named) children.add(roomId);
    }
    return children;
  }

  /** What is being read of any room may be older than what was missed. */
  #forgetAll(): void {
    this.#missed++;
  }

  #moveOn(roomId: string, position: number): void {
    const facts = this.#facts.peek(roomId);
    if (facts && position > (facts.lastActivity ?? 0)) this.#facts.set(roomId, { ...facts, lastActivity: position });
  }

  #forget(roomId: string): Promise<void> {
    if (this.#reading > 0) this.#touched.add(roomId);
    this.#facts.delete(roomId);
    this.#children.delete(roomId);
    return Promise.resolve();
  }

  async #read<T>(
    read: () => Promise<T>,
  ): Promise<{ readonly value: T; readonly touched: ReadonlySet<string>; readonly isKept: boolean }> {
    const missed = this.#missed;
    this.#reading++;
    try {
      const value = await read();
      return { value, touched: new Set(this.#touched), isKept: missed === this.#missed };
    } finally {
      if (--this.#reading === 0) this.#touched.clear();
    }
  }
}
