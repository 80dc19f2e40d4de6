import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { batchesBySize, Clock, Logger, Metrics } from '@rookery/platform';
import { cursorOf, Follower, Notifier, saveCursor } from '@rookery/replication';
import { EventStore, type StoredEvent, TimelineReader } from '@rookery/rooms';
import { RoomInterest } from './room-interest.js';
import { type Parcel, transactionBytes, TransactionStore } from './transaction-store.js';

/** Name of the cursor, and in metrics. */
export const eventCursor = 'appservice_sender';
const batchSize = 100;
/** No client is to see them. */
const hiddenType = 'org.matrix.dummy_event';

/** Follows all events and puts those that services want into their transactions. */
@Injectable()
export class AppserviceEventFeed {
  #follower: Follower | undefined;

  // Nine parameters: four of them are what any follower of a stream takes.
  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly timeline: TimelineReader,
    private readonly events: EventStore,
    private readonly interest: RoomInterest,
    private readonly store: TransactionStore,
  ) {}

  /** @param wake told when there is something for a service */
  async start(wake: (asId: string) => void): Promise<void> {
    const { database, notifier, clock, logger } = this;
    const follower = new Follower({
      ...{ name: eventCursor, stream: 'events', database, notifier, clock, logger, startAt: 'now' },
      advance: (after, upTo) => this.#advance(after, upTo, wake),
    });
    const position = await cursorOf(database, eventCursor);
    if (position !== undefined) await this.interest.recall(position);
    this.#follower = follower;
    await follower.start();
  }

  async stop(): Promise<void> {
    await this.#follower?.stop();
  }

  async #advance(after: number, upTo: number, wake: (asId: string) => void): Promise<number> {
    const { stored: news, reached } = await this.timeline.news(after, upTo, batchSize);
    const stored = await this.events.withoutVoidRedactions(news.filter(({ event }) => event.type !== hiddenType));
    const interested = await this.interest.ofEvents(stored);
    const wanted = new Map<string, Wanted[]>();
    for (const [index, { event }] of stored.entries()) {
      let one: Wanted | undefined;
      for (const { id } of interested[index] ?? []) {
        one ??= { eventId: event.eventId, sizeBytes: Buffer.byteLength(JSON.stringify(event.content)) };
        const list = wanted.get(id);
        if (list) list.push(one);
        else wanted.set(id, [one]);
      }
    }
    if (wanted.size > 0) {
      const parcels = [...wanted].flatMap(([asId, list]) => parcelsOf(asId, list));
      await this.store.add(parcels, (tx) => saveCursor(tx, eventCursor, reached));
      for (const asId of wanted.keys()) wake(asId);
    }
    this.interest.forget(reached);
    this.#measure(reached, stored);
    return reached;
  }

  #measure(position: number, events: readonly StoredEvent[]): void {
    const { metrics } = this;
    const labels = { name: eventCursor };
    const rooms = new Set(events.map(({ event }) => event.roomId));
    metrics.counter('synapse_handlers_appservice_events_processed').inc({}, events.length);
    metrics.counter('synapse_event_processing_loop_count').inc(labels);
    metrics.counter('synapse_event_processing_loop_room_count').inc(labels, rooms.size);
    metrics.gauge('synapse_event_processing_positions').set(labels, position);
    const nowMs = this.clock.nowMs();
    const lags = metrics.histogram('synapse_event_processing_lag_by_event');
    for (const { receivedTs } of events) lags.observe(labels, Math.max(0, nowMs - receivedTs) / 1000);
    const last = events.at(-1);
    if (last === undefined) return;
    metrics.gauge('synapse_event_processing_last_ts').set(labels, last.receivedTs);
    metrics.gauge('synapse_event_processing_lag').set(labels, Math.max(0, nowMs - last.receivedTs));
  }
}

interface Wanted {
  readonly eventId: string;
  readonly sizeBytes: number;
}

function parcelsOf(asId: string, list: readonly Wanted[]): Parcel[] {
  return batchesBySize(list, (one) => one.sizeBytes, transactionBytes).map((some) => ({
    asId,
    eventIds: some.map((one) => one.eventId),
    sizeBytes: some.reduce((sum, one) => sum + one.sizeBytes, 0),
  }));
}
