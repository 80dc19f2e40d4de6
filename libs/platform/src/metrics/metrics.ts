import type * as PromClient from 'prom-client';
import { type MetricName, metricTable, type MetricsOf } from './metric-table.js';
import { BucketCounts } from './bucket-counts.js';
import { Counter, Gauge, Registry } from './prom-client.js';

/** A metric of our own, beyond the table of the field's names. */
export interface MetricDefinition<L extends string> {
  /** `rookery_…`, snake_case, with the unit at its end; a counter gets `_total` by itself. */
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly L[];
  /** Upper bounds of a histogram's buckets. */
  readonly buckets?: readonly number[];
}

/** Label values by label. */
export type Labels<L extends string> = Readonly<Record<L, string>>;

/** Only goes up. */
export interface CounterMetric<L extends string> {
  /** Adds `amount`, 1 by default. */
  inc(labels: Labels<L>, amount?: number): void;
  /** One combination of labels, found once: adding to it is an addition. Keep it. */
  child(labels: Labels<L>): { inc(amount?: number): void };
  /** Shows what somebody else counts. @param total asked before every scrape; only goes up */
  follow(labels: Labels<L>, total: () => number): void;
}
/** Goes up and down. */
export interface GaugeMetric<L extends string> {
  set(labels: Labels<L>, value: number): void;
  inc(labels: Labels<L>, amount?: number): void;
  dec(labels: Labels<L>, amount?: number): void;
  /** Forgets one combination of labels. */
  remove(labels: Labels<L>): void;
}
/** Counts values in buckets. */
export interface HistogramMetric<L extends string> {
  observe(labels: Labels<L>, value: number): void;
  /** One combination of labels, found once. Keep it. */
  child(labels: Labels<L>): { observe(value: number): void };
}

type LabelsOf<K extends MetricName> = (typeof metricTable)[K]['labels'][number];

/**
 * The numbers a server shows to Prometheus. Names of the field's dashboards come from a table and need no definition:
 * `metrics.counter('synapse_storage_events_persisted_events').inc({})`. Asking twice for a name gives the same metric.
 * Every `synapse_…` and `rookery_…` line carries the label `server_name`.
 */
export class Metrics {
  readonly #registry = new Registry();
  readonly #counters = new Map<string, CounterMetric<string>>();

  /** @param version release of this program, for `synapse_build_info` */
  constructor(serverName: string, version?: string) {
    this.#registry.setDefaultLabels({ server_name: serverName });
    this.gauge('synapse_server_name_info').set({}, 1);
    if (version === undefined) return;
    const runtime = `Node.js ${process.versions.node}`;
    const build = {
      version,
      pythonversion: runtime,
      osversion: `${process.platform} ${process.arch}`,
      rustcversion: '',
    };
    this.gauge('synapse_build_info').set(build, 1);
  }

  /** A counter from the table, or one of our own. */
  counter<K extends MetricsOf<'counter'>>(name: K): CounterMetric<LabelsOf<K>>;
  counter<L extends string = never>(definition: MetricDefinition<L>): CounterMetric<L>;
  counter(which: MetricName | MetricDefinition<string>): CounterMetric<string> {
    const { name, help, labels } = resolve(which);
    const full = name.endsWith('_total') ? name : `${name}_total`;
    const known = this.#counters.get(full);
    if (known) return known;
    // What the children were told since the last scrape.
    const pending: { readonly values: Labels<string>; amount: number }[] = [];
    const followed: { readonly values: Labels<string>; readonly total: () => number; told: number }[] = [];
    const metric: PromClient.Counter = new Counter({
      ...{ name: full, help, labelNames: [...labels], registers: [this.#registry] },
      collect() {
        for (const child of pending) {
          metric.inc(child.values, child.amount);
          child.amount = 0;
        }
        for (const one of followed) {
          const now = one.total();
          metric.inc(one.values, now - one.told);
          one.told = now;
        }
      },
    });
    const counter: CounterMetric<string> = {
      inc: (values, amount = 1) => metric.inc(values, amount),
      child: (values) => {
        const child = { values, amount: 0 };
        pending.push(child);
        return { inc: (amount = 1) => void (child.amount += amount) };
      },
      follow: (values, total) => void followed.push({ values, total, told: 0 }),
    };
    this.#counters.set(full, counter);
    return counter;
  }

  /**
   * A gauge from the table, or one of our own.
   * @param collect called before every scrape, to set values that are cheaper to read than to keep
   */
  gauge<K extends MetricsOf<'gauge'>>(
    name: K,
    collect?: (gauge: GaugeMetric<LabelsOf<K>>) => void | Promise<void>,
  ): GaugeMetric<LabelsOf<K>>;
  gauge<L extends string = never>(
    definition: MetricDefinition<L>,
    collect?: (gauge: GaugeMetric<L>) => void | Promise<void>,
  ): GaugeMetric<L>;
  gauge(
    which: MetricName | MetricDefinition<string>,
    collect?: (gauge: GaugeMetric<string>) => void | Promise<void>,
  ): GaugeMetric<string> {
    const { name, help, labels } = resolve(which);
    const found = this.#registry.getSingleMetric(name) as PromClient.Gauge | undefined;
    const metric: PromClient.Gauge =
      found ??
      new Gauge({
        name,
        help,
        labelNames: [...labels],
        registers: [this.#registry],
        ...(collect ? { collect: () => collect(gauge) } : {}),
      });
    const gauge: GaugeMetric<string> = {
      set: (values, value) => metric.set(values, value),
      inc: (values, amount = 1) => metric.inc(values, amount),
      dec: (values, amount = 1) => metric.dec(values, amount),
      remove: (values) => metric.remove(values),
    };
    return gauge;
  }

  /** A histogram from the table, or one of our own. */
  histogram<K extends MetricsOf<'histogram'>>(name: K): HistogramMetric<LabelsOf<K>>;
  histogram<L extends string = never>(definition: MetricDefinition<L>): HistogramMetric<L>;
  histogram(which: MetricName | MetricDefinition<string>): HistogramMetric<string> {
    const { name, help, labels, buckets } = resolve(which);
    const found = this.#registry.getSingleMetric(name) as unknown as BucketCounts | undefined;
    if (found) return found;
    const metric = new BucketCounts(name, help, labels, buckets);
    this.#registry.registerMetric(metric as unknown as PromClient.Histogram);
    return metric;
  }

  /** Whether there is a metric of this name, as it is on the page. */
  has(name: string): boolean {
    return this.#registry.getSingleMetric(name) !== undefined;
  }

  /** Everything in Prometheus's text format, the process's own numbers included. */
  async render(): Promise<{ readonly contentType: string; readonly body: string }> {
    // Measures from then on, whether or not anybody asks again.
    const { processMetrics } = await import('./process-metrics.js');
    const parts = await Promise.all([processMetrics().metrics(), this.#registry.metrics()]);
    return { contentType: this.#registry.contentType, body: parts.join('\n') };
  }
}

function resolve(which: MetricName | MetricDefinition<string>): {
  name: string;
  help: string;
  labels: readonly string[];
  buckets?: readonly number[];
} {
  if (typeof which === 'string') {
    const row: { help: string; labels: readonly string[]; buckets?: readonly number[] } = metricTable[which];
    return { name: which, ...row };
  }
  return { labels: [], ...which };
}
