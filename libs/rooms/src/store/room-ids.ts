import { Injectable, type OnModuleInit } from '@nestjs/common';
import { DataStores, Sequence } from '@rookery/database';
import { defineStream, type KeysOf, type Stream, Streams } from '@rookery/replication';
import { highestOrdering, lowestOrdering, selectTakenCounters } from './room-ids.query.js';

/**
 * Events as they come, by stream ordering. Keys:
 * `room`: rooms with a new event;
 * `state`: rooms whose current state may have changed;
 * `member`: users whose membership of a room may have changed;
 * `entered_or_left`, `room_entered_or_left`: users who joined or left a room, and the rooms.
 */
export const eventsStream = defineStream({
  name: 'events',
  takenUpTo: highestOrdering,
  keys: { room: {}, state: {}, member: {}, entered_or_left: {}, room_entered_or_left: {} },
});

/** Events from before the server knew the room, by negative stream ordering. Wakes nobody. */
export const backfillStream = defineStream({ name: 'backfill', direction: 'down', takenUpTo: lowestOrdering });

/** A kind of key of {@link eventsStream}. */
export type EventKey = KeysOf<typeof eventsStream>;

interface Counters {
  readonly stateGroups: Sequence;
  readonly authChains: Sequence;
  readonly reports: Sequence;
}

/** The counters of this lib: stream orderings, state groups, auth chains. Open them before anything is read or sent. */
@Injectable()
export class RoomIds implements OnModuleInit {
  /** Positive stream orderings. `current()` is what readers may read up to. */
  readonly events: Stream<EventKey>;
  /** Negative stream orderings, for history that is fetched later. */
  readonly backfill: Stream;
  #counters: Counters | undefined;
  #opening: Promise<void> | undefined;
  #stateGroupsBefore = 0;

  constructor(
    private readonly stores: DataStores,
    streams: Streams,
  ) {
    this.events = streams.of(eventsStream);
    this.backfill = streams.of(backfillStream);
  }

  onModuleInit(): Promise<void> {
    return this.open();
  }

  /** Loads the counters, behind everything the tables hold. Needs the migrated schema. */
  open(): Promise<void> {
    this.#opening ??= this.#load();
    return this.#opening;
  }

  /** The highest number that a state group can have which another process wrote, before this one began. */
  get stateGroupsBefore(): number {
    return this.#stateGroupsBefore;
  }

  /** The highest number that a state group of this process can have by now. */
  get lastStateGroup(): number {
    return this.#opened.stateGroups.last;
  }

  stateGroup(): Promise<number> {
    return this.#opened.stateGroups.next();
  }

  authChains(count: number): Promise<number[]> {
    return count === 0 ? Promise.resolve([]) : this.#opened.authChains.take(count);
  }

  report(): Promise<number> {
    return this.#opened.reports.next();
  }

  get #opened(): Counters {
    if (!this.#counters) throw new Error('RoomIds.open() has not finished');
    return this.#counters;
  }

  async #load(): Promise<void> {
    const { main: database } = this.stores;
    const taken = await selectTakenCounters(this.stores);
    this.#counters = {
      stateGroups: await Sequence.load(database, 'state_group_id_seq', { takenUpTo: taken.groups }),
      authChains: await Sequence.load(database, 'event_auth_chain_id', { takenUpTo: taken.chains }),
      reports: await Sequence.load(database, 'reports', { takenUpTo: taken.reports }),
    };
    this.#stateGroupsBefore = this.#counters.stateGroups.last;
  }
}
