import { type Clock, type Logger, SilentLogger } from '@rookery/platform';
import type { Bus, BusMessage } from './bus.js';
import { type Deadline, DeadlineWheel } from './deadline-wheel.js';
import { type Span, SpanOrder } from './span-order.js';

/** The positions of a stream that this process writes; `StreamIds` is one. */
export interface PositionSource {
  readonly name: string;
  current(): number;
  onAdvance(listener: (position: number) => void): () => void;
}

/** A few or many names. */
export type Keys = ReadonlySet<string> | readonly string[];

/** Whom new rows concern. Without either, only followers of the stream hear of them. */
export interface Audience {
  /** Full ids of local users whose long polls are to wake. */
  readonly users?: ReadonlySet<string> | readonly string[] | undefined;
  /** Waiters that said they are interested in one of these rooms wake as well. */
  readonly rooms?: ReadonlySet<string> | readonly string[] | undefined;
}

export interface WaitOptions {
  readonly timeoutMs: number;
  /** The request was given up by its client. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Asked once, when the wait begins: whether there is news since what the caller has read. Closes the gap between reading and
   * waiting; must be quick and synchronous (`StreamChangeCache`).
   */
  readonly hasNews?: (() => boolean) | undefined;
  /** Whether news of a room concerns the waiter, for announcements that name rooms but not users. */
  readonly inRoom?: ((roomId: string) => boolean) | undefined;
}

/** `aborted`: by the signal, or because the server shuts down. */
export type WaitOutcome = 'news' | 'timeout' | 'aborted';

/** A wait that can be given up. */
export interface Wait {
  /** Never rejects. */
  readonly outcome: Promise<WaitOutcome>;
  /** Ends the wait as aborted, if it has not ended yet. */
  end(): void;
}

interface Waiter extends Deadline {
  readonly userId: string;
  readonly inRoom: ((roomId: string) => boolean) | undefined;
  readonly finish: (outcome: WaitOutcome) => void;
}

/** What is said of new rows. */
export interface Announcement extends Audience {
  /** Keys with something new, by kind, for the change caches of other processes. */
  readonly changed?: Readonly<Partial<Record<string, Keys>>> | undefined;
}

interface Held extends Announcement {
  readonly position: number;
}

/** What a stream to which several processes write is told of itself; must be quick, and not throw. */
export interface SharedNews {
  /** Keys that changed up to a position, of whichever process, before anybody sees it. */
  changed(message: BusMessage): void;
  /** What changed up to a position is not known. */
  missed(upTo: number): void;
}

export interface NotifierOptions {
  /** Name of this process on the bus. */
  readonly instance?: string | undefined;
  /** Waits of one user at a time; the oldest ends early beyond that. 200 unless told. */
  readonly maxWaitsPerUser?: number | undefined;
  readonly logger?: Logger | undefined;
  /** Told, for metrics, of each delivered announcement of a stream and how many waiting users it woke; must be quick. */
  readonly onDelivered?: ((stream: string, woken: number) => void) | undefined;
}

const asSet = (values: ReadonlySet<string> | readonly string[]): ReadonlySet<string> =>
  Array.isArray(values) ? new Set(values as readonly string[]) : (values as ReadonlySet<string>);

const ended = (outcome: WaitOutcome): Wait => ({ outcome: Promise.resolve(outcome), end: () => undefined });

/** Tells long polls and followers that a stream has moved on. */
export class Notifier {
  readonly #bus: Bus;
  readonly #instance: string;
  readonly #maxWaitsPerUser: number;
  readonly #wheel: DeadlineWheel;
  readonly #logger: Logger;
  readonly #onDelivered: NotifierOptions['onDelivered'];
  readonly #sources = new Map<string, PositionSource>();
  readonly #heard = new Map<string, number>();
  readonly #published = new Map<string, number>();
  /** The last position that others were told, by stream, and streams of which somebody is to be told. */
  readonly #told = new Map<string, number>();
  readonly #untold = new Set<string>();
  readonly #hearers = new Set<(message: BusMessage) => void>();
  readonly #held = new Map<string, Held[]>();
  readonly #followers = new Map<string, Set<(position: number) => void>>();
  readonly #waiters = new Map<string, Set<Waiter>>();
  /** Of streams to which several processes write. */
  readonly #orders = new Map<string, SpanOrder<BusMessage & Span>>();
  readonly #clock: Clock;
  readonly #stops: (() => void)[] = [];
  /** End the waits of {@link reached}. */
  readonly #reaching = new Set<() => void>();
  #waiting = 0;
  #isEnding = false;
  #closed = false;

  constructor(clock: Clock, bus: Bus, options: NotifierOptions = {}) {
    this.#bus = bus;
    this.#clock = clock;
    this.#instance = options.instance ?? 'main';
    this.#maxWaitsPerUser = options.maxWaitsPerUser ?? 200;
    this.#wheel = new DeadlineWheel(clock);
    this.#logger = options.logger ?? new SilentLogger();
    this.#onDelivered = options.onDelivered;
    this.#stops.push(
      bus.subscribe((message) => {
        if (message.writer !== this.#instance) this.#hear(message);
      }),
    );
  }

  /** Whether other processes may hear what is announced here. */
  get isShared(): boolean {
    return this.#bus.isShared;
  }

  /** Name of this process on the bus. */
  get instance(): string {
    return this.#instance;
  }

  /** Calls `listener` with what other processes announce, before anybody is woken by it. It must not throw. */
  onHeard(listener: (message: BusMessage) => void): void {
    this.#hearers.add(listener);
  }

  /** How many users have a long poll that waits. */
  get waitingUsers(): number {
    return this.#waiters.size;
  }

  /** How many long polls are waiting. */
  get waiting(): number {
    return this.#waiting;
  }

  /**
   * Makes a stream of this process known. Its announcements are held until everything before them is readable and announced:
   * otherwise a waiter would look, find nothing yet, and sleep through it, or another process pass over what it has not heard of.
   */
  track(source: PositionSource): void {
    this.#sources.set(source.name, source);
    this.#stops.push(source.onAdvance((position) => this.#advance(source.name, position)));
  }

  /** Makes a stream known to which several processes write: their news are taken in the order of the positions. */
  share(stream: string, news: SharedNews): void {
    const order = new SpanOrder<BusMessage & Span>({
      clock: this.#clock,
      current: () => this.position(stream),
      apply: (message) => {
        news.changed(message);
        this.#moveTo(message, message.writer === this.#instance);
      },
      missed: (upTo) => {
        news.missed(upTo);
        this.heard(stream, upTo);
      },
    });
    this.#orders.set(stream, order);
    this.#stops.push(() => order.close());
  }

  /**
   * Says that rows behind `from` and up to `position` are committed, of a stream to which several processes write. They can be read here
   * once those before them are known as well ({@link settled}).
   */
  announceShared(stream: string, { from, position }: Span, { users, rooms, changed }: Announcement = {}): void {
    const message = { stream, writer: this.#instance, from, position, users, rooms, changed };
    this.#orders.get(stream)?.offer(message);
    if (!this.#closed) this.#bus.publish(message);
  }

  /** Resolves once everything up to a position of such a stream is known here, or will not be; `undefined`: it is. */
  settled(stream: string, position: number): Promise<void> | undefined {
    return this.#closed ? undefined : this.#orders.get(stream)?.reached(position);
  }

  /** The furthest readable position of a stream as far as this process knows; 0 when it never heard of it. */
  position(stream: string): number {
    return this.#sources.get(stream)?.current() ?? this.#heard.get(stream) ?? 0;
  }

  /** Notes how far a stream is that another process writes, and wakes everybody: nobody knows whom the news concern. */
  heard(stream: string, position: number): void {
    const before = this.position(stream);
    this.#note(stream, position);
    if (this.position(stream) !== before) this.#wakeUsers([...this.#waiters.keys()]);
    this.#orders.get(stream)?.look();
  }

  /** Says that rows up to `position` are committed. Call it after the commit: `tx.afterCommit(() => notifier.announce(…))`. */
  announce(stream: string, position: number, news: Announcement = {}): void {
    if (!this.#sources.has(stream)) {
      this.#note(stream, position);
      this.#deliver(stream, position, news);
      return;
    }
    const held = this.#held.get(stream);
    if (held) held.push({ ...news, position });
    else this.#held.set(stream, [{ ...news, position }]);
    this.#tellSoon(stream);
  }

  /** Calls `listener` whenever a stream moves on, whoever wrote; returns how to stop that. */
  onAdvance(stream: string, listener: (position: number) => void): () => void {
    let listeners = this.#followers.get(stream);
    if (!listeners) this.#followers.set(stream, (listeners = new Set()));
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }

  /** Waits until something is announced for this user. Never rejects. */
  wait(userId: string, options: WaitOptions): Promise<WaitOutcome> {
    return this.begin(userId, options).outcome;
  }

  /** The same for whoever may find before that there is nothing to wait for. */
  begin(userId: string, { timeoutMs, signal, hasNews, inRoom }: WaitOptions): Wait {
    if (this.#isEnding || signal?.aborted) return ended('aborted');
    if (hasNews?.()) return ended('news');
    if (timeoutMs <= 0) return ended('timeout');
    const { promise, resolve } = Promise.withResolvers<WaitOutcome>();
    const end = (): void => waiter.finish('aborted');
    const waiter: Waiter = {
      userId,
      inRoom,
      onExpired: () => waiter.finish('timeout'),
      finish: (outcome) => {
        if (!this.#remove(waiter)) return;
        signal?.removeEventListener('abort', end);
        resolve(outcome);
      },
    };
    this.#add(waiter, timeoutMs);
    signal?.addEventListener('abort', end, { once: true });
    return { outcome: promise, end };
  }

  /**
   * Waits until this process may read a stream up to `position`: a token may come from a process that is ahead. False when
   * that did not happen in time, or nothing is heard any more.
   */
  reached(
    stream: string,
    position: number,
    { timeoutMs, signal }: Pick<WaitOptions, 'timeoutMs' | 'signal'>,
  ): Promise<boolean> {
    const isReached = (): boolean => Math.abs(this.position(stream)) >= Math.abs(position);
    if (isReached()) return Promise.resolve(true);
    if (this.#closed || signal?.aborted || timeoutMs <= 0) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (): void => {
        stop();
        this.#reaching.delete(end);
        this.#wheel.remove(deadline);
        signal?.removeEventListener('abort', end);
        resolve(isReached());
      };
      const deadline: Deadline = { onExpired: end };
      const stop = this.onAdvance(stream, () => {
        if (isReached()) end();
      });
      this.#reaching.add(end);
      this.#wheel.add(deadline, timeoutMs);
      signal?.addEventListener('abort', end, { once: true });
    });
  }

  /** Wakes waiting long polls of these users, though nothing was announced: after their account was locked, for example. */
  wake(users: ReadonlySet<string> | readonly string[]): void {
    this.#wakeUsers(users);
  }

  /** Wakes everybody who waits: news may have been missed. */
  wakeAll(): void {
    this.#wakeUsers([...this.#waiters.keys()]);
  }

  /** Ends every wait as aborted, and every later one at once. What is written meanwhile is still told, and what others write heard. */
  endWaits(): void {
    this.#isEnding = true;
    for (const waiters of [...this.#waiters.values()]) for (const waiter of [...waiters]) waiter.finish('aborted');
  }

  /** {@link endWaits}, and tells and hears nothing any more: nobody writes here from now on. */
  close(): void {
    this.endWaits();
    this.#closed = true;
    for (const stop of this.#stops.splice(0)) stop();
    for (const end of [...this.#reaching]) end();
  }

  #add(waiter: Waiter, timeoutMs: number): void {
    let waiters = this.#waiters.get(waiter.userId);
    if (!waiters) this.#waiters.set(waiter.userId, (waiters = new Set()));
    if (waiters.size >= this.#maxWaitsPerUser) {
      const [oldest] = waiters;
      oldest?.finish('timeout');
      // That one's end may have removed the user's set.
      this.#waiters.set(waiter.userId, waiters);
    }
    waiters.add(waiter);
    this.#waiting++;
    this.#wheel.add(waiter, timeoutMs);
  }

  #remove(waiter: Waiter): boolean {
    const waiters = this.#waiters.get(waiter.userId);
    if (!waiters?.delete(waiter)) return false;
    if (waiters.size === 0) this.#waiters.delete(waiter.userId);
    this.#waiting--;
    this.#wheel.remove(waiter);
    return true;
  }

  /** Another process announced. */
  #hear(message: BusMessage): void {
    const { stream, from } = message;
    const order = from === undefined ? undefined : this.#orders.get(stream);
    if (order !== undefined && from !== undefined) return order.offer({ ...message, from });
    for (const listener of this.#hearers) listener(message);
    this.#moveTo(message, false);
    this.#orders.get(stream)?.look();
  }

  /** Whoever is concerned may read up to there. */
  #moveTo({ stream, position, users, rooms }: BusMessage, isOwn: boolean): void {
    this.#note(stream, position);
    const before = this.#waiters.size;
    this.#wakeUsers(users ?? []);
    this.#wakeRooms(rooms ?? []);
    if (isOwn) this.#onDelivered?.(stream, before - this.#waiters.size);
  }

  /** Positions of a stream that others write only ever go on, in whatever order the messages come. */
  #note(stream: string, position: number): void {
    if (Math.abs(position) <= Math.abs(this.#heard.get(stream) ?? 0)) return;
    this.#heard.set(stream, position);
    this.#tellFollowers(stream, position);
  }

  /** A stream of this process moved on. */
  #advance(stream: string, position: number): void {
    this.#tellFollowers(stream, position);
    this.#tellSoon(stream);
  }

  /**
   * Delivers what can be read now, in the order of the positions: whoever is told of one must know by then which keys changed up
   * to it. A position may be readable a moment before its own news are announced, and with it those behind it of which the news
   * have waited: therefore not before all that happens at once has happened.
   */
  #tellSoon(stream: string): void {
    if (this.#untold.has(stream)) return;
    this.#untold.add(stream);
    queueMicrotask(() => {
      this.#untold.delete(stream);
      const position = this.position(stream);
      for (const one of this.#takeHeld(stream, position)) this.#deliver(stream, one.position, one);
      // Others have to follow where nobody had news as well: a token that this process gives out names the position.
      if (this.#bus.isShared && !this.#closed && position !== this.#told.get(stream))
        this.#publish(stream, position, {});
    });
  }

  /** Takes the announcements of positions that can be read, in their order. */
  #takeHeld(stream: string, position: number): readonly Held[] {
    const held = this.#held.get(stream);
    if (held === undefined) return [];
    const isReadable = (one: Held): boolean => Math.abs(one.position) <= Math.abs(position);
    const { readable = [], later } = Object.groupBy(held, (one) => (isReadable(one) ? 'readable' : 'later'));
    if (later) this.#held.set(stream, later);
    else this.#held.delete(stream);
    return readable.sort((a, b) => Math.abs(a.position) - Math.abs(b.position));
  }

  #publish(stream: string, position: number, { users, rooms, changed }: Announcement): void {
    const number = (this.#published.get(stream) ?? 0) + 1;
    this.#published.set(stream, number);
    this.#told.set(stream, position);
    this.#bus.publish({ stream, writer: this.#instance, position, number, users, rooms, changed });
  }

  #deliver(stream: string, position: number, { users, rooms, changed }: Announcement): void {
    const before = this.#waiters.size;
    if (users) this.#wakeUsers(users);
    if (rooms) this.#wakeRooms(rooms);
    // Who is woken waits no more: each of their long polls ends.
    this.#onDelivered?.(stream, before - this.#waiters.size);
    this.#publish(stream, position, { users, rooms, changed });
  }

  #tellFollowers(stream: string, position: number): void {
    for (const listener of this.#followers.get(stream) ?? []) {
      try {
        listener(position);
      } catch (error) {
        this.#logger.error('A follower of a stream threw', { stream, err: error });
      }
    }
  }

  #wakeUsers(users: ReadonlySet<string> | readonly string[]): void {
    const count = Array.isArray(users) ? users.length : (users as ReadonlySet<string>).size;
    if (count === 0 || this.#waiters.size === 0) return;
    if (count <= this.#waiters.size) {
      for (const userId of users) this.#wakeUser(userId);
    } else {
      const wanted = asSet(users);
      for (const userId of [...this.#waiters.keys()]) if (wanted.has(userId)) this.#wakeUser(userId);
    }
  }

  #wakeUser(userId: string): void {
    const waiters = this.#waiters.get(userId);
    if (waiters) for (const waiter of [...waiters]) waiter.finish('news');
  }

  #wakeRooms(rooms: ReadonlySet<string> | readonly string[]): void {
    const wanted = [...rooms];
    if (wanted.length === 0) return;
    for (const waiters of [...this.#waiters.values()]) {
      for (const waiter of [...waiters]) {
        const { inRoom } = waiter;
        if (inRoom && wanted.some((roomId) => inRoom(roomId))) waiter.finish('news');
      }
    }
  }
}
