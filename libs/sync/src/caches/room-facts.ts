import { Injectable } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import { EventStore, isServable, RoomFactsReader, RoomHooks, RoomStateReader } from '@rookery/rooms';
import { splitStateKey } from '@rookery/state-res';
import type { RoomFacts } from '../model/rooms.js';

const maxRooms = 200_000;
const maxSpaceChildren = 500_000;
/** State whose change is read anew. */
const factTypes = ['m.room.create', 'm.room.name', 'm.room.encryption'];
const childType = 'm.space.child';

/**
 * Facts of rooms by which lists are sorted and filtered, in memory: sorting a user's thousand rooms asks the database
 * nothing. Kept up to date as events are stored.
 */
@Injectable()
export class RoomFactsCache {
  readonly #facts: Cache<string, RoomFacts>;
  readonly #children: Cache<string, ReadonlySet<string>>;

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
      sizeOf: (children) => children.size + 1,
    });
    hooks.subscribe({
      afterCommit: (batch) => {
        const { roomId, events: stored } = batch;
        // Without events: all of the state has become known. What is redacted may be a name, or a child.
        if (stored.length === 0 || stored.some(({ event }) => event.redacts !== undefined)) this.#forget(roomId);
        if (batch.changed(childType)) this.#children.delete(roomId);
        if (factTypes.some((type) => batch.changed(type))) this.#facts.delete(roomId);
        for (const each of stored) {
          if (reader.isActivity(each.event.type) && each.streamOrdering > 0 && isServable(each))
            this.#moveOn(roomId, each.streamOrdering);
        }
      },
      onElsewhere: (news) => {
        if (news === undefined) {
          this.#facts.clear();
          this.#children.clear();
        }
        for (const roomId of news?.rooms ?? []) this.#forget(roomId);
      },
      onEventsPurged: async (tx, roomId) => tx.unlessRolledBack(() => this.#forget(roomId)),
      onRoomPurged: async (tx, roomId) => tx.unlessRolledBack(() => this.#forget(roomId)),
    });
  }

  /** Facts by room; one query for all that are not in memory. */
  of(roomIds: Iterable<string>): Promise<Map<string, RoomFacts>> {
    return this.#facts.fetchMany(roomIds, (missing) => this.reader.of(missing));
  }

  /** The rooms that any of the spaces names as its child; two queries for the spaces that are not in memory. */
  async childrenOf(spaceIds: readonly string[]): Promise<Set<string>> {
    const known = await this.#children.fetchMany(spaceIds, (missing) => this.#readChildren(missing));
    const children = new Set<string>();
    for (const named of known.values()) for (const roomId of named) children.add(roomId);
    return children;
  }

  async #readChildren(spaceIds: readonly string[]): Promise<Map<string, ReadonlySet<string>>> {
    const ids = await this.state.currentIdsOf(spaceIds, { types: [[childType]] });
    const events = await this.events.many([...ids.values()].flatMap((entries) => [...entries.values()]));
    const children = new Map<string, ReadonlySet<string>>();
    for (const spaceId of spaceIds) {
      const named = new Set<string>();
      for (const [key, eventId] of ids.get(spaceId) ?? []) {
        // A child without servers is one that was taken out.
        if (Array.isArray(events.get(eventId)?.event.content['via'])) named.add(splitStateKey(key)[1]);
      }
      children.set(spaceId, named);
    }
    return children;
  }

  #moveOn(roomId: string, position: number): void {
    const facts = this.#facts.peek(roomId);
    // What is being read may be without it.
    if (facts === undefined) this.#facts.delete(roomId);
    else if (position > (facts.lastActivity ?? 0)) this.#facts.set(roomId, { ...facts, lastActivity: position });
  }

  #forget(roomId: string): void {
    this.#facts.delete(roomId);
    this.#children.delete(roomId);
  }
}
