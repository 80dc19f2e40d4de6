/** Configuration, logging, metrics, clock, lifecycle. */
export { Cache, type CacheBounds, type CacheReport, cacheReports } from './caches/caches.js';
export { Clock, SystemClock, type Timer } from './clock.js';
export { eachLimit, type EachOptions } from './concurrency/each-limit.js';
export { KeyedCounter } from './concurrency/keyed-counter.js';
export { KeyedMutex } from './concurrency/keyed-mutex.js';
export { KeyedSemaphore } from './concurrency/keyed-semaphore.js';
export {
  type Acquiring,
  QueueFullError,
  Semaphore,
  type SemaphoreLimits,
  type WaitingLimits,
} from './concurrency/semaphore.js';
export { SingleFlight } from './concurrency/single-flight.js';
export { Config, type FromObjectOptions } from './config/config.js';
export { generateConfig, type GenerateOptions } from './config/generate.js';
export { checkConfig, loadConfig, type LoadOptions } from './config/load.js';
export { type ConfigProblem, ConfigError, describeProblem } from './config/problem.js';
export { isIpRange, parseDurationMs, parseSizeBytes, toBlockList } from './config/kinds.js';
export { configurationReference } from './config/reference.js';
export { configurationSchema } from './config/schema.js';
export { filesAt, type MergedSettings, readSources } from './config/source.js';
export type { OidcProviderSetting } from './config/settings/auth.js';
export type { DatabaseSetting } from './config/settings/storage.js';
export type { Listener, ModuleEntry, RateLimitSetting } from './config/settings/shapes.js';
export { type SettingName, settingNames, type SettingValue } from './config/table.js';
export { settingsReport, type SettingsReport } from './config/settings-report.js';
export { withoutEffect } from './config/without-effect.js';
export { Ids, SystemIds } from './ids.js';
export { Lifecycle, type LifecycleStep, type Phase, phases } from './lifecycle.js';
export { type DatabaseCost, LogContext, type LogContextFields } from './logging/log-context.js';
export { type LogFields, Logger, type LogLevel, SilentLogger } from './logging/logger.js';
export { loggerOptions, readLogConfig } from './logging/log-config.js';
export { isReadable, type LoggerOptions, PinoLogger } from './logging/pino-logger.js';
export { type MetricName, metricTable } from './metrics/metric-table.js';
export {
  type CounterMetric,
  type GaugeMetric,
  type HistogramMetric,
  type Labels,
  type MetricDefinition,
  Metrics,
} from './metrics/metrics.js';
export type { Requester } from './requester.js';
