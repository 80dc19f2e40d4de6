import type * as RedisLibrary from '@redis/client';
import { type Logger, SilentLogger } from '@rookery/platform';
import { Bus, type BusMessage } from './bus.js';

/** Where Redis is. */
export interface RedisOptions {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  /** A Unix socket, instead of host and port. */
  readonly path?: string | undefined;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  /** Number of the database there. */
  readonly database?: number | undefined;
  /** Certificates in PEM; absent for a plain connection. */
  readonly tls?:
    | { readonly ca?: string[] | undefined; readonly cert?: string | undefined; readonly key?: string | undefined }
    | undefined;
}

export interface RedisBusOptions extends RedisOptions {
  /** What the processes of this server have in common and no other server has: its name. */
  readonly server: string;
  /** Unique for each bus. */
  readonly id: string;
  readonly logger?: Logger | undefined;
  /**
   * Messages of others may be lost: finds out from the database or its writer what is new. Must not reject.
   * @param hasMissed for the first time since Redis went away, or came back: what they said of caches may be lost as well
   */
  readonly catchUp: (hasMissed: boolean) => Promise<void>;
  /** Messages of this process may be lost: makes the others catch up. Must not reject. */
  readonly makeOthersCatchUp: () => Promise<void>;
}

/** What Redis does not acknowledge, and a mark that does not come, in so long: it hangs, or the way there is cut. */
const answerLimitMs = 2_000;
const withoutRedisMs = 1_000;
const reconnectMs = 250;
const pingMs = 5_000;
/** A connection on which nothing is said or heard for so long is made anew. */
const silentMs = 3 * pingMs;

/** Calls `late` when the time for an answer is over, and none has come that waits to be read: this process may have been busy as long. */
const afterLimit = (late: () => void): NodeJS.Timeout => setTimeout(() => setImmediate(late), answerLimitMs);

/** What is asked once for all who ask meanwhile, and again for those who ask after it was put. */
class Together {
  #next: Promise<void> | undefined;
  #running: Promise<void> | undefined;

  constructor(private readonly run: () => Promise<void>) {}

  /** What is asked already, or about to be; `undefined` where nothing is. */
  get pending(): Promise<void> | undefined {
    return this.#next ?? this.#running;
  }

  ask(): Promise<void> {
    this.#next ??= (this.#running ?? Promise.resolve()).then(() => {
      this.#next = undefined;
      const running = this.run().finally(() => {
        if (this.#running === running) this.#running = undefined;
      });
      return (this.#running = running);
    });
    return this.#next;
  }
}

/**
 * The bus over Redis or what speaks its language. What Redis has acknowledged is on its way to all who are connected, in order; a mark that a
 * process sends to itself comes behind it. While Redis is away nothing is announced: whoever needs to know asks, which takes longer. It is away as
 * well while it does not answer, or its answers do not come: nobody knows for how long.
 */
export class RedisBus extends Bus {
  readonly #options: RedisBusOptions;
  readonly #logger: Logger;
  readonly #publisher;
  readonly #subscriber;
  readonly #channel: string;
  readonly #marks: string;
  readonly #listeners = new Set<(message: BusMessage) => void>();
  readonly #sending = new Set<Promise<unknown>>();
  readonly #marked = new Map<string, () => void>();
  readonly #catchUp: Together;
  readonly #makeOthersCatchUp: Together;
  readonly #mark: Together;
  readonly #subscribing = new Together(() => this.#subscribe());
  #lastMark = 0;
  #isMarkHeard = false;
  /** The mark that shows, once it comes, that Redis is there. */
  #probe: string | undefined;
  /** The mark of that kind that was given to Redis last, until it has taken or refused it. */
  #unanswered: string | undefined;
  #isSubscribed = false;
  // That is said once.
  #isRefused = false;
  #isUp = false;
  // Something was published that Redis did not take: the others have yet to be told another way.
  #hasLost = false;
  // What others published may not have come: here that has yet to be found out.
  #hasMissed = false;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;

  private constructor(library: typeof RedisLibrary, options: RedisBusOptions) {
    super();
    this.#options = options;
    this.#logger = options.logger ?? new SilentLogger();
    this.#channel = `rookery:${options.server}`;
    this.#marks = `${this.#channel}:${options.id}`;
    this.#publisher = client(library, options);
    this.#subscriber = client(library, options);
    this.#catchUp = new Together(async () => {
      const hasMissed = this.#hasMissed;
      this.#hasMissed = false;
      await options.catchUp(hasMissed);
    });
    this.#makeOthersCatchUp = new Together(async () => {
      this.#hasLost = false;
      await options.makeOthersCatchUp();
    });
    this.#mark = new Together(async () => void (this.#isMarkHeard = await this.#sendMark()));
  }

  /** Connects, or goes on trying: a server starts without Redis as well. */
  static async connect(options: RedisBusOptions): Promise<RedisBus> {
    // Its hundreds of files are loaded by servers that have Redis, and by no other.
    const bus = new RedisBus(await import('@redis/client'), options);
    await bus.#connect();
    return bus;
  }

  override get isShared(): boolean {
    return true;
  }

  /** Whether Redis is there. */
  override get isUp(): boolean {
    return this.#isUp;
  }

  publish(message: BusMessage): void {
    if (this.#closed) return;
    const text = JSON.stringify(message, (_, value: unknown) =>
      value instanceof Set ? [...(value as Set<unknown>)] : value,
    );
    if (!this.#isUp) return this.#lose();
    const sent: Promise<unknown> = this.#publisher
      .publish(this.#channel, text)
      .catch(() => this.#lose())
      .finally(() => this.#sending.delete(sent));
    this.#sending.add(sent);
  }

  override told(): Promise<void> | undefined {
    if (this.#sending.size === 0 && !this.#hasLost && !this.#makeOthersCatchUp.pending) return undefined;
    return this.#told();
  }

  override heard(): Promise<boolean> {
    return this.#heard();
  }

  subscribe(listener: (message: BusMessage) => void): () => void {
    const own = (message: BusMessage): void => listener(message);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#timer);
    this.#listeners.clear();
    for (const heard of this.#marked.values()) heard();
    // What is on its way to Redis would be cut off with the connection.
    if (this.#isUp && this.#sending.size > 0) await this.#isAcknowledged();
    for (const one of [this.#publisher, this.#subscriber]) one.destroy();
  }

  async #connect(): Promise<void> {
    for (const one of [this.#publisher, this.#subscriber]) {
      one.on('error', (err: unknown) => {
        if (this.#isUp && !this.#closed)
          this.#logger.warn('Redis is away: news takes longer until it is back', { err });
        this.#setDown();
      });
      // Those of the subscriber are restored before it is ready.
      one.on('ready', () => {
        void this.#subscribing.ask();
        this.#sendProbe();
      });
      one.on('end', () => this.#setDown());
    }
    this.#timer = setInterval(() => {
      if (this.#closed) return;
      // Nobody may be waiting for what was stored behind an answer, and Redis may be there for everybody else.
      if (this.#hasLost) void this.#makeOthersCatchUp.ask();
      if (this.#isUp) return;
      void this.#catchUp.ask();
      // What was refused on a connection that lives is asked again. What has no answer yet is not: a connection on which
      // something is written is not silent, and would not break. The mark stays, for it may just be late.
      void this.#subscribing.ask();
      if (this.#unanswered === undefined) this.#sendProbe(this.#probe);
    }, withoutRedisMs);
    this.#timer.unref();
    const connecting = Promise.all([this.#publisher.connect(), this.#subscriber.connect()]);
    connecting.catch((err: unknown) => {
      if (!this.#closed) this.#logger.error('Redis cannot be used', { err });
    });
    const late = new Promise<void>((resolve) => setTimeout(resolve, answerLimitMs).unref());
    const up = new Promise<void>((resolve) => (this.#onceUp = resolve));
    await Promise.race([Promise.all([connecting, up]).catch(() => undefined), late]);
    if (!this.#isUp) this.#logger.warn('Redis is not there: news takes longer until it is');
  }

  #onceUp = (): void => {};

  /** Once for all connections: what was subscribed to is restored with each. Does nothing where that is done, or cannot be done yet. */
  async #subscribe(): Promise<void> {
    if (this.#isSubscribed || this.#closed || !this.#subscriber.isReady) return;
    try {
      await this.#subscriber.subscribe(this.#channel, this.#receive);
      await this.#subscriber.subscribe(this.#marks, this.#receiveMark);
    } catch (err) {
      if (!this.#closed && !this.#isRefused) this.#logger.error('Redis lets nobody listen: it is asked again', { err });
      this.#isRefused = true;
      return;
    }
    this.#isSubscribed = true;
    this.#sendProbe();
  }

  /**
   * Redis is there once it brings what it is given. A connection that breaks meanwhile is ready again, which makes another attempt; what is
   * refused is tried again each second.
   */
  #sendProbe(mark = String(++this.#lastMark)): void {
    if (this.#isUp || this.#closed || !this.#isSubscribed) return;
    if (!this.#publisher.isReady || !this.#subscriber.isReady) return;
    this.#probe = this.#unanswered = mark;
    const answered = (): void => {
      if (this.#unanswered === mark) this.#unanswered = undefined;
    };
    this.#publisher.publish(this.#marks, mark).then(answered, answered);
  }

  #setUp(): void {
    this.#probe = undefined;
    if (this.#isUp || this.#closed) return;
    this.#isUp = true;
    this.#onceUp();
    this.#logger.info('Redis is there');
    // What was said meanwhile was said to nobody.
    this.#hasMissed = true;
    void this.#catchUp.ask();
    if (this.#hasLost) void this.#makeOthersCatchUp.ask();
  }

  #setDown(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#hasMissed = true;
    for (const heard of this.#marked.values()) heard();
  }

  /**
   * Redis has not answered in time. Nothing more is given to it until it does; should nothing come from it any more, its connections break in
   * the end, for nothing is said on them either.
   */
  #suspect(): void {
    if (!this.#isUp || this.#closed) return;
    this.#logger.warn('Redis does not answer: news takes longer until it does');
    this.#setDown();
    this.#sendProbe();
  }

  #lose(): void {
    this.#hasLost = true;
  }

  // The same function each time: whoever subscribes twice with it hears once.
  readonly #receive = (text: string): void => {
    let message: BusMessage;
    try {
      message = JSON.parse(text) as BusMessage;
    } catch (err) {
      this.#logger.warn('A message on the bus cannot be read', { err });
      return;
    }
    for (const listener of this.#listeners) listener(message);
  };

  readonly #receiveMark = (mark: string): void => {
    if (mark === this.#probe) this.#setUp();
    else this.#marked.get(mark)?.();
  };

  async #told(): Promise<void> {
    if (this.#sending.size > 0 && !(await this.#isAcknowledged())) {
      this.#suspect();
      // Maybe it comes to the others, maybe not.
      this.#sending.clear();
      this.#lose();
    }
    // Who asked a moment before may have made them begin for what was lost here, too.
    await (this.#hasLost ? this.#makeOthersCatchUp.ask() : this.#makeOthersCatchUp.pending);
  }

  /** Whether Redis has what was given to it, within the time that it has for that. */
  async #isAcknowledged(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = afterLimit(() => resolve(false));
    });
    const sent = Promise.all(this.#sending).then(() => true);
    return Promise.race([sent, late]).finally(() => clearTimeout(timer));
  }

  async #heard(): Promise<boolean> {
    if (this.#isUp) {
      await this.#mark.ask();
      if (this.#isMarkHeard) {
        // What was said while Redis was away comes by no mark.
        await this.#catchUp.pending;
        return true;
      }
      this.#suspect();
    }
    await this.#catchUp.ask();
    return true;
  }

  async #sendMark(): Promise<boolean> {
    const mark = String(++this.#lastMark);
    let isHeard = false;
    await new Promise<void>((resolve) => {
      const timer = afterLimit(resolve);
      const end = (): void => {
        clearTimeout(timer);
        resolve();
      };
      this.#marked.set(mark, () => {
        isHeard = this.#isUp;
        end();
      });
      this.#publisher.publish(this.#marks, mark).catch(end);
    });
    this.#marked.delete(mark);
    return isHeard;
  }
}

function client(library: typeof RedisLibrary, { host, port, path, username, password, database, tls }: RedisOptions) {
  const retry = { reconnectStrategy: () => reconnectMs, connectTimeout: 5_000, socketTimeout: silentMs };
  const certificates = {
    ...(tls?.ca && { ca: tls.ca }),
    ...(tls?.cert !== undefined && { cert: tls.cert }),
    ...(tls?.key !== undefined && { key: tls.key }),
  };
  return library.createClient({
    socket:
      path !== undefined
        ? { path, ...retry }
        : tls
          ? { host: host ?? 'localhost', port: port ?? 6379, tls: true, ...certificates, ...retry }
          : { host: host ?? 'localhost', port: port ?? 6379, ...retry },
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...(database !== undefined && { database }),
    // What cannot be sent now is not sent later: whoever needs to know asks.
    disableOfflineQueue: true,
    // So that a connection is silent only where Redis is.
    pingInterval: pingMs,
  });
}
