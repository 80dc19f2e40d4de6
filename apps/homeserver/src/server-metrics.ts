import type { BackgroundUpdates, Database, StatementObserver, TransactionReport } from '@rookery/database';
import {
  cacheBytes,
  type CacheReport,
  cacheReports,
  type Clock,
  type Config,
  LogContext,
  type Logger,
  type Metrics,
} from '@rookery/platform';
import { domainOf } from '@rookery/matrix-types';
import type { EphemeralHooks, PresenceReader, PresenceService, PresenceState } from '@rookery/ephemeral';
import type { Bus, Notifier, Rpc } from '@rookery/replication';
import type { RoomHooks } from '@rookery/rooms';
import type { Mailer, MailKind } from '@rookery/templates';
import type { MonthlyActiveUsers, UserHooks } from '@rookery/users';
import { release, type } from 'node:os';
import { type ServerFigures, serverFigures } from './server-figures.js';
import { version } from './version.js';

/** What the numbers are read from when somebody asks for them. */
export interface MeasuredParts {
  readonly metrics: Metrics;
  readonly notifier: Notifier;
  readonly backgroundUpdates: BackgroundUpdates;
  readonly config: Config;
  readonly database: Database;
  readonly clock: Clock;
}

const dayMs = 86_400_000;
/** For so long what was counted in the database is shown again. */
const countedMs = 5 * 60_000;

/** Counted when something happens, and shown before: an alert on a rate needs the zero. */
const countedLater = [
  'synapse_http_client_requests',
  'synapse_http_client_responses',
  'synapse_http_httppusher_http_pushes_processed',
  'synapse_http_httppusher_http_pushes_failed',
  'synapse_http_httppusher_badge_updates_processed',
  'synapse_http_httppusher_badge_updates_failed',
  'synapse_appservice_api_sent_transactions',
  'synapse_appservice_api_sent_events',
  'synapse_appservice_api_sent_ephemeral',
  'synapse_appservice_api_sent_todevice',
  'synapse_appservice_api_failed_transactions',
  'synapse_handlers_appservice_events_processed',
] as const;

/** Shows the numbers that belong to no single part of the server. */
export function showServerMetrics(parts: MeasuredParts): void {
  const { metrics, notifier, backgroundUpdates } = parts;
  const build = { pythonversion: process.version, version, osversion: `${type()} ${release()}`, rustcversion: '' };
  metrics.gauge('synapse_build_info').set(build, 1);
  metrics.gauge('synapse_event_persisted_position', (gauge) => gauge.set({}, notifier.position('events')));
  metrics.gauge('synapse_notifier_listeners', (gauge) => gauge.set({}, notifier.waiting));
  metrics.gauge('synapse_notifier_users', (gauge) => gauge.set({}, notifier.waitingUsers));
  metrics.gauge('synapse_background_update_status', async (gauge) =>
    gauge.set({ database_name: 'master' }, await statusOf(backgroundUpdates)),
  );
  for (const name of countedLater) metrics.counter(name);
  metrics.histogram('synapse_sliding_sync_processing_time');
  showCaches(metrics, parts.config);
  showFigures(parts);
}

/** Caches of what is answered, or of what other servers answered, as it is. */
const answerCaches = new Set(['sync', 'get_room_hierarchy']);

function showCaches(metrics: Metrics, config: Config): void {
  metrics.gauge('synapse_util_caches_cache', (gauge) => {
    for (const { name, lookups } of cacheReports(config)) gauge.set({ name }, lookups);
  });
  metrics.gauge('synapse_util_caches_cache_hits', (gauge) => {
    for (const { name, hits } of cacheReports(config)) gauge.set({ name }, hits);
  });
  metrics.gauge('synapse_util_caches_cache_size', (gauge) => {
    for (const { name, size } of cacheReports(config)) gauge.set({ name }, size);
  });
  metrics.gauge('synapse_util_caches_cache_max_size', (gauge) => {
    for (const { name, maxSize } of cacheReports(config)) gauge.set({ name }, maxSize);
  });
  if (config.get('caches.track_memory_usage')) {
    metrics.gauge('synapse_util_caches_cache_size_bytes', (gauge) => {
      for (const [name, bytes] of cacheBytes(config)) gauge.set({ name }, bytes);
    });
  }
  metrics.gauge('synapse_util_caches_cache_evicted_size', (gauge) => {
    for (const { name, evicted, expired, invalidated } of cacheReports(config)) {
      gauge.set({ name, reason: 'size' }, evicted);
      if (expired !== undefined) gauge.set({ name, reason: 'time' }, expired);
      if (invalidated !== undefined) gauge.set({ name, reason: 'invalidation' }, invalidated);
    }
  });
  const ofAnswers = (): CacheReport[] => cacheReports(config).filter(({ name }) => answerCaches.has(name));
  metrics.gauge('synapse_util_caches_response_cache', (gauge) => {
    for (const { name, lookups } of ofAnswers()) gauge.set({ name }, lookups);
  });
  metrics.gauge('synapse_util_caches_response_cache_hits', (gauge) => {
    for (const { name, hits } of ofAnswers()) gauge.set({ name }, hits);
  });
  metrics.gauge('synapse_util_caches_response_cache_size', (gauge) => {
    for (const { name, entries } of ofAnswers()) gauge.set({ name }, entries);
  });
}

/** Shows what is counted in the database, at most every few minutes. */
function showFigures({ metrics, database, clock }: MeasuredParts): void {
  let counted: { readonly atMs: number; readonly figures: Promise<ServerFigures> } | undefined;
  const figures = (): Promise<ServerFigures> => {
    const atMs = clock.monotonicMs();
    if (counted === undefined || atMs - counted.atMs > countedMs) {
      const fresh = { atMs, figures: serverFigures(database, clock.nowMs() - dayMs) };
      counted = fresh;
      // The next scrape tries again.
      fresh.figures.catch(() => (counted = undefined));
    }
    return counted.figures;
  };
  metrics.gauge('synapse_admin_daily_active_users', async (gauge) => gauge.set({}, (await figures()).active));
  metrics.gauge('synapse_non_deactivated_user_count', async (gauge) => {
    for (const { service, total } of (await figures()).accounts) gauge.set({ app_service: service }, total);
  });
  let shown: ServerFigures['pushers'] = [];
  metrics.gauge('synapse_pushers', async (gauge) => {
    const { pushers } = await figures();
    // What is not there any more would keep its last number.
    for (const { kind, appId } of shown) gauge.remove({ kind, app_id: appId });
    for (const { kind, appId, total } of pushers) gauge.set({ kind, app_id: appId }, total);
    shown = pushers;
  });
}

/** Counts new accounts and sessions. */
export function countAccounts(metrics: Metrics, hooks: UserHooks): void {
  const registrations = metrics.counter('synapse_user_registrations_total');
  const logins = metrics.counter('synapse_user_logins_total');
  hooks.registered.subscribe({
    afterCommit: async ({ isGuest, shadowBanned, authProvider = '' }) => {
      registrations.inc({ guest: String(isGuest), shadow_banned: String(shadowBanned), auth_provider: authProvider });
      return Promise.resolve();
    },
  });
  hooks.loggedIn.subscribe({
    afterCommit: async ({ isGuest, authProvider = '' }) => {
      logins.inc({ guest: String(isGuest), auth_provider: authProvider });
      return Promise.resolve();
    },
  });
}

/** Types of events that are counted by their own name; clients may make up any number of others. */
const maxEventTypes = 200;

/** Counts events that were stored, old ones that were fetched apart: they are no news; and forks of their rooms. Costs few additions for each. */
export function countEvents(metrics: Metrics, hooks: RoomHooks, serverName: string): void {
  const total = metrics.counter('synapse_storage_events_persisted_events');
  const byType = metrics.counter('synapse_storage_events_persisted_events_sep');
  const extremities = metrics.histogram('synapse_storage_events_forward_extremities_persisted').child({});
  const left = metrics.histogram('synapse_storage_events_stale_forward_extremities_persisted').child({});
  const types = new Set<string>();
  hooks.subscribe({
    afterCommit: (batch) => {
      const { events, backfilled } = batch;
      if (backfilled || events.length === 0) return;
      total.inc({}, events.length);
      const found = batch.extremities();
      extremities.observe(found.now);
      left.observe(found.left);
      for (const { event } of events) {
        const isKnown = types.has(event.type) || types.size < maxEventTypes;
        if (isKnown) types.add(event.type);
        byType.inc({
          type: isKnown ? event.type : 'other',
          origin_type: domainOf(event.sender) === serverName ? 'local' : 'remote',
        });
      }
    },
  });
}

/** What dashboards call the kinds of mails. */
const mailTypes: Readonly<Record<MailKind, string>> = {
  notif: 'notification',
  expiry: 'expiry',
  password_reset: 'password_reset',
  registration: 'registration',
  add_threepid: 'add_threepid',
  already_in_use: 'already_in_use',
};

/** Counts mails as they are queued. */
export function countMails(metrics: Metrics, mailer: Mailer | undefined): void {
  const sent = metrics.counter('synapse_emails_sent_total');
  mailer?.onQueued((kind) => sent.inc({ type: mailTypes[kind] }));
}

/** Shows how many users were active this month, where they are counted. */
export function showActivityMetrics(metrics: Metrics, users: MonthlyActiveUsers): void {
  if (!users.counting) return;
  metrics.gauge('synapse_admin_mau_current', async (gauge) => gauge.set({}, (await users.activity()).current));
  metrics.gauge('synapse_admin_mau_max', async (gauge) => gauge.set({}, (await users.activity()).limit ?? 0));
  metrics.gauge('synapse_admin_mau_registered_reserved_users', async (gauge) =>
    gauge.set({}, (await users.activity()).reserved),
  );
  metrics.gauge('synapse_admin_mau_current_mau_by_service', async (gauge) => {
    for (const { service, total } of (await users.activity()).byService) gauge.set({ app_service: service }, total);
  });
}

/** 0 disabled, 1 not started, 2 running, 3 complete. */
async function statusOf(updates: BackgroundUpdates): Promise<number> {
  if (!updates.enabled) return 0;
  if (updates.current() !== undefined) return 2;
  return (await updates.isQueued()) ? 1 : 3;
}

/** Each begins with a letter of its own. */
const verbs = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'] as const;
/** Names of transactions are the program's own; modules may bring some. */
const maxTransactionNames = 1_000;

/** Counts transactions and statements of the database, and adds them to the request that they are for. */
export function databaseMetrics(metrics: Metrics): {
  readonly onTransaction: (report: TransactionReport) => void;
  readonly onStatement: StatementObserver;
} {
  const waits = metrics.histogram('synapse_storage_schedule_time').child({});
  const counts = metrics.counter('synapse_storage_transaction_time_count');
  const sums = metrics.counter('synapse_storage_transaction_time_sum');
  const times = metrics.histogram('synapse_storage_query_time');
  const byVerb = new Map<string, ReturnType<typeof times.child>>();
  for (const verb of verbs) byVerb.set(verb.charAt(0), times.child({ verb }));
  const reads = byVerb.get('S')!;
  const other = times.child({ verb: 'OTHER' });
  const childrenOf = (desc: string) => ({ count: counts.child({ desc }), sum: sums.child({ desc }) });
  const byName = new Map<string, ReturnType<typeof childrenOf>>();
  const named = (name: string): ReturnType<typeof childrenOf> => {
    let children = byName.get(name);
    if (children === undefined) {
      if (byName.size >= maxTransactionNames) return others;
      byName.set(name, (children = childrenOf(name)));
    }
    return children;
  };
  const others = named('other');
  return {
    onTransaction: ({ name, waitMs, durationMs }) => {
      waits.observe(waitMs / 1000);
      const { count, sum } = named(name);
      count.inc();
      sum.inc(durationMs / 1000);
      const cost = LogContext.cost();
      if (cost === undefined) return;
      cost.transactions++;
      cost.durationMs += durationMs;
      cost.waitMs += waitMs;
    },
    onStatement: (sql, durationMs, isAlone) => {
      // A read may begin with WITH or on a line of its own; what is no verb of the four is BEGIN, COMMIT and their like.
      const first = sql.charAt(0);
      const child = byVerb.get(first === '\n' || first === ' ' ? sql.trimStart().charAt(0) : first);
      (child ?? (isAlone ? reads : other)).observe(durationMs / 1000);
      if (!isAlone) return;
      const cost = LogContext.cost();
      if (cost === undefined) return;
      cost.transactions++;
      cost.durationMs += durationMs;
    },
  };
}

/** Who looks at what the database does; nobody where neither metrics nor slow requests and statements are asked for. */
export function databaseObservers(
  config: Config,
  metrics: Metrics,
  logger: Logger,
): ReturnType<typeof databaseMetrics> | undefined {
  const slowMs = config.get('log_slow_queries');
  const isTraced = config.get('opentracing.enabled');
  const isAsked = slowMs !== undefined || config.get('log_slow_requests') !== undefined || isTraced;
  if (!config.get('enable_metrics') && !isAsked) return undefined;
  const { onTransaction, onStatement } = databaseMetrics(metrics);
  if (slowMs === undefined && !isTraced) return { onTransaction, onStatement };
  return {
    onTransaction: (report) => {
      onTransaction(report);
      const { name, durationMs, waitMs, committed } = report;
      LogContext.spans()?.record(`db ${name}`, 'client', durationMs, { wait_ms: waitMs, committed });
    },
    onStatement: (sql, durationMs, isAlone) => {
      onStatement(sql, durationMs, isAlone);
      if (isAlone) LogContext.spans()?.record('db read', 'client', durationMs, { 'db.query.text': shortened(sql) });
      // The statement without its values: these may be what somebody wrote.
      if (slowMs !== undefined && durationMs >= slowMs)
        logger.warn('A statement was slow', {
          sql: shortened(sql),
          ms: Math.round(durationMs),
        });
    },
  };
}

/** Counts what waiting requests are told. */
export function wakeMetrics(metrics: Metrics): (stream: string, woken: number) => void {
  const events = metrics.counter('synapse_notifier_notified_events').child({});
  const woken = metrics.counter('synapse_notifier_users_woken_by_stream');
  // The streams are the program's own.
  const byStream = new Map<string, ReturnType<typeof woken.child>>();
  return (stream, users) => {
    if (stream === 'events') events.inc();
    if (users === 0) return;
    let child = byStream.get(stream);
    if (child === undefined) byStream.set(stream, (child = woken.child({ stream })));
    child.inc(users);
  };
}

/** Shows how many presences are in memory, and counts what becomes of them. */
export function showPresenceMetrics(
  metrics: Metrics,
  presence: PresenceService,
  reader: PresenceReader,
  hooks: EphemeralHooks,
): void {
  metrics.counter('synapse_handler_presence_bump_active_time').follow({}, () => presence.seenActive);
  metrics.counter('synapse_handler_presence_timers_fired').follow({}, () => presence.timedOut);
  const updates = metrics.counter('synapse_handler_presence_get_updates');
  updates.follow({ type: 'stream' }, () => reader.reads.changes);
  updates.follow({ type: 'full' }, () => reader.reads.whole);
  metrics.gauge('synapse_handlers_presence_user_to_current_state_size', (gauge) => gauge.set({}, presence.known));
  const changes = metrics.counter('synapse_handler_presence_presence_updates').child({});
  const told = metrics.counter('synapse_handler_presence_notified_presence').child({});
  const transitions = metrics.counter('synapse_handler_presence_state_transition');
  const reasons = metrics.counter('synapse_handler_presence_notify_reason');
  hooks.subscribe({
    presenceChanged: (states) => {
      changes.inc(states.length);
      told.inc(states.length);
    },
    presenceTurned: (turns) => {
      for (const { before, after, isLocal } of turns) {
        const locality = isLocal ? 'local' : 'remote';
        reasons.inc({ locality, reason: reasonOf(before, after) });
        if (before.state !== after.state) transitions.inc({ locality, from: before.state, to: after.state });
      }
    },
  });
}

/** What dashboards call what was told of a presence; the first that holds. */
function reasonOf(before: PresenceState, after: PresenceState): string {
  if (before.statusMsg !== after.statusMsg) return 'status_msg_change';
  return before.state === after.state ? 'current_active_change' : 'state_change';
}

/** Counts what a process among others hears and says of streams. */
export function countNews(metrics: Metrics, bus: Bus, instance: string | undefined): void {
  const heard = metrics.counter('synapse_replication_tcp_protocol_inbound_rdata_count');
  const told = metrics.counter('synapse_replication_tcp_resource_stream_updates');
  if (!bus.isShared) return;
  // What this process says comes back to it once it is on its way to all.
  bus.subscribe(({ stream, writer }) => (writer === instance ? told : heard).inc({ stream_name: stream }));
}

/** Counts the calls to other processes, by what each came to: 503 where nobody answered. */
export function countCalls(metrics: Metrics, rpc: Rpc): void {
  const done = metrics.counter('synapse_outgoing_replication_requests');
  const pending = metrics.gauge('synapse_pending_outgoing_replication_requests');
  rpc.watch((name) => {
    pending.inc({ name });
    return (status) => {
      pending.dec({ name });
      done.inc({ name, code: String(status) });
    };
  });
}

const shortened = (sql: string): string => sql.replaceAll(/\s+/g, ' ').slice(0, 500);
