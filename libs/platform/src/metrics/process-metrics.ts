import { constants, PerformanceObserver } from 'node:perf_hooks';
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client';

/** How often the event loop is looked at. */
const samplingMs = 100;
const buckets = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5];

/** Generations by the names that dashboards know, youngest first. */
const generations: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: '0',
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: '1',
  [constants.NODE_PERFORMANCE_GC_MAJOR]: '2',
};

let registry: Registry | undefined;

/**
 * What the process shows about itself; shared by all servers in it. Measuring begins with the first call. Beside the usual
 * `process_…` and `nodejs_…`, pauses of the garbage collector and of the event loop have the names that the field's
 * dashboards look for.
 */
export function processMetrics(): Registry {
  if (registry) return registry;
  registry = new Registry();
  collectDefaultMetrics({ register: registry });

  const pauses = new Histogram({
    name: 'python_gc_time',
    help: 'Pauses of the garbage collector, seconds.',
    labelNames: ['gen'],
    buckets,
    registers: [registry],
  });
  new PerformanceObserver((entries) => {
    for (const entry of entries.getEntries()) {
      const { detail } = entry as { detail?: { kind?: number } };
      pauses.observe({ gen: generations[detail?.kind ?? 0] ?? '1' }, entry.duration / 1000);
    }
  }).observe({ entryTypes: ['gc'] });

  const ticks = new Histogram({
    name: 'python_twisted_reactor_tick_time',
    help: 'How long the event loop kept a timer waiting, seconds.',
    buckets,
    registers: [registry],
  });
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    ticks.observe(Math.max(0, now - last - samplingMs) / 1000);
    last = now;
  }, samplingMs).unref();
  return registry;
}
