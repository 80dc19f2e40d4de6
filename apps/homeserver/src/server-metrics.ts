import type { BackgroundUpdates, Database, TransactionReport } from '@rookery/database';
import { cacheReports, type Clock, type Config, type Metrics } from '@rookery/platform';
import { domainOf } from '@rookery/matrix-types';
import type { Notifier } from '@rookery/replication';
import type { RoomHooks } from '@rookery/rooms';
import type { Mailer, MailKind } from '@rookery/templates';
import type { MonthlyActiveUsers, UserHooks } from '@rookery/users';
import { release, type } from 'node:os';
import { type ServerFigures, serverFigures } from './server-figures.query.js';
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
  showCaches(metrics, parts.config);
  showFigures(parts);
}

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
  metrics.gauge('synapse_util_caches_cache_evicted_size', (gauge) => {
    for (const { name, evicted } of cacheReports(config)) gauge.set({ name, reason: 'size' }, evicted);
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

/** Counts events that were stored, old ones that were fetched apart: they are no news. Costs an addition for each. */
export function countEvents(metrics: Metrics, hooks: RoomHooks, serverName: string): void {
  const total = metrics.counter('synapse_storage_events_persisted_events');
  const byType = metrics.counter('synapse_storage_events_persisted_events_sep');
  const types = new Set<string>();
  hooks.subscribe({
    afterCommit: ({ events, backfilled }) => {
      if (backfilled) return;
      total.inc({}, events.length);
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

/** Counts transactions of the database. */
export function transactionMetrics(metrics: Metrics): (report: TransactionReport) => void {
  const waits = metrics.histogram('synapse_storage_schedule_time');
  const counts = metrics.counter('synapse_storage_transaction_time_count');
  const sums = metrics.counter('synapse_storage_transaction_time_sum');
  return ({ name, waitMs, durationMs }) => {
    const labels = { desc: name };
    waits.observe({}, waitMs / 1000);
    counts.inc(labels);
    sums.inc(labels, durationMs / 1000);
  };
}
