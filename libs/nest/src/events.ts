import type { ModuleEvent, ModuleLog, RoomStateView } from '@rookery/module-api';
import { defer, Observable, type ObservableInput, Subject, type Subscriber } from 'rxjs';

/** A new event. */
export interface NewEvent {
  readonly event: ModuleEvent;
  /** The state of its room after it. Reads work while the server is held back: not for what has waited in a buffer. */
  readonly state: RoomStateView;
}

/** What a stream of events is about, and how fast it may run. */
export interface StreamOptions {
  /** Types of events; default: all. */
  readonly types?: readonly string[];
  /** So many events are handled at once; default 1. */
  readonly concurrency?: number;
  /**
   * So many more wait in memory. Default 0: the server is held back until an event was handled, keeps what comes after it
   * in its database, and after a crash tells of it again.
   */
  readonly buffer?: number;
}

interface Waiting {
  readonly event: NewEvent;
  /** Lets the server go on. */
  readonly taken: (failed?: { readonly error: unknown }) => void;
}

/** What one subscriber has before it. */
class StreamLane<Result> {
  readonly #waiting: Waiting[] = [];
  /** Whom the end has to let go. */
  readonly #held = new Set<() => void>();
  #running = 0;
  #ended = false;

  constructor(
    private readonly project: (event: NewEvent) => ObservableInput<Result>,
    private readonly options: StreamOptions,
    private readonly subscriber: Subscriber<Result>,
    private readonly log: Pick<ModuleLog, 'error'>,
  ) {}

  /** Fulfilled once there is room for the event, or it was handled. */
  offer(event: NewEvent): Promise<void> | undefined {
    const { types, buffer = 0 } = this.options;
    if (this.#ended || (types && !types.includes(event.event.type))) return undefined;
    return new Promise((resolve, reject) => {
      const taken: Waiting['taken'] = (failed) => {
        const isHeld = this.#held.delete(taken);
        if (!failed) resolve();
        else if (isHeld) reject(failed.error as Error);
        // The server, which would have written of it, has gone on.
        else this.log.error('An event could not be handled', { eventId: event.event.eventId, err: failed.error });
      };
      this.#held.add(taken);
      const hasRoom = this.#waiting.length < buffer;
      this.#waiting.push({ event, taken });
      if (hasRoom) taken();
      this.#next();
    });
  }

  end(): void {
    this.#ended = true;
    this.#waiting.length = 0;
    for (const taken of [...this.#held]) taken();
  }

  #next(): void {
    const { concurrency = 1, buffer = 0 } = this.options;
    while (!this.#ended && this.#running < concurrency) {
      const one = this.#waiting.shift();
      if (!one) return;
      if (buffer > 0) this.#waiting[buffer - 1]?.taken();
      this.#handle(one);
    }
  }

  #handle({ event, taken }: Waiting): void {
    this.#running++;
    const done = (failed?: { readonly error: unknown }): void => {
      this.#running--;
      taken(failed);
      this.#next();
    };
    const handling = defer(() => this.project(event)).subscribe({
      next: (value) => this.subscriber.next(value),
      error: (error: unknown) => done({ error }),
      complete: () => done(),
    });
    if (handling.closed) return;
    this.subscriber.add(handling);
    handling.add(() => this.subscriber.remove(handling));
  }
}

/**
 * New events as RxJS streams, for constructors. Whoever is slow holds the server back and not the other way round: the server
 * keeps what is new in its database, and tells of it when there is room. Events of one room come in order.
 */
export class MatrixEvents {
  readonly #lanes = new Set<StreamLane<unknown>>();
  readonly #all = new Subject<NewEvent>();

  constructor(private readonly log: Pick<ModuleLog, 'error'>) {}

  /** Every new event as it comes, without waiting for anybody: for what is done at once. */
  readonly all: Observable<NewEvent> = this.#all.asObservable();

  /**
   * Handles new events, as many at once as the options say; the server waits meanwhile.
   *
   * ```ts
   * events.handle(({ event }) => index(event), { types: ['m.room.message'], concurrency: 4 }).subscribe();
   * ```
   * @param project what is done with an event: a promise, an observable or a list, whose values the stream emits. What it throws
   *   is written to the log; the stream goes on.
   */
  handle<Result>(
    project: (event: NewEvent) => ObservableInput<Result>,
    options: StreamOptions = {},
  ): Observable<Result> {
    for (const [name, least] of [
      ['concurrency', 1],
      ['buffer', 0],
    ] as const) {
      const value = options[name] ?? least;
      if (!Number.isInteger(value) || value < least)
        throw new RangeError(`${name} is a whole number of at least ${least}`);
    }
    return new Observable((subscriber) => {
      const lane = new StreamLane(project, options, subscriber, this.log);
      this.#lanes.add(lane as StreamLane<unknown>);
      return () => {
        this.#lanes.delete(lane as StreamLane<unknown>);
        lane.end();
      };
    });
  }

  /** The callback `onNewEvent`: fulfilled once all streams have room. */
  async tell(event: ModuleEvent, state: RoomStateView): Promise<void> {
    const told = { event, state };
    this.#all.next(told);
    await Promise.all([...this.#lanes].map(async (lane) => lane.offer(told)));
  }

  /** Ends all streams. */
  end(): void {
    this.#all.complete();
    for (const lane of this.#lanes) lane.end();
    this.#lanes.clear();
  }
}
