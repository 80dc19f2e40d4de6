import { Injectable } from '@nestjs/common';
import { Database, failureLevel, isTransient, type Tx } from '@rookery/database';
import { eventFromRow, pduText, type RoomEvent, type RoomVersionRules, roomVersionRules } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import { EventPersister, InboundEvents, RoomStateReader } from '@rookery/rooms';
import { GapFillers } from './gap-fillers.js';
import { GapRetries } from './gap-retries.js';
import { superfluousOf } from './backlog.js';
import { FloodedRooms } from './flooded-rooms.js';
import { firstOf, StagedReader } from './staged-reader.js';
import {
  countAttempt,
  deleteStagedOf,
  forgetAttempts,
  originsOf,
  selectBacklog,
  selectOldestTs,
  selectStaged,
  type StagedRow,
  stageEvents,
} from './staging.query.js';
import { Unstaging } from './unstaging.js';

/** What became of an event. */
export type ReceiveVerdict = Awaited<ReturnType<InboundEvents['receive']>>;

/** Rooms that are worked on at once. */
const parallelRooms = 8;
/**
 * A room whose events take longer than that waits for somebody: for a policy server, a module, or its share of state resolution. It holds no
 * place then, milliseconds; so many rooms do.
 */
const slowAfterMs = 1_000;
const maxSlow = 64;
/**
 * Flooded rooms have places of their own: as many as the others, but one where any of the others has had work so lately. Their work waits
 * for somebody when it takes longer than that, and rests so many times as long as it took, up to a limit; milliseconds.
 */
const othersWorkedMs = 1_000;
const floodedSlowAfterMs = 5_000;
const restFactor = 3;
const longestRestMs = 500;
/** Events that may wait in one room before those are dropped that can be fetched later. */
const maxBacklog = 500;
/** How often an event is tried that fails for no reason of its own, and how long between. */
const maxTries = 3;
const retryMs = 2_000;
/** How many starts of the server an event may outlive, in case it is what ends them. */
const maxStarts = 5;

/** Events that are kept as they came until they are in their rooms: in one room, and in all. */
const maxFresh = 50;
const maxFreshInAll = 500;

interface StagedEvent {
  readonly row: Omit<StagedRow, 'event_json'>;
  readonly event: RoomEvent;
}
/** One that is at hand as it came. */
interface FreshEvent extends StagedEvent {
  /** Of its text. */
  readonly chars: number;
}

/**
 * Puts events of other servers into their rooms: durable before they are acknowledged, in their order of arrival, one room
 * after the other never waiting for another. Events whose ancestors are missing step aside, so that nobody waits for a server
 * that does not answer; they are tried again when it may, since whoever sent them was told that they have arrived.
 */
@Injectable()
export class StagedEvents {
  /** Events that wait per room, more or less. */
  readonly #backlog = new Map<string, number>();
  /** What waits in a room, where all of it is at hand as it came: the database need not be asked for it. By room and event. */
  readonly #fresh = new Map<string, Map<string, FreshEvent>>();
  #freshCount = 0;
  readonly #queue = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  /** Since when events of a room are on their way into it, by a clock that only goes on, milliseconds. */
  readonly #takingSinceMs = new Map<string, number>();
  readonly #flooded: FloodedRooms;
  /** When a room that is not flooded had work the last time, by the same clock. */
  #othersAtMs = Number.NEGATIVE_INFINITY;
  #watch: Timer | undefined;
  /** Events that are in somebody's hands, by room: gaps are being filled, or they are tried again later. */
  readonly #aside = new Map<string, Set<string>>();
  readonly #tries = new Map<string, number>();
  /** Who waits for a room, with the place in the order up to which. */
  readonly #waiters = new Map<string, { readonly upTo: number; readonly done: () => void }[]>();
  /** Rooms with events that an earlier run of the server has left. */
  readonly #leftovers = new Set<string>();
  readonly #reader: StagedReader;
  readonly #unstaging: Unstaging;
  readonly #logger: Logger;
  readonly #pdus;
  readonly #times;
  readonly #softFailed;
  readonly #pruned;
  #lastOrdering = 0;

  // Ten parameters: the queue, its three ways on for an event, and what is counted of it.
  constructor(
    private readonly database: Database,
    private readonly persister: EventPersister,
    private readonly inbound: InboundEvents,
    private readonly state: RoomStateReader,
    private readonly gaps: GapFillers,
    private readonly retries: GapRetries,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
    metrics: Metrics,
  ) {
    this.#reader = new StagedReader(database);
    this.#unstaging = new Unstaging(database);
    this.#flooded = new FloodedRooms(clock);
    this.#logger = logger.child('federation');
    this.#pdus = metrics.counter('synapse_federation_server_received_pdus');
    this.#times = metrics.histogram('synapse_federation_server_pdu_process_time');
    this.#softFailed = metrics.counter('synapse_federation_soft_failed_events');
    this.#pruned = metrics.counter('synapse_federation_server_number_inbound_pdu_pruned');
    metrics.gauge('synapse_federation_server_number_inbound_pdu_in_staging', (gauge) => {
      gauge.set(
        {},
        [...this.#backlog.values()].reduce((sum, waiting) => sum + waiting, 0),
      );
    });
    metrics.gauge('synapse_federation_server_oldest_inbound_pdu_in_staging', async (gauge) => {
      const oldestTs = await selectOldestTs(database);
      gauge.set({}, oldestTs === undefined ? 0 : Math.max(0, clock.nowMs() - oldestTs));
    });
    lifecycle.on('streams', { name: 'inbound events', start: () => this.start(), stop: () => this.stop() });
  }

  /** Goes on with what an earlier run of the server has left. */
  async start(): Promise<void> {
    const { rooms, highest } = await selectBacklog(this.database);
    this.#lastOrdering = Math.max(this.#lastOrdering, highest);
    for (const [roomId, waiting] of rooms) {
      this.#backlog.set(roomId, waiting);
      this.#leftovers.add(roomId);
      this.#wake(roomId);
    }
  }

  /** Resolves when nothing is being stored any more; what waits is there after the next start. */
  async stop(): Promise<void> {
    this.#queue.clear();
    this.#watch?.cancel();
    await Promise.all([...this.#running.values(), this.gaps.stop()]);
    for (const roomId of this.#waiters.keys()) this.#reached(roomId, Number.MAX_SAFE_INTEGER);
  }

  /** Whether events are on their way into a room, but for those that have stepped aside. */
  isBusy(roomId: string): boolean {
    return this.#running.has(roomId) || this.#queue.has(roomId);
  }

  /** Resolves when the events that were staged in a room up to now are in it, or have stepped aside; for how long is not said. */
  caughtUp(roomId: string): Promise<void> {
    if (!this.isBusy(roomId)) return Promise.resolve();
    return new Promise((done) => {
      const waiters = this.#waiters.get(roomId);
      const waiter = { upTo: this.#lastOrdering, done };
      if (waiters) waiters.push(waiter);
      else this.#waiters.set(roomId, [waiter]);
    });
  }

  /** Resolves when the rooms have {@link caughtUp}, or after a time. */
  async arrived(roomIds: readonly string[], limitMs: number): Promise<void> {
    if (!roomIds.some((roomId) => this.isBusy(roomId))) return;
    const given = new AbortController();
    await Promise.race([
      Promise.all(roomIds.map((roomId) => this.caughtUp(roomId))),
      this.clock.sleep(limitMs, AbortSignal.any([given.signal, this.lifecycle.stopping])),
    ]);
    given.abort();
  }

  /** Which of some rooms are flooded: with more events than people write. */
  floodedOf(roomIds: Iterable<string>): string[] {
    return [...new Set(roomIds)].filter((roomId) => this.#flooded.has(roomId));
  }

  /** Everything in a room up to a place in the order was dealt with. */
  #reached(roomId: string, ordering: number): void {
    const waiters = this.#waiters.get(roomId);
    if (!waiters) return;
    const left = waiters.filter(({ upTo }) => upTo > ordering);
    if (left.length > 0) this.#waiters.set(roomId, left);
    else this.#waiters.delete(roomId);
    for (const { upTo, done } of waiters) if (upTo <= ordering) done();
  }

  /**
   * Takes over events that were checked; once it resolves they are durable and on their way.
   * @param also is written in the same transaction
   */
  async stage(origin: string, events: readonly RoomEvent[], also?: (tx: Tx) => Promise<void>): Promise<void> {
    if (events.length === 0 && !also) return;
    this.#pdus.inc({}, events.length);
    const written = events.map((event) => ({ event, text: pduText(event) }));
    let ordered: ((typeof written)[number] & { readonly ordering: number })[] = [];
    await this.database.write(
      async (tx) => {
        ordered = written.map((each) => ({ ...each, ordering: ++this.#lastOrdering }));
        await stageEvents(tx, origin, ordered, this.clock.nowMs());
        await also?.(tx);
      },
      { name: 'stage_events' },
    );
    for (const { event, text, ordering } of ordered) {
      const { roomId, eventId } = event;
      this.#keepFresh({ event, row: { origin, event_id: eventId, attempts: 0, ordering }, chars: text.length });
      this.#backlog.set(roomId, (this.#backlog.get(roomId) ?? 0) + 1);
      this.#reader.arrived(roomId, eventId, ordering);
      // Whoever sends it now may help with what is missing before it.
      this.retries.now(keyOf(roomId, eventId));
    }
    for (const [roomId, { length }] of Map.groupBy(events, (event) => event.roomId)) {
      this.#flooded.add(roomId, length);
      this.#wake(roomId);
    }
  }

  /** Keeps an event at hand that is about to be counted, as long as nothing of its room lies in the database only. */
  #keepFresh(staged: FreshEvent): void {
    const { roomId, eventId } = staged.event;
    const aside = this.#aside.get(roomId);
    const waiting = (this.#backlog.get(roomId) ?? 0) - (aside?.size ?? 0);
    const fresh = this.#fresh.get(roomId) ?? new Map<string, FreshEvent>();
    const isNew = !fresh.has(eventId) && aside?.has(eventId) !== true;
    const isAll = fresh.size === waiting && isNew && !this.#leftovers.has(roomId);
    if (!isAll || waiting >= maxFresh || this.#freshCount >= maxFreshInAll) return this.#forgetFresh(roomId);
    this.#fresh.set(roomId, fresh.set(eventId, staged));
    this.#freshCount++;
  }

  #forgetFresh(roomId: string, eventId?: string): void {
    const fresh = this.#fresh.get(roomId);
    if (!fresh) return;
    if (eventId === undefined) this.#freshCount -= fresh.size;
    else if (fresh.delete(eventId)) this.#freshCount--;
    if (eventId === undefined || fresh.size === 0) this.#fresh.delete(roomId);
  }

  /** What waits in a room; `undefined` where the database has to be asked. */
  #freshOf(roomId: string): FreshEvent[] | undefined {
    const fresh = this.#fresh.get(roomId);
    const waiting = (this.#backlog.get(roomId) ?? 0) - (this.#aside.get(roomId)?.size ?? 0);
    if (fresh?.size === waiting) return [...fresh.values()].sort((a, b) => a.row.ordering - b.row.ordering);
    this.#forgetFresh(roomId);
    return undefined;
  }

  #wake(roomId: string): void {
    if (this.lifecycle.stopping.aborted) return;
    this.#queue.add(roomId);
    this.#next();
  }

  /** Gives free places to rooms that wait, the first one first, and flooded rooms behind the others. */
  #next(): void {
    const flooded: string[] = [];
    for (const roomId of this.#queue) {
      if (this.#running.has(roomId)) continue;
      if (this.#flooded.has(roomId)) flooded.push(roomId);
      else if (!this.#begin(roomId, false)) return;
    }
    for (const roomId of flooded) if (!this.#begin(roomId, true)) return;
  }

  /** @returns whether there was a place */
  #begin(roomId: string, isFlooded: boolean): boolean {
    if (!isFlooded) this.#othersAtMs = this.clock.monotonicMs();
    if (this.#working(isFlooded) >= (isFlooded && this.#haveOthersWork() ? 1 : parallelRooms)) {
      this.#watch ??= this.clock.after(slowAfterMs, () => {
        this.#watch = undefined;
        this.#next();
      });
      return false;
    }
    this.#queue.delete(roomId);
    const work = this.#drain(roomId)
      .catch((err: unknown) => {
        this.#logger[failureLevel(err)]('Events of other servers could not be looked at', { room_id: roomId, err });
        this.clock.after(retryMs, () => this.#wake(roomId));
      })
      .finally(() => {
        this.#running.delete(roomId);
        if (!this.#queue.has(roomId)) this.#reached(roomId, Number.MAX_SAFE_INTEGER);
        if (!this.#backlog.has(roomId)) this.#reader.forget(roomId);
        this.#next();
      });
    this.#running.set(roomId, work);
    return true;
  }

  /** Rooms that hold a place: those that wait for somebody do not. */
  #working(isFlooded: boolean): number {
    const untilMs = this.clock.monotonicMs() - (isFlooded ? floodedSlowAfterMs : slowAfterMs);
    let [working, slow] = [0, 0];
    for (const roomId of this.#running.keys()) {
      if (this.#flooded.has(roomId) !== isFlooded) continue;
      if ((this.#takingSinceMs.get(roomId) ?? Number.POSITIVE_INFINITY) <= untilMs && slow < maxSlow) slow++;
      else working++;
    }
    return working;
  }

  #haveOthersWork(): boolean {
    return this.clock.monotonicMs() - this.#othersAtMs < othersWorkedMs;
  }

  /**
   * Has a flooded room go behind the others that are flooded after each of its batches, and rest.
   * @param beganMs when the batch was begun
   * @returns whether its place is to be given away
   */
  async #givesWay(roomId: string, beganMs: number): Promise<boolean> {
    if (!this.#flooded.has(roomId)) return false;
    const tookMs = this.clock.monotonicMs() - beganMs;
    if (tookMs > 0 && this.#haveOthersWork())
      await this.clock.sleep(Math.min(restFactor * tookMs, longestRestMs), this.lifecycle.stopping);
    if (this.#backlog.has(roomId)) this.#queue.add(roomId);
    return true;
  }

  async #drain(roomId: string): Promise<void> {
    const version = (await this.state.versions([roomId])).get(roomId);
    const rules = roomVersionRules(version);
    while (!this.lifecycle.stopping.aborted) {
      const fresh = rules && this.#freshOf(roomId);
      if (!fresh) return this.#drainStored(roomId, rules);
      const beganMs = this.clock.monotonicMs();
      const batch = firstOf(fresh, ({ chars }) => chars);
      await this.#take(roomId, batch);
      const { ordering } = batch.at(-1)!.row;
      this.#reader.reached(roomId, ordering);
      this.#reached(roomId, ordering);
      // What is staged now wakes the room again.
      if ((await this.#givesWay(roomId, beganMs)) || !this.#backlog.has(roomId)) return;
    }
  }

  /** @param rules of the room; `undefined` where it is gone */
  async #drainStored(roomId: string, rules: RoomVersionRules | undefined): Promise<void> {
    while (!this.lifecycle.stopping.aborted) {
      if (rules && (this.#backlog.get(roomId) ?? 0) > maxBacklog) await this.#prune(roomId, rules);
      const beganMs = this.clock.monotonicMs();
      const isLeftover = this.#leftovers.has(roomId);
      const isAside = (eventId: string): boolean => this.#aside.get(roomId)?.has(eventId) === true;
      const rows = await this.#reader.next(roomId, isLeftover ? 1 : Infinity, isAside);
      if (rows.length === 0) {
        this.#leftovers.delete(roomId);
        if (!this.#aside.has(roomId)) this.#forgetRoom(roomId);
        return;
      }
      const [first] = rows as [StagedRow, ...StagedRow[]];
      if (!rules)
        await this.#drop(
          roomId,
          rows.map((row) => row.event_id),
        );
      else if (!isLeftover) await this.#take(roomId, stagedOf(rules, rows));
      else if (await this.#mayTry(roomId, first)) {
        await this.#take(roomId, stagedOf(rules, [{ ...first, attempts: first.attempts + 1 }]));
      } else continue;
      this.#reader.done(roomId, rows);
      this.#reached(roomId, rows.at(-1)!.ordering);
      if (await this.#givesWay(roomId, beganMs)) return;
    }
  }

  /** What may have ended an earlier run of the server is tried alone, and not for ever. */
  async #mayTry(roomId: string, row: StagedRow): Promise<boolean> {
    if (row.attempts < maxStarts) {
      await countAttempt(this.database, roomId, row.event_id);
      return true;
    }
    this.#logger.error('An event is given up that was never dealt with', { room_id: roomId, event_id: row.event_id });
    await this.#drop(roomId, [row.event_id]);
    return false;
  }

  async #take(roomId: string, staged: readonly StagedEvent[]): Promise<void> {
    const startedMs = this.clock.monotonicMs();
    this.#takingSinceMs.set(roomId, startedMs);
    try {
      const events = staged.map(({ event, row }) => ({ event, origin: row.origin }));
      const verdicts = await this.persister.receive(roomId, events);
      await this.#settle(roomId, staged, verdicts);
      const eachS = (this.clock.monotonicMs() - startedMs) / 1000 / staged.length;
      for (let i = 0; i < staged.length; i++) this.#times.observe({}, eachS);
    } catch (error) {
      // What waits in a database that is away is none the worse for it.
      if (isTransient(error)) throw error;
      if (staged.length === 1) return this.#failed(roomId, staged[0]!, error);
      // One of them may be to blame: each on its own.
      for (const one of staged) {
        if (this.lifecycle.stopping.aborted) return;
        await this.#take(roomId, [one]);
      }
    } finally {
      this.#takingSinceMs.delete(roomId);
    }
  }

  async #settle(roomId: string, staged: readonly StagedEvent[], verdicts: readonly ReceiveVerdict[]): Promise<void> {
    const done: string[] = [];
    for (const [index, verdict] of verdicts.entries()) {
      const { row, event } = staged[index]!;
      if (!isOpen(verdict)) {
        done.push(row.event_id);
        this.#note(row, event, verdict);
        continue;
      }
      this.#putAside(roomId, row.event_id);
      // No server can help where a module fails.
      if (verdict.kind === 'unjudged' || !this.#fillGap(roomId, staged[index]!))
        await this.#postpone(roomId, staged[index]!, verdict);
    }
    await this.#drop(roomId, done);
  }

  /** Has what is missing before an event fetched; whether there was a place for that. */
  #fillGap(roomId: string, { row, event }: StagedEvent): boolean {
    return this.gaps.add(row.origin, roomId, async () => {
      try {
        const verdict = await this.inbound.receive(row.origin, roomId, { event });
        if (isOpen(verdict)) await this.#postpone(roomId, { row, event }, verdict);
        else await this.#settled(roomId, { row, event }, verdict);
      } catch (error) {
        await this.#failed(roomId, { row, event }, error);
      }
    });
  }

  /**
   * Nobody gives what is missing before an event, or a module fails to judge it: it waits for another try. Not for ever, and not where
   * another server sent it too.
   */
  async #postpone(roomId: string, { row, event }: StagedEvent, verdict: ReceiveVerdict): Promise<void> {
    // Who was asked could not answer any more: it is tried again after the start.
    if (this.lifecycle.stopping.aborted) return;
    const again = (): void => this.#tryAgain(roomId, row.event_id);
    // Before it is looked at who else has sent it: who sends it behind that look cuts the pause short.
    const isLater = this.retries.later(keyOf(roomId, row.event_id), row.origin, again);
    const isOnly = (await originsOf(this.database, roomId, row.event_id)) === 1;
    if (isOnly && isLater) {
      // It did not end the server.
      if (row.attempts > 0) await forgetAttempts(this.database, roomId, row.event_id);
      return;
    }
    if (isOnly) this.#pruned.inc({});
    await this.#settled(roomId, { row, event }, verdict);
  }

  async #settled(roomId: string, { row, event }: StagedEvent, verdict: ReceiveVerdict): Promise<void> {
    this.#note(row, event, verdict);
    await deleteStagedOf(this.database, row.origin, roomId, row.event_id);
    this.#forget(roomId, [row.event_id]);
    // Another server may have sent it too, which was passed over meanwhile.
    this.#tryAgain(roomId, row.event_id);
  }

  #note({ origin }: StagedEvent['row'], { roomId, eventId }: RoomEvent, verdict: ReceiveVerdict): void {
    if (verdict.kind === 'softFailed') this.#softFailed.inc({});
    if (verdict.kind === 'accepted' || verdict.kind === 'known') return;
    const reason = verdict.kind === 'rejected' ? verdict.reason : undefined;
    this.#logger.info('An event of another server was not accepted', {
      ...{ origin, room_id: roomId, event_id: eventId, verdict: verdict.kind, reason },
    });
  }

  /** What fails for no reason that an event gives is tried again, later, and not for ever. Nobody waits for it. */
  async #failed(roomId: string, { row }: StagedEvent, err: unknown): Promise<void> {
    if (this.lifecycle.stopping.aborted) return;
    const { event_id: eventId } = row;
    const key = keyOf(roomId, eventId);
    // A database that is away, or a room that is full just now, says nothing of the event.
    const isBusy = isTransient(err) || (MatrixError.is(err) && err.status === 429);
    const tries = (this.#tries.get(key) ?? 0) + (isBusy ? 0 : 1);
    // A room that is gone, or a refusal that will be the same next time.
    const isFinal = MatrixError.is(err) && err.status < 500 && err.status !== 429;
    if (isFinal || tries >= maxTries) {
      const details = { room_id: roomId, event_id: eventId, origin: row.origin, err };
      this.#logger.error('An event of another server is given up', details);
      this.#tries.delete(key);
      await this.#drop(roomId, [eventId]);
      this.#takeBack(roomId, eventId);
      return;
    }
    this.#tries.set(key, tries);
    this.#putAside(roomId, eventId);
    this.clock.after(retryMs * Math.max(1, tries), () => this.#tryAgain(roomId, eventId));
  }

  #putAside(roomId: string, eventId: string): void {
    let aside = this.#aside.get(roomId);
    if (!aside) this.#aside.set(roomId, (aside = new Set()));
    aside.add(eventId);
    this.#forgetFresh(roomId, eventId);
  }

  #tryAgain(roomId: string, eventId: string): void {
    this.#reader.comesAgain(roomId, eventId);
    this.#takeBack(roomId, eventId);
    this.#wake(roomId);
  }

  #takeBack(roomId: string, eventId: string): void {
    const aside = this.#aside.get(roomId);
    if (!aside?.delete(eventId) || aside.size > 0) return;
    this.#aside.delete(roomId);
    // Perhaps the last one: then the room is forgotten.
    this.#wake(roomId);
  }

  async #drop(roomId: string, eventIds: readonly string[]): Promise<void> {
    await this.#unstaging.forget(roomId, eventIds);
    this.#forget(roomId, eventIds);
  }

  /** They lie in the database no more. */
  #forget(roomId: string, eventIds: readonly string[]): void {
    const left = (this.#backlog.get(roomId) ?? 0) - eventIds.length;
    if (left > 0) this.#backlog.set(roomId, left);
    else this.#forgetRoom(roomId);
    for (const eventId of eventIds) {
      this.#forgetFresh(roomId, eventId);
      this.#tries.delete(keyOf(roomId, eventId));
      this.retries.forget(keyOf(roomId, eventId));
    }
  }

  /** Nothing waits in a room any more, as far as is known. */
  #forgetRoom(roomId: string): void {
    this.#backlog.delete(roomId);
    this.#reader.forget(roomId);
  }

  /** Too many wait: those go that others lead to, for they can be fetched again, and then the oldest. */
  async #prune(roomId: string, rules: RoomVersionRules): Promise<void> {
    const rows = await selectStaged(this.database, roomId, 0, 2 * maxBacklog);
    const events = rows.map((row) => eventFromRow(row.event_json, row.event_id, rules));
    const superfluous = superfluousOf(events, maxBacklog / 5);
    if (superfluous.length === 0) return;
    this.#logger.warn('Too many events of other servers wait; some are dropped, to be fetched later', {
      ...{ room_id: roomId, dropped: superfluous.length },
    });
    this.#pruned.inc({}, superfluous.length);
    await this.#drop(roomId, superfluous);
    for (const eventId of superfluous) this.#takeBack(roomId, eventId);
  }
}

/** Whether it is still to be said what becomes of an event: nothing of it was stored. */
const isOpen = ({ kind }: ReceiveVerdict): boolean => kind === 'missingAncestors' || kind === 'unjudged';

/** The same event from two servers: one of them will do. */
function stagedOf(rules: RoomVersionRules, rows: readonly StagedRow[]): StagedEvent[] {
  const byId = new Map<string, StagedEvent>();
  for (const row of rows)
    if (!byId.has(row.event_id))
      byId.set(row.event_id, { row, event: eventFromRow(row.event_json, row.event_id, rules) });
  return [...byId.values()];
}

const keyOf = (roomId: string, eventId: string): string => `${roomId}\n${eventId}`;
