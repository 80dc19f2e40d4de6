import { type Database, failureLevel } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { type Clock, lastAnswerMs, type Logger, type Metrics } from '@rookery/platform';
import type { StoredEvent } from '@rookery/rooms';
import { existingAccounts } from '@rookery/users';
import type { AppserviceClient } from '../queries/appservice-client.js';
import type { AppserviceQueries } from '../queries/appservice-queries.js';
import type { Registration } from '../registration/registration.js';
import type { TransactionBodies } from './transaction-bodies.js';
import { transactionLimit } from './transaction-store.js';
import type { Transaction } from './transactions.query.js';
import type { WaitingTransactions } from './waiting-transactions.js';

/** What senders work with. */
export interface SenderParts {
  readonly waiting: WaitingTransactions;
  readonly bodies: TransactionBodies;
  readonly client: AppserviceClient;
  readonly queries: AppserviceQueries;
  readonly database: Database;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Whether this process may send to a service now, as far as can be known. */
  readonly maySend: (asId: string) => boolean;
}

const timeoutMs = 60_000;
const firstRetryMs = 1_000;
const longestRetryMs = 512_000;
/** How long is waited where it is not known whether anything may be sent. */
const unknownMs = 1_000;
/** The status that says so of a request. */
const tooLarge = 413;
/** EDUs that wait; what is older is old news. */
const maxWaitingEdus = 1_000;

/** What is being sent. */
interface Outgoing {
  readonly txnId: number;
  /** Absent where there is nothing in it that must not be lost. */
  readonly stored: Transaction | undefined;
  readonly edus: readonly JsonObject[];
  /** Which part of what is stored; absent for the whole. */
  readonly piece?: Piece;
}

/** A part of a stored transaction: of its events, to-device messages and changed users in one row, those from one on and before another. */
interface Piece {
  readonly from: number;
  readonly to: number;
}

/**
 * Brings one service its transactions: one at a time, in order, none left out. A service that does not take one is tried
 * again after a pause that doubles; what is not news any more by then, such as typing, is dropped. What comes again has the id and all
 * else that it had, also from the process that sends to the service next. What the service, or a proxy before it, finds too large comes in
 * pieces, each with an id that follows from what it holds.
 */
export class ServiceSender {
  /** Nothing more is begun. */
  readonly #stopping = new AbortController();
  /** What is under way is not waited for any longer. */
  readonly #cut = new AbortController();
  #edus: JsonObject[] = [];
  #failures = 0;
  #failedAtMs = 0;
  #isPausing = false;
  #loop: Promise<void> | undefined;
  #wasDown = false;
  /** Of the transaction that was found too large: the pieces that are left, in order. */
  #pieces: { readonly txnId: number; readonly left: readonly Piece[] } | undefined;
  /** Ends the sleep, or the pause after a failure. */
  #rouse: (() => void) | undefined;
  #hasNews = false;

  constructor(
    readonly service: Registration,
    private readonly parts: SenderParts,
  ) {}

  /** Looks what there is to send; begins to, the first time. @param wasDown it could not be reached when that was last noted */
  start(wasDown: boolean): void {
    if (this.#loop) return this.wake();
    this.#wasDown = wasDown;
    this.#loop = this.#run();
  }

  /**
   * Sends nothing more. What is under way has a moment to be answered, and is repeated after the next start, or by another process, if it is
   * not.
   */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#rouse?.();
    const timer = this.parts.clock.after(lastAnswerMs, () => this.#cut.abort());
    await this.#loop;
    timer.cancel();
  }

  /** There is a transaction in the store. */
  wake(): void {
    this.#hasNews = true;
    if (!this.#isPausing) this.#rouse?.();
  }

  /** Gives it an EDU to send soon. Dropped in the pause after a failure. */
  offer(edu: JsonObject): void {
    if (this.#isPausing) return;
    this.#edus.push(edu);
    if (this.#edus.length > maxWaitingEdus) this.#edus.shift();
    this.wake();
  }

  /**
   * The service gives a sign of life: the pause after a failure ends.
   * @param afterMs but not before it has lasted so long
   */
  retry(afterMs = 0): void {
    if (!this.#isPausing || this.parts.clock.monotonicMs() - this.#failedAtMs < afterMs) return;
    this.#rouse?.();
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      try {
        const outgoing = await this.#next();
        if (outgoing === undefined) await this.#sleep();
        else if (outgoing === 'later') await this.#wait();
        else {
          const problem = await this.#send(outgoing);
          if (problem !== undefined && !this.#stopping.signal.aborted) await this.#failed(problem);
        }
      } catch (err) {
        // The database, or a mistake of ours: no fault of the service.
        this.parts.logger[failureLevel(err)]('Sending to an application service failed', {
          service: this.service.id,
          err,
        });
        await this.#pause();
      }
    }
  }

  async #next(): Promise<Outgoing | 'later' | undefined> {
    const { waiting } = this.parts;
    this.#hasNews = false;
    const stored = await waiting.next(this.service.id);
    if (stored === 'later') return stored;
    const piece = stored && this.#left(stored.txnId)[0];
    if (stored && piece) return { txnId: stored.txnId, stored, edus: [], piece };
    const edus = this.#edus.splice(0, transactionLimit);
    if (stored) return { txnId: stored.txnId, stored, edus };
    return edus.length > 0 ? { txnId: await waiting.nextId(), stored, edus } : undefined;
  }

  /** @returns what went wrong */
  async #send(outgoing: Outgoing): Promise<unknown> {
    const { txnId, stored, edus, piece } = outgoing;
    const { service, parts } = this;
    const content: Content = stored ? contentOf(stored, piece) : { eventIds: [] };
    const body = await parts.bodies.write(service, content, edus);
    if (!body.isEmpty) {
      await this.#askAboutUsers(body.events);
      // Somebody else may send to it by now; if not, this process goes on once it knows.
      if (this.#stopping.signal.aborted || !parts.maySend(service.id)) return this.#wait();
      const path = `/transactions/${txnId}${piece ? `-${piece.from}-${piece.to}` : ''}`;
      const request = { method: 'PUT', path: `/v1${path}`, legacyPath: path, body: body.json, timeoutMs } as const;
      try {
        const { status } = await parts.client.send(service, { ...request, signal: this.#cut.signal });
        if (status === tooLarge && stored && this.#cutUp(stored, outgoing)) return undefined;
        const isLeftOut = status === tooLarge && stored !== undefined;
        if (!isLeftOut && (status < 200 || status > 299)) return `It answered with status ${status}`;
        if (!isLeftOut) this.#count(body.events.length, edus.length, content.toDevice?.length ?? 0);
      } catch (error) {
        return error;
      }
    }
    this.#failures = 0;
    if (piece) this.#pieces = { txnId, left: this.#left(txnId).slice(1) };
    if (this.#left(txnId).length > 0) return undefined;
    this.#pieces = undefined;
    if (stored) await parts.waiting.taken(service.id, txnId, this.#wasDown);
    else if (this.#wasDown) await parts.waiting.setState(service.id, 'up');
    if (this.#wasDown) parts.logger.info('An application service can be reached again', { service: service.id });
    this.#wasDown = false;
    return undefined;
  }

  #left(txnId: number): readonly Piece[] {
    return this.#pieces?.txnId === txnId ? this.#pieces.left : [];
  }

  /**
   * What was found too large is to come in halves, and without what need not come.
   * @returns `false` where nothing can be taken away: a single thing is too large, and left out
   */
  #cutUp(stored: Transaction, { txnId, edus, piece = { from: 0, to: sizeOf(stored) } }: Outgoing): boolean {
    const { from, to } = piece;
    const { service, parts } = this;
    if (to - from <= 1 && edus.length === 0) {
      const { eventIds, toDevice } = contentOf(stored, piece);
      const what = { event_id: eventIds[0], to_device: toDevice?.length };
      parts.logger.error('An application service takes something for too large; it is left out', {
        ...{ service: service.id, transaction: txnId, ...what },
      });
      return false;
    }
    const middle = to - from <= 1 ? to : Math.ceil((from + to) / 2);
    const halves = [
      { from, to: middle },
      { from: middle, to },
    ].filter((half) => half.from < half.to);
    this.#pieces = { txnId, left: [...halves, ...this.#left(txnId).slice(1)] };
    parts.logger.info('An application service takes a transaction for too large; it comes in pieces', {
      ...{ service: service.id, transaction: txnId, of: to - from },
    });
    return true;
  }

  /** Users of the service whom somebody has addressed before the service made them: it gets a chance to. */
  async #askAboutUsers(events: readonly StoredEvent[]): Promise<void> {
    const { service, parts } = this;
    const users = new Set(events.map(({ event }) => event.sender));
    for (const { event } of events)
      if (event.type === 'm.room.member' && event.stateKey !== undefined) users.add(event.stateKey);
    const own = [...users].filter(
      (userId) => userId !== service.senderUserId && service.covers(userId) && parts.queries.isUnasked(service, userId),
    );
    if (own.length === 0) return;
    const known = await existingAccounts(parts.database, own);
    for (const userId of known) parts.queries.noteExisting(service, userId);
    const unknown = own.filter((userId) => !known.has(userId));
    await Promise.all(unknown.map((userId) => parts.queries.askAboutUser(service, userId, this.#stopping.signal)));
  }

  #count(events: number, edus: number, toDevice: number): void {
    const { metrics } = this.parts;
    const labels = { service: this.service.id };
    metrics.counter('synapse_appservice_api_sent_transactions').inc(labels);
    metrics.counter('synapse_appservice_api_sent_events').inc(labels, events);
    metrics.counter('synapse_appservice_api_sent_ephemeral').inc(labels, edus);
    metrics.counter('synapse_appservice_api_sent_todevice').inc(labels, toDevice);
  }

  async #failed(problem: unknown): Promise<void> {
    const { logger, metrics, waiting } = this.parts;
    const { id } = this.service;
    metrics.counter('synapse_appservice_api_failed_transactions').inc({ service: id });
    logger.warn('An application service does not take a transaction', {
      ...{ service: id, failures: this.#failures + 1, retryInMs: this.#pauseMs },
      ...(typeof problem === 'string' ? { reason: problem } : { err: problem }),
    });
    if (!this.#wasDown) {
      await waiting.setState(id, 'down');
      this.#wasDown = true;
    }
    await this.#pause();
  }

  get #pauseMs(): number {
    return Math.min(firstRetryMs * 2 ** Math.min(this.#failures, 20), longestRetryMs);
  }

  async #pause(): Promise<void> {
    const pauseMs = this.#pauseMs;
    this.#failures++;
    this.#failedAtMs = this.parts.clock.monotonicMs();
    this.#edus = [];
    this.#isPausing = true;
    await this.#rest(pauseMs);
    this.#isPausing = false;
  }

  /** Nobody is to blame: goes on a moment later, or when there is news. */
  async #wait(): Promise<void> {
    if (!this.#hasNews) await this.#rest(unknownMs);
  }

  /** Until it is roused, or a time is over. */
  async #rest(ms: number): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    const roused = new AbortController();
    this.#rouse = () => roused.abort();
    await this.parts.clock.sleep(ms, roused.signal);
    this.#rouse = undefined;
  }

  async #sleep(): Promise<void> {
    if (this.#hasNews || this.#stopping.signal.aborted) return;
    await new Promise<void>((resolve) => {
      this.#rouse = resolve;
    });
    this.#rouse = undefined;
  }
}

type Content = Pick<Transaction, 'eventIds' | 'toDevice' | 'changed'>;

const sizeOf = ({ eventIds, toDevice = [], changed = [] }: Content): number =>
  eventIds.length + toDevice.length + changed.length;

/** What a piece of a transaction holds. */
function contentOf({ eventIds, toDevice = [], changed = [] }: Content, piece: Piece | undefined): Content {
  if (!piece) return { eventIds, toDevice, changed };
  const part = <T>(list: readonly T[], before: number): readonly T[] =>
    list.slice(Math.max(0, piece.from - before), Math.max(0, piece.to - before));
  return {
    eventIds: part(eventIds, 0),
    toDevice: part(toDevice, eventIds.length),
    changed: part(changed, eventIds.length + toDevice.length),
  };
}
