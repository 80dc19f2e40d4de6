import { Injectable } from '@nestjs/common';
import { relationOf } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { type ChangedKeys, type Forgetful, Invalidations, type Stream, Streams } from '@rookery/replication';
import { RoomHooks } from '../hooks.js';
import { isServable, type StoredEvent } from '../model/stored-event.js';
import { eventsStream } from './room-ids.js';

/** Where an event lies in its room. */
export interface EventPlace {
  readonly eventId: string;
  readonly topological: number;
  readonly stream: number;
}

/** The end of a room's timeline: every event that clients may see, of all that lie after `since`. */
interface Tail {
  readonly since: number;
  readonly places: readonly EventPlace[];
}

/** What it is told of a room's events that became durable together. */
export interface JustStored {
  readonly roomId: string;
  /** What they changed of the room's current state. */
  readonly changes: readonly unknown[];
  readonly staged: readonly {
    readonly event: { readonly eventId: string };
    readonly group: number | undefined;
    readonly isRemote: boolean;
  }[];
}

/** What was read of an event that another process has stored. */
export interface HeardEvent {
  readonly eventId: string;
  readonly roomId: string;
  readonly sender: string;
  /** The state group after it. */
  readonly group: number | undefined;
  /** No event relates to it. */
  readonly isUnrelated: boolean;
}

interface Stored {
  readonly group: number | undefined;
  /** No event relates to it. */
  readonly isUnrelated: boolean;
  /** Where another process has stored it: the room, and up to where its events could be read when this was true. */
  readonly heard?: { readonly roomId: string; readonly upTo: number };
}

const maxRooms = 5_000;
const maxPerRoom = 40;
const maxEvents = 20_000;

/**
 * What this process has stored lately, told by the persister before anybody can be told of it. Readers that are up to date
 * find here what they would ask the database for, all of them the same. Says "unknown" where it cannot be certain: about
 * everything before it began. A process that stores no events keeps what one of the readers has asked for, and believes it as long as
 * nothing happens in the room.
 */
@Injectable()
export class RecentEvents {
  /** In the order of the last event. */
  readonly #tails = new Map<string, Tail>();
  readonly #events: Cache<string, Stored>;
  readonly #states: ChangedKeys;
  readonly #rooms: ChangedKeys;
  readonly #serverName: string;
  /** What else is remembered of events. */
  readonly #rejudged: Forgetful[] = [];
  readonly #stream: Pick<Stream, 'current' | 'isWrittenHere'>;
  #hasBegun = false;
  /** Rooms without a tail have had no event after this position. */
  #since = Number.POSITIVE_INFINITY;
  #last = 0;

  constructor(
    hooks: RoomHooks,
    streams: Streams,
    config: Config,
    private readonly invalidations: Invalidations,
  ) {
    this.#serverName = config.serverName;
    this.#events = new Cache(config, 'recent_events', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 2 * maxEvents },
    });
    const events = (this.#stream = streams.of(eventsStream));
    this.#states = events.changes('state');
    this.#rooms = events.changes('room');
    invalidations.on('recent_events', {
      forget: (eventIds) => this.#drop(eventIds),
      forgetAll: () => {
        for (const one of [this.#events, ...this.#rejudged]) one.forgetAll();
      },
    });
    hooks.subscribe({
      onEventsPurged: async (tx, roomId, eventIds) => {
        this.#forget(roomId);
        // Should they come back, it is with another state group.
        tx.unlessRolledBack(() => {
          this.#drop(eventIds);
          this.invalidations.send('recent_events', eventIds);
        });
      },
      onRoomPurged: async (_tx, roomId) => this.#forget(roomId),
    });
  }

  /** How far events may be read that another process stores; nothing in the process that stores them. */
  get heardUpTo(): number | undefined {
    return this.#stream.isWrittenHere ? undefined : this.#stream.current();
  }

  /** Told by the persister about live events that just became durable, in stream order. */
  remember(room: JustStored, stored: readonly StoredEvent[]): void {
    const [first] = stored;
    if (first === undefined) return;
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      this.#since = first.streamOrdering - 1;
    }
    this.#last = Math.max(this.#last, stored.at(-1)!.streamOrdering);
    for (const staged of room.staged) {
      // Only what was made here cannot have been related to before it was stored.
      this.#events.set(staged.event.eventId, { group: staged.group, isUnrelated: !staged.isRemote });
    }
    this.#relate(targetsOf(stored));
    const places = stored.filter(isServable).map(placeOf);
    if (places.length > 0) this.#append(room.roomId, places);
  }

  /** Told by the persister about events of the past that just became durable: nothing is new, but they may relate to what is known. */
  rememberPast(stored: readonly StoredEvent[]): void {
    const targets = targetsOf(stored);
    this.#relate(targets);
    // Of the past other processes hear nothing.
    if (targets.length > 0) this.invalidations.send('recent_events', targets);
  }

  #relate(targets: readonly string[]): void {
    for (const target of targets) {
      const known = this.#events.peek(target);
      if (known?.isUnrelated) this.#events.set(target, { ...known, isUnrelated: false });
    }
  }

  /**
   * The last events of a room with `after < stream ordering <= upTo`, one more than `limit` where there are more.
   * @returns `undefined` when that is not known
   */
  latest(roomId: string, after: number, upTo: number, limit: number): readonly EventPlace[] | undefined {
    const tail = this.#tails.get(roomId);
    const places = tail?.places.filter(({ stream }) => stream > after && stream <= upTo) ?? [];
    const isKnown = after >= (tail?.since ?? this.#since) || places.length > limit;
    return isKnown ? places.slice(-(limit + 1)) : undefined;
  }

  /** Those of the rooms whose current state may have changed after `position`. */
  stateChanged(roomIds: readonly string[], position: number): readonly string[] {
    return this.#states.changedSince(roomIds, position);
  }

  /** The state group after an event, where it is known. */
  groupOf(eventId: string): number | undefined {
    return this.#events.get(eventId)?.group;
  }

  /** Whether it is certain that no event relates to this one. */
  isUnrelated(eventId: string): boolean {
    const known = this.#events.peek(eventId);
    if (known?.heard === undefined) return known?.isUnrelated ?? false;
    return known.isUnrelated && !this.#rooms.hasChanged(known.heard.roomId, known.heard.upTo);
  }

  /** Keeps what somebody reads of events that another process has stored. */
  async hear<Found extends { readonly heard: readonly HeardEvent[] }>(read: () => Promise<Found>): Promise<Found> {
    const upTo = this.#stream.current();
    const reading = this.#events.begin();
    try {
      const found = await read();
      for (const { eventId, roomId, sender, group, isUnrelated } of found.heard) {
        // To what came from elsewhere something may relate that is fetched later, and changes nothing of what is known to be new.
        const isCertain = isUnrelated && domainOf(sender) === this.#serverName;
        reading.keep(eventId, { group, isUnrelated: isCertain, heard: { roomId, upTo } });
      }
      return found;
    } finally {
      reading.end();
    }
  }

  /** Tells what else is remembered of events when some were judged once more, here or elsewhere: they have other state groups. */
  onRejudged(forgetful: Forgetful): void {
    this.#rejudged.push(forgetful);
  }

  /** Told by the persister that some stored events of a room were judged once more. */
  forget(roomId: string, eventIds: Iterable<string>): void {
    const ids = [...eventIds];
    this.#drop(ids);
    this.#forget(roomId);
    this.invalidations.send('recent_events', ids);
  }

  #drop(eventIds: readonly string[]): void {
    for (const one of [this.#events, ...this.#rejudged]) one.forget(eventIds);
  }

  #append(roomId: string, fresh: readonly EventPlace[]): void {
    const tail = this.#tails.get(roomId);
    const all = [...(tail?.places ?? []), ...fresh];
    const dropped = all.at(-maxPerRoom - 1);
    this.#tails.delete(roomId);
    this.#tails.set(roomId, { since: dropped?.stream ?? tail?.since ?? this.#since, places: all.slice(-maxPerRoom) });
    if (this.#tails.size <= maxRooms) return;
    for (const [oldest, { since, places }] of this.#tails) {
      this.#tails.delete(oldest);
      this.#since = Math.max(this.#since, since, places.at(-1)?.stream ?? 0);
      break;
    }
  }

  /** Events of the room are going: what was there up to now is not known any more. */
  #forget(roomId: string): void {
    if (this.#hasBegun) this.#tails.set(roomId, { since: this.#last, places: [] });
  }
}

/** The events to which some others relate. */
const targetsOf = (stored: readonly StoredEvent[]): string[] =>
  stored.flatMap(({ event }) => relationOf(event.content)?.eventId ?? []);

const placeOf = ({ event, streamOrdering }: StoredEvent): EventPlace => ({
  eventId: event.eventId,
  topological: event.depth,
  stream: streamOrdering,
});
