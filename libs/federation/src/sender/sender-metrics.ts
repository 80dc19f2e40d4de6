import type { Clock, Config, Metrics } from '@rookery/platform';
import type { OutgoingEdu } from './outgoing-edu.js';

/** What waits, for the metrics. */
export interface WaitingCounts {
  readonly pdus: number;
  readonly edus: number;
  readonly destinations: number;
}

/** What is sent, under the field's names. */
export class SenderMetrics {
  readonly #watched: ReadonlySet<string>;
  readonly #transactions;
  readonly #edus;
  readonly #edusByType;
  readonly #lastSent;

  constructor(
    metrics: Metrics,
    config: Config,
    private readonly clock: Clock,
    waiting: () => WaitingCounts,
  ) {
    this.#watched = new Set(config.get('federation_metrics_domains'));
    this.#transactions = metrics.counter('synapse_federation_client_sent_transactions').child({});
    this.#edus = metrics.counter('synapse_federation_client_sent_edus');
    this.#edusByType = metrics.counter('synapse_federation_client_sent_edus_by_type');
    this.#lastSent = metrics.gauge('synapse_federation_last_sent_pdu_time');
    metrics.gauge('synapse_federation_transaction_queue_pending_pdus', (gauge) => gauge.set({}, waiting().pdus));
    metrics.gauge('synapse_federation_transaction_queue_pending_edus', (gauge) => gauge.set({}, waiting().edus));
    metrics.gauge('synapse_federation_transaction_queue_pending_destinations', (gauge) =>
      gauge.set({}, waiting().destinations),
    );
  }

  /** A server took a transaction. */
  sent(destination: string, pdus: number, edus: readonly OutgoingEdu[]): void {
    this.#transactions.inc();
    if (edus.length > 0) this.#edus.inc({}, edus.length);
    for (const { type } of edus) this.#edusByType.inc({ type });
    if (pdus > 0 && this.#watched.has(destination))
      this.#lastSent.set({ destination_server_name: destination }, this.clock.nowMs());
  }
}

/** How much there is to send, under the field's names. */
export class FeedMetrics {
  readonly #queued;
  readonly #queuedDestinations;
  readonly #processed;

  constructor(metrics: Metrics) {
    this.#queued = metrics.counter('synapse_federation_client_sent_pdu_destinations_count');
    this.#queuedDestinations = metrics.counter('synapse_federation_client_sent_pdu_destinations');
    this.#processed = metrics.counter('synapse_federation_client_events_processed');
  }

  /** An event was queued for servers. */
  queued(destinations: number): void {
    this.#queued.inc({});
    this.#queuedDestinations.inc({}, destinations);
  }

  /** Events were looked at. */
  processed(events: number): void {
    this.#processed.inc({}, events);
  }
}

/** How far a follower of events is, under the field's names. */
export function processingMetrics(
  metrics: Metrics,
  name: string,
): {
  reached(position: number): void;
  looked(events: readonly { readonly roomId: string; readonly storedMs?: number }[], nowMs: number): void;
} {
  const labels = { name };
  const position = metrics.gauge('synapse_event_processing_positions');
  const lastTs = metrics.gauge('synapse_event_processing_last_ts');
  const lag = metrics.gauge('synapse_event_processing_lag');
  const lags = metrics.histogram('synapse_event_processing_lag_by_event').child(labels);
  const rounds = metrics.counter('synapse_event_processing_loop_count').child(labels);
  const rooms = metrics.counter('synapse_event_processing_loop_room_count').child(labels);
  return {
    reached: (value) => position.set(labels, value),
    looked: (events, nowMs) => {
      rounds.inc();
      rooms.inc(new Set(events.map(({ roomId }) => roomId)).size);
      let last: number | undefined;
      for (const { storedMs } of events) {
        if (storedMs === undefined) continue;
        lags.observe(Math.max(0, nowMs - storedMs) / 1000);
        last = storedMs;
      }
      if (last === undefined) return;
      lastTs.set(labels, last);
      lag.set(labels, Math.max(0, nowMs - last));
    },
  };
}
