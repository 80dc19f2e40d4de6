import { constants, PerformanceObserver } from 'node:perf_hooks';
import type { BackgroundTask, BackgroundTasks } from '../background/background-tasks.js';
import type { Config } from '../config/config.js';
import type { Logger } from '../logging/logger.js';
import { cacheReports, shedCaches } from './caches.js';

/** How often memory is looked at. */
const periodMs = 15_000;

/** Bytes in use after everything that nobody needs was thrown away. */
export interface LiveMemory {
  /** The newest measure that was not asked for yet. */
  take(): number | undefined;
  stop(): void;
}

/** Measures whenever the runtime has collected its garbage: at other times nobody knows how much of it is garbage. */
function measuredAfterCollections(): LiveMemory {
  let live: number | undefined;
  const observer = new PerformanceObserver((entries) => {
    const isMajor = entries
      .getEntries()
      .some((entry) => (entry as { detail?: { kind?: number } }).detail?.kind === constants.NODE_PERFORMANCE_GC_MAJOR);
    if (!isMajor) return;
    const { heapUsed, external } = process.memoryUsage();
    live = heapUsed + external;
  });
  observer.observe({ entryTypes: ['gc'] });
  return {
    take() {
      const measured = live;
      live = undefined;
      return measured;
    },
    stop: () => observer.disconnect(),
  };
}

/**
 * Makes caches smaller when the process holds more memory than `caches.cache_autotuning.max_cache_memory_usage`, down to
 * `target_cache_memory_usage`: what was used longest ago goes first, never what was used within `min_cache_ttl`. Measured is the
 * memory of the runtime (heap and buffers) after a garbage collection, the rest of the process included.
 */
export class CacheTuner {
  #memory: LiveMemory | undefined;
  #task: BackgroundTask | undefined;

  constructor(
    private readonly config: Config,
    private readonly tasks: BackgroundTasks,
    private readonly logger: Logger,
    private readonly measure: () => LiveMemory = measuredAfterCollections,
  ) {}

  /** Looks from now on; does nothing unless the settings ask for it. */
  start(): void {
    if (this.config.get('caches.cache_autotuning.max_cache_memory_usage') === undefined) return;
    this.#memory = this.measure();
    this.#task = this.tasks.add({
      ...{ name: 'shrink_caches', role: 'every_process', everyMs: periodMs },
      run: () => this.#look(),
    });
    this.#task.start();
  }

  async stop(): Promise<void> {
    await this.#task?.stop();
    this.#memory?.stop();
  }

  #look(): void {
    const max = this.config.get('caches.cache_autotuning.max_cache_memory_usage') ?? Infinity;
    const target = this.config.get('caches.cache_autotuning.target_cache_memory_usage') ?? max;
    const used = this.#memory?.take();
    if (used === undefined || used <= max) return;
    const idleMs = this.config.get('caches.cache_autotuning.min_cache_ttl') ?? 0;
    const shed = shedCaches(this.config, used - target, idleMs);
    this.logger.info('Caches were made smaller: memory is above caches.cache_autotuning.max_cache_memory_usage', {
      ...{ usedBytes: used, targetBytes: target, ...shed },
      caches: cacheReports(this.config).length,
    });
  }
}
