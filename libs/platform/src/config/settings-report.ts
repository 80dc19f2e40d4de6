import { rowOf, type SettingName, settingNames } from './table.js';
import { withoutEffect } from './without-effect.js';

/** Settings that this lib honors itself: it reads the logs' settings, and some only decide whether the server starts. */
const honoredHere: readonly SettingName[] = [
  'server_name',
  'log_level',
  'log_format',
  'log_config',
  'worker_log_config',
  'enable_registration_without_verification',
  'start_pushers',
  'send_federation',
  'no_tls',
  'opentracing.force_tracing_for_users',
  'opentracing.homeserver_whitelist',
  'opentracing.jaeger_config',
  'databases',
  'experimental_features.msc1767_enabled',
  'experimental_features.msc4242_enabled',
  'caches.cache_entry_ttl',
  'caches.cache_autotuning.max_cache_memory_usage',
  'caches.cache_autotuning.min_cache_ttl',
  'caches.cache_autotuning.target_cache_memory_usage',
  'caches.expire_caches',
  'caches.global_factor',
  'caches.per_cache_factors',
  // Whoever is named writes, as any process does that is asked to.
  'stream_writers.account_data',
  'stream_writers.device_lists',
  'stream_writers.push_rules',
  'stream_writers.quarantined_media_changes',
  'stream_writers.receipts',
  'stream_writers.thread_subscriptions',
  'stream_writers.to_device',
];

/** Where the list of settings without effect and the sources disagree. */
export interface SettingsReport {
  /** Read, but listed as without effect. */
  readonly readThoughIdle: readonly SettingName[];
  /** Read nowhere, but not listed. */
  readonly idleThoughSilent: readonly SettingName[];
}

/**
 * Compares {@link withoutEffect} with what sources read. A setting counts as read where `.get('name')` stands, or its name in
 * quotes when that can hardly be anything else. Old names, removed ones and files of secrets count with what they stand for.
 * @param sources texts of all source files outside this lib
 */
export function settingsReport(sources: readonly string[]): SettingsReport {
  const read = new Set<string>(honoredHere);
  for (const text of sources) {
    for (const [, name = ''] of text.matchAll(/\.get\(\s*'([a-z0-9_.]+)'/g)) read.add(name);
    // A name put together where it is read stands for every setting that it may become.
    for (const [, parts = ''] of text.matchAll(/\.get\(\s*`([a-z0-9_.]+\$\{[^`]*)`/g)) {
      const pattern = parts.replaceAll('.', '\\.').replaceAll(/\$\{[^}]*\}/g, '[a-z0-9_]+');
      for (const name of settingNames) if (new RegExp(`^${pattern}$`).test(name)) read.add(name);
    }
    for (const [, name = ''] of text.matchAll(/'([a-z0-9]+_[a-z0-9_]*\.[a-z0-9_.]+|rc_[a-z0-9_.]+)'/g)) read.add(name);
  }
  const current = settingNames.filter((name) => {
    const row = rowOf(name);
    return !row.removed && row.deprecated === undefined && row.fileOf === undefined && row.meaningless === undefined;
  });
  return {
    readThoughIdle: settingNames.filter((name) => withoutEffect.has(name) && read.has(name)),
    idleThoughSilent: current.filter((name) => !withoutEffect.has(name) && !read.has(name)),
  };
}
