import * as k from '../kinds.js';
import { ignored, optional, setting } from '../setting.js';

const databaseFields = {
  name: k.field(
    k.oneOf('sqlite3', 'psycopg2'),
    'sqlite3',
    'SQLite, or PostgreSQL under the name of the driver other servers use.',
  ),
  txn_limit: k.field(k.whole(), 0, 'Transactions after which a connection is renewed; 0 never.'),
  allow_unsafe_locale: k.field(k.flag, false, 'Start on a PostgreSQL database whose COLLATE and CTYPE are not C.'),
  args: k.field(k.mapOf(k.anything), {}, 'Arguments of the connection; `database` is the file of SQLite.'),
};

/** Database, caches, logs. */
export const storageSettings = {
  'database.name': setting(databaseFields.name.kind, 'sqlite3', databaseFields.name.doc),
  'database.txn_limit': setting(k.whole(), 0, databaseFields.txn_limit.doc),
  'database.allow_unsafe_locale': setting(k.flag, false, databaseFields.allow_unsafe_locale.doc, { since: '1.56' }),
  'database.args': setting(
    k.mapOf(k.anything),
    {},
    'Arguments of the connection: `database` (a file for SQLite), `host`, `port`, `user`, `password`, `sslmode`, `cp_min`, `cp_max`.',
    { secret: true },
  ),
  databases: optional(
    k.mapOf(
      k.object({
        ...databaseFields,
        data_stores: k.field(k.list(k.oneOf('main', 'state'), { one: true }), ['main', 'state'], 'What lies in it.'),
      }),
    ),
    'The database as one of several, by name: one with everything, or one for `main` and one for `state` (the rows of state groups).',
    {
      rule: 'Not together with `database`. Both of the same kind. [A database of its own for state](state-database.md) says how state is moved.',
      secret: true,
    },
  ),
  database_path: optional(k.path, 'Old form of the file of SQLite.', { deprecated: 'write database.args.database' }),
  event_cache_size: setting(k.size, 10 * 1024, 'Events kept in memory, before the factor below.', {
    reload: true,
    rule: 'A budget in bytes for so many events of 6 KiB: there is room for more small ones, or fewer large ones.',
  }),
  'caches.global_factor': setting(k.decimal(), 0.5, 'Scales the sizes of all caches.', {
    reload: true,
    rule: 'The environment variable `SYNAPSE_CACHE_FACTOR` wins when the file is silent.',
  }),
  'caches.per_cache_factors': setting(k.mapOf(k.decimal()), {}, 'Factors by name of cache.', {
    reload: true,
    rule: 'Environment variables `SYNAPSE_CACHE_FACTOR_<NAME>` win over the file.',
  }),
  'caches.expire_caches': setting(k.flag, true, 'Forget what was not asked for in a while.', { since: '1.53' }),
  'caches.cache_entry_ttl': setting(k.duration, 1_800_000, 'The while.', { since: '1.53' }),
  'caches.expiry_time': optional(k.duration, 'Old form of `caches.cache_entry_ttl`.', {
    deprecated: 'write caches.cache_entry_ttl',
  }),
  'caches.sync_response_cache_duration': setting(
    k.duration,
    120_000,
    'How long the answer to an initial or full sync is kept for a client that went away before it had it, and asks again.',
  ),
  'caches.track_memory_usage': setting(
    k.flag,
    false,
    'Show about how much memory caches hold as the metric `synapse_util_caches_cache_size_bytes`.',
  ),
  'caches.cache_autotuning.max_cache_memory_usage': optional(
    k.size,
    'Memory of the whole process, measured after a garbage collection, above which caches shrink.',
  ),
  'caches.cache_autotuning.target_cache_memory_usage': optional(k.size, 'Memory down to which they shrink.'),
  'caches.cache_autotuning.min_cache_ttl': optional(k.duration, 'What is kept in any case.', {
    rule: 'The three `cache_autotuning` settings go together.',
  }),
  log_level: setting(k.oneOf('trace', 'debug', 'info', 'warn', 'error'), 'info', 'Least important lines to log.', {
    reload: true,
  }),
  log_format: setting(
    k.oneOf('auto', 'text', 'json'),
    'auto',
    'How log lines look; `auto` is text in a terminal, JSON elsewhere.',
  ),
  log_config: optional(k.path, 'File with levels by name and log files, in the format of Python logging.', {
    reload: true,
    rule: 'Wins over `log_level`.',
  }),
  log_slow_requests: optional(
    k.duration,
    'Warn of requests that took longer, with what they waited for. Off when unset.',
    {
      rule: 'Syncs that wait for news count what they took beyond that wait.',
    },
  ),
  log_slow_queries: optional(k.duration, 'Warn of statements of the database that took longer. Off when unset.'),
  structured: ignored(k.anything, '1.54', 'Set log_format: json.'),
  drains: ignored(k.anything, '1.54', 'Name log files in log_config.'),
};

/** One entry of `databases`. */
export type DatabaseSetting = k.FieldValues<typeof databaseFields>;
