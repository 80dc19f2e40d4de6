import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { callbackContext, ModuleDispatcher, toModuleEvent, toStateView } from '@rookery/module-host';
import { Clock, eachLimit, Logger, Semaphore } from '@rookery/platform';
import { cursorOf, Follower, forgetCursor, Notifier } from '@rookery/replication';
import { type StoredEvent, TimelineReader } from '@rookery/rooms';
import { StatesAfterEvents } from './states-after-events.js';

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

/**
 * Tells modules of each new event, once on the whole server and again only after a crash: `onNewEvent`. Runs while a module
 * wants to be told; a module that comes later is not told of what happened before.
 */
@Injectable()
export class NewEvents {
  #follower: Follower | undefined;
  #isStopped = false;
  /** No further event of the batch in hand is told. */
  #cut = false;
  readonly #changing = new Semaphore(1);
  #nextRoundAtMs = -Infinity;

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly dispatcher: ModuleDispatcher,
    private readonly timeline: TimelineReader,
    private readonly states: StatesAfterEvents,
  ) {}

  /** Begins or ends, as the modules in force want it. */
  refresh(): Promise<void> {
    return this.#changing.run(async () => {
      if (this.#isStopped) return;
      const wanted = this.dispatcher.has('onNewEvent');
      if (wanted && !this.#follower) {
        const { database, notifier, clock } = this;
        const logger = this.logger.child('modules');
        const advance = (after: number, upTo: number, signal: AbortSignal): Promise<number> =>
          this.#advance(after, upTo, signal);
        const options = { name: cursor, stream: 'events', database, notifier, clock, logger, advance };
        const follower = new Follower({ ...options, startAt: 'now' });
        await follower.start();
        this.#follower = follower;
      } else if (!wanted) {
        await this.#end();
        // A reload has nothing to write where nobody wants to be told, as on a database that takes nothing at the moment.
        if ((await cursorOf(this.database, cursor)) === undefined) return;
        await this.database.write((tx) => forgetCursor(tx, cursor), { name: 'module_new_events' });
      }
    });
  }

  /** Ends for good; the next start goes on where this stopped. */
  stop(): Promise<void> {
    this.#isStopped = true;
    return this.#changing.run(() => this.#end());
  }

  async #end(): Promise<void> {
    const cut = this.clock.after(drainMs, () => (this.#cut = true));
    await this.#follower?.stop();
    cut.cancel();
    this.#cut = false;
    this.#follower = undefined;
  }

  async #advance(after: number, upTo: number, signal: AbortSignal): Promise<number> {
    const { clock } = this;
    const earlyMs = this.#nextRoundAtMs - clock.monotonicMs();
    if (earlyMs > 0) await clock.sleep(earlyMs, signal);
    const startedAtMs = clock.monotonicMs();
    const { stored, reached } = await this.timeline.news(after, upTo, batchSize);
    // Whoever is behind does not rest.
    this.#nextRoundAtMs = reached === upTo ? startedAtMs + pauseMs : -Infinity;
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
    if (first) return brought(first.streamOrdering - 1, after);
    return reached;
  }

  #tell({ event }: StoredEvent): Promise<void> {
    const view = toStateView(this.states.of(event.eventId));
    return this.dispatcher.notify('onNewEvent', callbackContext(undefined), toModuleEvent(event), view);
  }
}

/** @throws Error when a cut batch brought nothing forward */
function brought(position: number, after: number): number {
  if (position <= after) throw new Error('Modules took too long with an event while the server was stopping');
  return position;
}
