/** Configuration, logging, metrics, clock, lifecycle. */
export { type BackgroundTask, type BackgroundTaskReport, BackgroundTasks } from './background/background-tasks.js';
export { CacheTuner } from './caches/cache-tuner.js';
export {
  beginCaches,
  Cache,
  cacheBound,
  cacheBytes,
  type CacheReport,
  cacheReports,
  countCache,
  type CountedCache,
} from './caches/caches.js';
export { ReadGuard } from './caches/read-guard.js';
export { ServiceMetadata } from './caches/service-metadata.js';
export { Clock, SystemClock, type Timer } from './clock.js';
export { Alarm } from './concurrency/alarm.js';
export { atEase } from './concurrency/at-ease.js';
export { batchesBySize, batchesOf } from './concurrency/batches-of.js';
export { eachLimit } from './concurrency/each-limit.js';
export { KeyedCounter } from './concurrency/keyed-counter.js';
export { KeyedMutex } from './concurrency/keyed-mutex.js';
export { KeyedRetries } from './concurrency/keyed-retries.js';
export { KeyedSemaphore } from './concurrency/keyed-semaphore.js';
export { ownTurn } from './concurrency/own-turn.js';
export { QueueFullError, Semaphore } from './concurrency/semaphore.js';
export { SingleFlight } from './concurrency/single-flight.js';
export { allSoon, isAwaited, type Soon, soon } from './concurrency/soon.js';
export { Config } from './config/config.js';
export { generateConfig } from './config/generate.js';
export { checkConfig, loadConfig } from './config/load.js';
export { type ConfigProblem, SettingsError, describeProblem } from './config/problem.js';
export { isIpRange, toBlockList } from './config/kinds.js';
export { isMain } from './config/no-workers.js';
export { configurationReference } from './config/reference.js';
export { configurationSchema } from './config/schema.js';
export { filesAt, readSources } from './config/source.js';
export type { OidcProviderSetting } from './config/settings/auth.js';
export type { Listener, RateLimitSetting } from './config/settings/shapes.js';
export { settingError, settingProblem } from './config/setting-error.js';
export { type SettingName, settingNames } from './config/table.js';
export { settingsReport } from './config/settings-report.js';
export { withoutEffect } from './config/without-effect.js';
export { OnlyAtWriterError } from './elsewhere.js';
export { environmentOf, environmentWith } from './environment.js';
export { fileProblem } from './file-problem.js';
export { Ids, SystemIds } from './ids.js';
export { lastAnswerMs, Lifecycle } from './lifecycle.js';
export { type DatabaseCost, LogContext, type LogContextFields } from './logging/log-context.js';
export { type LogFields, Logger, type LogLevel, SilentLogger } from './logging/logger.js';
export { loggerOptions, readLogConfig } from './logging/log-config.js';
export { isReadable, PinoLogger } from './logging/pino-logger.js';
export { metricTable } from './metrics/metric-table.js';
export { Metrics } from './metrics/metrics.js';
export { type Trace, Tracer } from './observing/tracer.js';
export { ErrorReports, ReportingLogger } from './observing/error-reports.js';
export { type Requester, serverRequester } from './requester.js';
export type { RequestOrigin } from './request-origin.js';
export { assemble, Port } from './wiring/port.js';
export { canSpeak, processProtocol, spokenWith, tooFarApart, understands } from './process-protocol.js';
export { processTls } from './process-tls.js';
