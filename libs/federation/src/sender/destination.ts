import { failureLevel } from '@rookery/database';
import {
  type Destinations,
  type FederationClient,
  federationPath,
  FederationRequestError,
} from '@rookery/federation-client';
import type { PresenceState, Receipt } from '@rookery/ephemeral';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { type Clock, type Config, type Ids, lastAnswerMs, type Logger, type Timer } from '@rookery/platform';
import { Attempt } from './attempt.js';
import type { BacklogReader } from './backlog-reader.js';
import { EphemeralOutbox, type TypingNews } from './ephemeral-outbox.js';
import type { EventTexts } from './event-texts.js';
import type { EduStore, OutgoingEdu } from './outgoing-edu.js';
import type { SenderMetrics } from './sender-metrics.js';
import type { OutgoingEvent } from './sender.query.js';
import type { SuccessLog } from './success-log.js';
import type { WrittenTransactions } from './written-transactions.js';
import type { SendingTurns, TurnTaker } from './turns.js';

/** What destinations work with; the same for all. */
export interface DestinationParts {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: SenderMetrics;
  readonly client: FederationClient;
  readonly destinations: Destinations;
  readonly backlogs: BacklogReader;
  readonly texts: EventTexts;
  readonly bodies: WrittenTransactions;
  readonly turns: SendingTurns;
  readonly successes: SuccessLog;
  /** In the order in which they are to arrive. */
  readonly stores: readonly EduStore[];
  readonly stopping: AbortSignal;
  nextTransactionId(): string;
  /** Whether something may be sent to a server now, as far as this process can know. */
  maySend(server: string): boolean;
  /** The server names events as processed, without an error. */
  onTaken(server: string, eventIds: readonly string[]): void;
  /** There is nothing left to send. */
  onIdle(destination: Destination): void;
}

/** What a transaction may hold. @spec server-server-api#transactions */
const maxPdus = 50;
const maxEdus = 100;
/** Of those, at most so many of each kind that lies in the database. */
const maxStoredEdus = 40;
/** No further event is added to a transaction of this size; characters. */
const maxChars = 1_048_576;
/** Events that wait in memory; with more the server catches up from the database. */
const maxWaiting = 1_000;
const maxAnswerBytes = 1_048_576;
/** A transaction that took longer makes its server a slow one. */
const slowMs = 1_000;
const firstPauseMs = 1_000;
/** While a server refuses transactions, though it is there. */
const refusedPauseMs = 60_000;
const longestRefusedPauseMs = 3_600_000;
/** Events of one answer that are sent once more since what they rest upon is missing there. */
const maxRepeated = 10;
/**
 * How servers say that. NOTSPEC: an answer has words for people only, and no code. Where they mean something else, that costs one
 * transaction.
 */
const lacksPrevious = /\bprev(?:ious)?[_ ]events?\b|\bancestors?\b/i;
/** After a failure of our own. */
const ownPauseMs = 5_000;
const busyPauseMs = 1_000;
/** A server that is to be left alone for longer is looked at again after this time; no request is made then. */
const longestPauseMs = 86_400_000;

interface Load {
  readonly events: readonly OutgoingEvent[];
  readonly pduTexts: readonly string[];
  readonly eduTexts: readonly string[];
  readonly edus: readonly OutgoingEdu[];
  /** Forgets the EDUs. */
  readonly settle: () => Promise<void>;
}

/** A transaction that was begun: what it says is the same however often it is tried. */
interface Transaction {
  readonly id: string;
  readonly ts: number;
  readonly load: Load;
}

/** It uses its turn. */
interface Running {
  readonly kind: 'running';
  /** What its server was sent and has not answered. */
  attempt: Attempt | undefined;
}

/** What a destination is about. */
type State =
  | { readonly kind: 'idle' }
  /** For its turn among other destinations. */
  | { readonly kind: 'waiting' }
  | Running
  /** After a trouble; then it goes on by itself. */
  | { readonly kind: 'pausing'; readonly timer: Timer };

/** What has gone wrong since the server took something last. */
interface Trouble {
  /** How often it could not be reached; since it was heard of again. */
  readonly failures: number;
  /** How often it refused a transaction, though it is there. */
  readonly refusals: number;
  /** When it happened last, by the monotonic clock, milliseconds. */
  readonly atMs: number;
  readonly timedOut: boolean;
  /** It counts as down, or has refused: what is news for a moment only need not wait for it. */
  readonly isGivenUp: boolean;
}

interface NextEdus extends Pick<Load, 'edus' | 'settle'> {
  /** A store could not be read. Nothing else waits for that. */
  readonly failure?: { readonly error: unknown } | undefined;
}

const noEdus: NextEdus = { edus: [], settle: () => Promise.resolve() };

const noTrouble: Trouble = { failures: 0, refusals: 0, atMs: 0, timedOut: false, isGivenUp: false };

/** Where its events come from. */
type Source =
  /** They wait in memory, all of them. */
  | { readonly kind: 'memory' }
  /** It catches up: those that were read wait in memory, the others lie in the database. */
  | {
      readonly kind: 'database';
      /** Up to where the server has them; `undefined` until that is looked up. */
      reached: number | undefined;
      /** Events that came meanwhile, and were left to the database. */
      skipped: number;
    };

/**
 * What one server is to get: one transaction at a time, events in their order. A server that does not answer is tried again
 * after growing pauses; once it counts as down, what waits in memory is dropped: later it gets it from the database, or the
 * latest event of each room when that is much.
 */
export class Destination implements TurnTaker {
  /** Where there was any news for a moment. */
  #outbox: EphemeralOutbox | undefined;
  /** Stores in which something may lie; some of those of the parts. */
  readonly #stored = new Set<EduStore>();
  /** To be sent next: all that wait or, while it catches up, those that were read from the database. */
  #events: OutgoingEvent[] = [];
  #source: Source = { kind: 'memory' };
  #state: State = { kind: 'idle' };
  #trouble = noTrouble;
  #wasSlow = false;
  /** It was heard of since it could not be reached: then it need not wait with those that most likely do not answer. */
  #showsLife = false;
  /** What a refused transaction held is sent bit by bit, to find what is refused. */
  #alone = false;
  /** Kept until it is answered or given up: a server may have taken it, though its answer was lost. */
  #unanswered: Transaction | undefined;
  #running: Promise<void> = Promise.resolve();
  #isEnded = false;

  constructor(
    readonly name: string,
    private readonly parts: DestinationParts,
  ) {}

  get isSlow(): boolean {
    const { failures, refusals } = this.#trouble;
    if (this.#showsLife) return false;
    return this.#wasSlow || this.#source.kind === 'database' || failures > 0 || refusals > 0;
  }

  /** Whether nothing waits and nothing is known that would have to be remembered. */
  get isIdle(): boolean {
    return this.#state.kind === 'idle' && !this.#hasWork();
  }

  get waitingEvents(): number {
    return this.#events.length;
  }

  get waitingEdus(): number {
    return this.#outbox?.size ?? 0;
  }

  /** Events that the database knows to be for this server, in stream order. */
  addEvents(events: readonly OutgoingEvent[]): void {
    this.#makeRoom(events.length);
    if (this.#source.kind === 'database') this.#source.skipped += events.length;
    else this.#events.push(...events);
    this.#kick();
  }

  /** There may be events in the database that the server has not got. */
  catchUp(): void {
    this.#leaveToDatabase();
    this.#kick();
  }

  addTyping(news: TypingNews): void {
    if (this.#isLeftAlone) return;
    this.#news.addTyping(news);
    this.#kick();
  }

  addReceipts(receipts: readonly Receipt[]): void {
    if (this.#isLeftAlone) return;
    this.#news.addReceipts(receipts);
    this.#kick();
  }

  addPresence(states: readonly PresenceState[]): void {
    if (this.#isLeftAlone) return;
    this.#news.addPresence(states);
    this.#kick();
  }

  /** Something lies in a store. */
  addStored(store: EduStore): void {
    this.#stored.add(store);
    this.#kick();
  }

  /** The same, but it waits for something else to go along with. */
  enclose(store: EduStore): void {
    this.#stored.add(store);
  }

  /** The server shows life again. */
  recovered(): void {
    this.#trouble = { ...this.#trouble, failures: 0, isGivenUp: false };
    this.#showsLife = true;
    if (this.#state.kind === 'running') this.#state.attempt?.showedLife();
    this.#endPause();
    this.#kick();
  }

  /**
   * A trouble may be over: the rest of its pause is left out. Not at once, since the server may be there and yet out of reach;
   * and the later, the oftener it refused what it was sent, for it may well go on talking. An answer that it owes is not waited
   * for, unless it took its time before: then it is most likely at work on what it got, and would get it twice.
   */
  showedLife(): void {
    if (this.#state.kind === 'running' && !this.#wasSlow) this.#state.attempt?.showedLife();
    if (this.#state.kind !== 'pausing') return;
    const { failures, refusals, atMs, isGivenUp } = this.#trouble;
    const isShort = failures > 0 && !isGivenUp;
    if (!isShort && refusals === 0) return;
    const shortestMs = isShort ? firstPauseMs : Math.min(firstPauseMs * 2 ** refusals, refusedPauseMs);
    if (this.parts.clock.monotonicMs() - atMs < shortestMs) return;
    this.#showsLife = true;
    this.#endPause();
    this.#kick();
  }

  run(): Promise<void> {
    return (this.#running = this.#run());
  }

  /**
   * Ends pauses, and what is under way once it is answered or a moment has passed, for good where nothing is begun any more: what was taken
   * without that being known here comes once more after a restart, from another process.
   */
  stop(): void {
    if (this.#state.kind === 'running') this.#state.attempt?.cutAfter(lastAnswerMs);
    if (this.#state.kind === 'pausing') this.#state.timer.cancel();
  }

  /** Another process looks after the server: resolves when nothing is under way, and nothing is begun any more. Never rejects. */
  end(): Promise<void> {
    this.#isEnded = true;
    this.stop();
    return this.#running;
  }

  get #isStopping(): boolean {
    return this.#isEnded || this.parts.stopping.aborted;
  }

  get #news(): EphemeralOutbox {
    return (this.#outbox ??= new EphemeralOutbox());
  }

  /** It was down when it was tried last: what is news for a moment only need not wait for it, and what lies in the database waits there. */
  get #isLeftAlone(): boolean {
    return this.#trouble.isGivenUp && this.#state.kind === 'pausing';
  }

  async #run(): Promise<void> {
    const { logger } = this.parts;
    const running: Running = { kind: 'running', attempt: undefined };
    this.#state = running;
    this.#showsLife = false;
    let pauseMs: number | undefined;
    try {
      if (!this.#isStopping) pauseMs = await this.#send(running);
    } catch (error) {
      if (!this.#isStopping)
        logger[failureLevel(error)]('A transaction could not be put together', { destination: this.name, err: error });
      pauseMs = ownPauseMs;
    }
    this.#state = { kind: 'idle' };
    if (this.#isStopping) return;
    if (pauseMs !== undefined) this.#pauseFor(pauseMs);
    this.#kick();
  }

  #pauseFor(ms: number): void {
    const timer = this.parts.clock.after(ms, () => {
      this.#state = { kind: 'idle' };
      this.#kick();
    });
    this.#state = { kind: 'pausing', timer };
  }

  #endPause(): void {
    if (this.#state.kind !== 'pausing') return;
    this.#state.timer.cancel();
    this.#state = { kind: 'idle' };
  }

  #hasWork(): boolean {
    if (this.#unanswered !== undefined) return true;
    return this.#events.length > 0 || this.#source.kind === 'database' || this.#stored.size > 0 || this.waitingEdus > 0;
  }

  #kick(): void {
    if (this.#state.kind !== 'idle' || this.#isStopping) return;
    if (!this.#hasWork()) return this.parts.onIdle(this);
    this.#state = { kind: 'waiting' };
    this.parts.turns.ask(this);
  }

  #makeRoom(count: number): void {
    if (this.#source.kind !== 'memory') return;
    // Of servers that are left alone for long there may be many thousands.
    if (this.#isLeftAlone || this.#events.length + count > maxWaiting) this.#leaveToDatabase();
  }

  #leaveToDatabase(): void {
    const skipped = this.#source.kind === 'database' ? this.#source.skipped : 0;
    this.#source = { kind: 'database', reached: undefined, skipped };
    this.#events = [];
  }

  /** @returns how long to wait before the next one, milliseconds */
  async #send(running: Running): Promise<number | undefined> {
    const { bodies, client, clock, config, destinations, metrics } = this.parts;
    const { failingSinceTs, retryAtTs } = await destinations.state(this.name);
    if (retryAtTs > 0) return this.#giveUp(retryAtTs - clock.nowMs());
    const load = this.#unanswered?.load ?? (await this.#next());
    if (load === undefined) return undefined;
    if (load.pduTexts.length === 0 && load.edus.length === 0) return void (await this.#delivered(load));
    const { failures, timedOut } = this.#trouble;
    // A short trouble is not held against the server: it would be left alone for much longer than that.
    const isLast = failingSinceTs !== undefined || timedOut || failures >= config.get('federation.max_long_retries');
    const transaction = (this.#unanswered ??= {
      ...{ id: this.parts.nextTransactionId(), ts: bodies.beginningOf(load, clock.nowMs()), load },
    });
    if (this.#isStopping) return undefined;
    // Whoever was paused or cut off finds out before long whether somebody else does it now.
    if (!this.parts.maySend(this.name)) return ownPauseMs;
    const attempt = (running.attempt = new Attempt(clock));
    let lacking: readonly OutgoingEvent[] = [];
    try {
      const { body } = await client.request({
        destination: this.name,
        method: 'PUT',
        path: federationPath`/_matrix/federation/v1/send/${transaction.id}`,
        canonicalContent: bodies.of(load, transaction.ts),
        maxBytes: maxAnswerBytes,
        retries: 'none',
        ignoreBackoff: !isLast,
        signal: attempt.signal,
      });
      lacking = this.#report(body, load.events);
    } catch (error) {
      this.#wasSlow = true;
      if (!(error instanceof FederationRequestError)) throw error;
      // It has taken the transaction, whatever it says about it.
      if (error.reason !== 'bad_response' && error.reason !== 'too_large') return this.#failed(error, load, isLast);
    } finally {
      running.attempt = undefined;
      attempt.end();
    }
    this.#unanswered = undefined;
    this.#wasSlow = attempt.tookMs > slowMs;
    metrics.sent(this.name, load.events.length, load.edus);
    await this.#delivered(load);
    if (lacking.length > 0) await this.#repeat(lacking);
    return undefined;
  }

  /** Has events go once more, first of all, behind those that they name as previous ones; not where there is none that may be sent. */
  async #repeat(lacking: readonly OutgoingEvent[]): Promise<void> {
    const previous = await this.parts.backlogs.before(
      this.name,
      lacking.map(({ eventId }) => eventId),
    );
    if (previous.length === 0) return;
    const again = [...previous, ...lacking].map((event) => ({ ...event, isRepeated: true }));
    this.#events.unshift(...again.sort((a, b) => a.streamOrdering - b.streamOrdering));
  }

  /** What goes into the next transaction; `undefined` when there is nothing. */
  async #next(): Promise<Load | undefined> {
    const events = await this.#nextEvents();
    const texts = await this.parts.texts.of(events.map((event) => event.eventId));
    const taken: OutgoingEvent[] = [];
    const pduTexts: string[] = [];
    let chars = 0;
    for (const event of events) {
      const text = texts.get(event.eventId);
      if (text !== undefined) {
        if (taken.length > 0 && chars + text.length > maxChars) break;
        pduTexts.push(text);
        chars += text.length;
      }
      taken.push(event);
    }
    const limit = !this.#alone ? maxEdus : taken.length > 0 ? 0 : 1;
    const { edus, settle, failure } = this.#stored.size + this.waitingEdus === 0 ? noEdus : await this.#nextEdus(limit);
    if (taken.length === 0 && edus.length === 0) {
      // What has no form in which it could be sent is forgotten: it would come first again, and hold up whatever lies behind it.
      await settle();
      if (failure !== undefined) throw failure.error;
      return undefined;
    }
    if (failure !== undefined) {
      const { error: err } = failure;
      this.parts.logger[failureLevel(err)]('A transaction goes without some EDUs', { destination: this.name, err });
    }
    return { events: taken, pduTexts, edus, eduTexts: edus.map(({ text }) => text), settle };
  }

  /** EDUs for the next transaction, and what forgets them. */
  async #nextEdus(limit: number): Promise<NextEdus> {
    const edus: OutgoingEdu[] = [];
    let failure: NextEdus['failure'];
    const settles: (() => Promise<void> | void)[] = [];
    for (const store of this.parts.stores) {
      if (!this.#stored.has(store)) continue;
      const room = Math.min(maxStoredEdus, limit - edus.length);
      if (room <= 0) break;
      // Before it is read: what comes meanwhile adds it again.
      this.#stored.delete(store);
      let isEmpty = false;
      try {
        const batch = await store.next(this.name, room);
        isEmpty = batch.isAll && batch.edus.length === 0;
        edus.push(...batch.edus);
        settles.push(() => batch.delivered());
      } catch (error) {
        failure ??= { error };
      } finally {
        if (!isEmpty) this.#stored.add(store);
      }
    }
    // Whoever catches up has no use for what was news a while ago.
    if (this.#source.kind === 'memory' && this.#outbox !== undefined && limit > edus.length) {
      const news = this.#outbox.next(limit - edus.length, this.parts.clock.nowMs());
      edus.push(...news.edus);
      settles.push(() => news.delivered());
    }
    const settle = async (): Promise<void> => {
      for (const one of settles) await one();
    };
    return { edus, settle, failure };
  }

  async #nextEvents(): Promise<readonly OutgoingEvent[]> {
    if (this.#events.length === 0) await this.#recall();
    return this.#events.slice(0, this.#alone ? 1 : maxPdus);
  }

  /** Takes what the server has not got from the database, or has caught up. */
  async #recall(): Promise<void> {
    const { backlogs, successes } = this.parts;
    while (this.#source.kind === 'database') {
      const source = this.#source;
      const { skipped } = source;
      // Before the other: what is written meanwhile is noted no longer, and may not be read yet.
      const unwritten = successes.unwritten(this.name);
      source.reached ??= Math.max(await backlogs.reachedBy(this.name), unwritten);
      this.#events = await backlogs.of(this.name, source.reached);
      if (this.#events.length > 0) return;
      // What came meanwhile lies in the database by now, and somebody may have had it begin once more.
      if (this.#source === source && source.skipped === skipped) this.#source = { kind: 'memory' };
    }
  }

  async #delivered({ events, settle }: Load): Promise<void> {
    this.#trouble = noTrouble;
    const last = events.at(-1)?.streamOrdering;
    if (last !== undefined) {
      const source = this.#source;
      if (source.kind === 'database' && source.reached !== undefined) source.reached = Math.max(source.reached, last);
      const gone = new Set(events.map((event) => event.eventId));
      this.#events = this.#events.filter((event) => !gone.has(event.eventId));
      this.parts.successes.note(this.name, last);
    }
    await settle();
    if (!this.#hasWork()) this.#alone = false;
  }

  async #failed(error: FederationRequestError, load: Load, isLast: boolean): Promise<number | undefined> {
    const { clock, config, destinations, ids, logger } = this.parts;
    const { reason, status, retryAfterMs } = error;
    if (reason === 'aborted') {
      // It speaks to us, and is tried anew for that.
      this.#showsLife = true;
      return undefined;
    }
    if (reason === 'busy') return busyPauseMs;
    if (reason === 'backing_off') return this.#giveUp(retryAfterMs ?? refusedPauseMs);
    if (error.isDown) {
      const failures = this.#trouble.failures + 1;
      const timedOut = reason === 'timeout';
      // It was not at work on what it got: the next answer is not waited for once it speaks.
      this.#wasSlow = false;
      this.#trouble = { ...this.#trouble, failures, timedOut, atMs: clock.monotonicMs() };
      if (isLast) return this.#giveUp((await destinations.state(this.name)).retryAtTs - clock.nowMs());
      const planned = firstPauseMs * 4 ** Math.min(failures - 1, 10);
      const jitter = 0.8 + (0.4 * ids.integer(1001)) / 1000;
      const pauseMs = Math.min(planned, config.get('federation.max_long_retry_delay')) * jitter;
      return Math.max(Math.min(retryAfterMs ?? 0, longestRefusedPauseMs), pauseMs);
    }
    if (status === 429) return Math.min(Math.max(retryAfterMs ?? refusedPauseMs, busyPauseMs), longestRefusedPauseMs);
    logger.warn('Another server refuses a transaction', {
      ...{ destination: this.name, reason, status, errcode: error.errcode },
      ...{ pdus: load.pduTexts.length, edus: load.edus.length },
    });
    const isForContent = status === 413 || (status === 400 && error.errcode !== undefined);
    if (isForContent && error.errcode !== 'M_UNRECOGNIZED') {
      this.#unanswered = undefined;
      // Something in it, then: it is found by sending bit by bit, and left out. A bit may be two EDUs that say the same.
      if (!this.#alone && load.pduTexts.length + load.edus.length > 1) {
        this.#alone = true;
        return busyPauseMs;
      }
      await this.#delivered(load);
      return undefined;
    }
    const refusals = this.#trouble.refusals + 1;
    this.#trouble = { ...this.#trouble, refusals, atMs: clock.monotonicMs() };
    return this.#giveUp(Math.min(refusedPauseMs * 2 ** Math.min(refusals - 1, 10), longestRefusedPauseMs));
  }

  /** Lets it be for a while. */
  #giveUp(pauseMs: number): number {
    if (this.#events.length > 0) this.#leaveToDatabase();
    this.#outbox = undefined;
    this.#unanswered = undefined;
    this.#trouble = { ...this.#trouble, isGivenUp: true };
    return Math.min(Math.max(pauseMs, busyPauseMs), longestPauseMs);
  }

  /**
   * Notes what the server says about single events.
   * @returns those that it did not take since it has not what they rest upon, some of them; none that were repeated for that
   */
  #report(body: Buffer, sent: readonly OutgoingEvent[]): OutgoingEvent[] {
    let answer: unknown;
    try {
      answer = JSON.parse(body.toString('utf8'));
    } catch {
      return [];
    }
    const pdus = isJsonObject(answer) ? answer['pdus'] : undefined;
    if (!isJsonObject(pdus)) return [];
    const resultOf = ({ eventId }: OutgoingEvent): JsonObject | undefined => {
      const result = Object.hasOwn(pdus, eventId) ? pdus[eventId] : undefined;
      return isJsonObject(result) ? result : undefined;
    };
    const taken = sent.flatMap((event) => {
      const result = resultOf(event);
      return result !== undefined && !('error' in result) ? [event.eventId] : [];
    });
    if (taken.length > 0) this.parts.onTaken(this.name, taken);
    const refused = Object.entries(pdus).filter(([, result]) => isJsonObject(result) && 'error' in result);
    if (refused.length === 0) return [];
    this.parts.logger.info('Another server did not take events', {
      destination: this.name,
      events: refused.slice(0, 10).map(([eventId]) => eventId.slice(0, 255)),
      count: refused.length,
    });
    const isLacking = (event: OutgoingEvent): boolean => {
      const error = resultOf(event)?.['error'];
      return event.isRepeated !== true && typeof error === 'string' && lacksPrevious.test(error);
    };
    return sent.filter(isLacking).slice(0, maxRepeated);
  }
}
