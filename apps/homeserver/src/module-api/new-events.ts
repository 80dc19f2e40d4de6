import type { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import {
  callbackContext,
  type ModuleDispatcher,
  type StateReader,
  toModuleEvent,
  toStateView,
} from '@rookery/module-host';
import { type Clock, eachLimit, type Logger } from '@rookery/platform';
import { Follower, forgetCursor, type Notifier } from '@rookery/replication';
import type { EventStore, RoomStateReader, StoredEvent, TimelineReader } from '@rookery/rooms';
import { filterState, type StateFilter } from '@rookery/rooms';
import { stateKeyOf, type StateMap } from '@rookery/state-res';

const cursor = 'module_new_events';
const batchSize = 100;
/** Rooms whose events are told side by side; the events of one room are told in order. */
const maxRooms = 20;
/**
 * From one round to the next at least, unless one holds less than what waits: what is told at once while little happens is
 * told together while much happens.
 */
const pauseMs = 100;
/** How long a stop lets modules go on with what lies before them; the rest is told after the next start. */
const drainMs = 1_500;

/** What new events are read through. */
export interface NewEventParts {
  readonly database: Database;
  readonly notifier: Notifier;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly dispatcher: ModuleDispatcher;
  readonly timeline: TimelineReader;
  readonly state: RoomStateReader;
  readonly events: EventStore;
}

/**
 * Tells modules of each new event, once on the whole server and again only after a crash: `onNewEvent`. Runs while a module
 * wants to be told; a module that comes later is not told of what happened before.
 */
export class NewEvents {
  #follower: Follower | undefined;
  /** No further event of the batch in hand is told. */
  #cut = false;
  #changing: Promise<void> = Promise.resolve();
  #nextRoundAtMs = -Infinity;

  constructor(private readonly parts: NewEventParts) {}

  /** Begins or ends, as the modules in force want it. */
  refresh(): Promise<void> {
    return this.#exclusively(async () => {
      const wanted = this.parts.dispatcher.has('onNewEvent');
      if (wanted && !this.#follower) {
        const { database, notifier, clock, logger } = this.parts;
        const advance = (after: number, upTo: number): Promise<number> => this.#advance(after, upTo);
        const options = { name: cursor, stream: 'events', database, notifier, clock, logger, advance };
        this.#follower = new Follower({ ...options, startAt: 'now' });
        await this.#follower.start();
      } else if (!wanted) {
        await this.#end();
        await this.parts.database.write((tx) => forgetCursor(tx, cursor), {
          name: 'module_new_events',
        });
      }
    });
  }

  /** Ends; the next start goes on where this stopped. */
  stop(): Promise<void> {
    return this.#exclusively(() => this.#end());
  }

  async #end(): Promise<void> {
    const cut = this.parts.clock.after(drainMs, () => (this.#cut = true));
    await this.#follower?.stop();
    cut.cancel();
    this.#cut = false;
    this.#follower = undefined;
  }

  #exclusively(work: () => Promise<void>): Promise<void> {
    const result = this.#changing.then(work);
    this.#changing = result.catch(() => {});
    return result;
  }

  async #advance(after: number, upTo: number): Promise<number> {
    const { clock } = this.parts;
    const earlyMs = this.#nextRoundAtMs - clock.monotonicMs();
    if (earlyMs > 0) await clock.sleep(earlyMs);
    const startedAtMs = clock.monotonicMs();
    const stored = await this.parts.timeline.all(after, upTo, batchSize);
    // Whoever is behind does not rest.
    this.#nextRoundAtMs = stored.length < batchSize ? startedAtMs + pauseMs : -Infinity;
    const rooms = new Map<string, StoredEvent[]>();
    for (const one of stored) {
      const queue = rooms.get(one.event.roomId);
      if (queue) queue.push(one);
      else rooms.set(one.event.roomId, [one]);
    }
    const untold = new Set(stored);
    await eachLimit(rooms.values(), maxRooms, async (queue) => {
      for (const one of queue) {
        if (this.#cut) return;
        await this.#tell(one);
        untold.delete(one);
      }
    });
    const [first] = untold;
    if (first) return reached(first.streamOrdering - 1, after);
    return stored.length < batchSize ? upTo : (stored.at(-1)?.streamOrdering ?? upTo);
  }

  #tell({ event }: StoredEvent): Promise<void> {
    const view = toStateView(new StateAfter(this.parts, event.eventId));
    return this.parts.dispatcher.notify('onNewEvent', callbackContext(undefined), toModuleEvent(event), view);
  }
}

/** The state of a room after an event. */
class StateAfter implements StateReader {
  #whole: Promise<StateMap> | undefined;

  constructor(
    private readonly parts: NewEventParts,
    private readonly eventId: string,
  ) {}

  async get(type: string, stateKey: string): Promise<RoomEvent | undefined> {
    const found = await (this.#whole ?? this.#ids({ types: [[type, stateKey]] }));
    const id = found.get(stateKeyOf(type, stateKey));
    return id === undefined ? undefined : (await this.#load([id]))[0];
  }

  async ofType(type: string): Promise<RoomEvent[]> {
    return this.#load(filterState(await (this.#whole ??= this.#ids()), { types: [[type]] }).values());
  }

  async all(): Promise<RoomEvent[]> {
    return this.#load((await (this.#whole ??= this.#ids())).values());
  }

  async #ids(filter?: StateFilter): Promise<StateMap> {
    const states = await this.parts.state.idsAfter([this.eventId], filter);
    return states.get(this.eventId) ?? new Map<string, string>();
  }

  async #load(ids: Iterable<string>): Promise<RoomEvent[]> {
    return [...(await this.parts.events.events(ids)).values()];
  }
}

/** @throws Error when a cut batch brought nothing forward */
function reached(position: number, after: number): number {
  if (position <= after) throw new Error('Modules took too long with an event while the server was stopping');
  return position;
}
