import * as k from '../kinds.js';
import { ignored, optional, secretFile, setting } from '../setting.js';
import { regex, serverName } from './shapes.js';

/** Metrics, reports, application services, keys, tracing, background updates. */
export const serviceSettings = {
  enable_metrics: setting(k.flag, false, 'Measure, for a `metrics` listener or resource to show.'),
  enable_legacy_metrics: ignored(k.anything, '1.73', 'Metrics have their present names only.'),
  metrics_port: optional(k.port, 'Old form of a `metrics` listener.', {
    deprecated: 'write a listener of type metrics',
  }),
  metrics_bind_host: optional(k.text(), 'Address of `metrics_port`.', {
    deprecated: 'write a listener of type metrics',
  }),
  'sentry.dsn': optional(
    k.text({
      pattern: /^https?:\/\/[^@/\s]+@[^/@\s]+\/\S*[^/\s]$/,
      expected: 'an address like https://KEY@HOST/PROJECT',
    }),
    'Where errors are reported to: a service that understands the envelopes of Sentry. Kind, text and stack of an error go there, scrubbed; no request and no content.',
    { secret: true },
  ),
  'sentry.environment': optional(k.text(), 'Environment named in these reports.'),
  'metrics_flags.known_servers': setting(k.flag, false, 'Count the servers we share rooms with.'),
  report_stats: optional(k.flag, 'Whether to report anonymous usage numbers; nothing is sent unless true.', {
    rule: 'Must be set.',
    since: '0.11',
  }),
  report_stats_endpoint: setting(k.httpUrl, 'https://matrix.org/report-usage-stats/push', 'Where to.'),

  app_service_config_files: setting(k.list(k.path), [], 'Registration files of application services.'),
  use_appservice_legacy_authorization: setting(
    k.flag,
    false,
    'Also send the token in the address, as services of the past expect.',
    { since: '1.90' },
  ),
  track_puppeted_user_ips: setting(k.flag, false, 'Note addresses of administrators who act for users.'),
  track_appservice_user_ips: setting(k.flag, false, 'Note addresses of application services.'),

  macaroon_secret_key: optional(k.secretText, 'Signs short-lived tokens.', {
    secret: true,
    rule: 'Else `registration_shared_secret`, else made from the signing key.',
  }),
  macaroon_secret_key_path: secretFile(k.path, 'macaroon_secret_key'),
  form_secret: optional(k.secretText, 'Signs the links of consent pages.', { secret: true }),
  form_secret_path: secretFile(k.path, 'form_secret'),
  signing_key_path: optional(k.path, 'File of the signing key.', {
    rule: 'Default: `<server_name>.signing.key` beside the settings.',
  }),
  signing_key: optional(k.secretText, 'The signing key in line: `ed25519 <version> <key>`.', {
    secret: true,
    rule: 'Wins over `signing_key_path`.',
  }),
  old_signing_keys: setting(
    k.mapOf(
      k.object({
        key: k.need(k.text({ empty: false }), 'Public key.'),
        expired_ts: k.need(k.whole(), 'Last use, milliseconds since 1970.'),
      }),
    ),
    {},
    'Signing keys of the past, by id.',
  ),
  key_refresh_interval: setting(k.duration, 86_400_000, "How long others may keep this server's key."),
  trusted_key_servers: setting(
    k.list(
      k.object({
        server_name: k.need(serverName, 'The server.'),
        verify_keys: k.maybe(k.mapOf(k.text({ empty: false })), 'Its public keys, by id.'),
        accept_keys_insecurely: k.field(k.flag, false, 'Trust it without its keys and without TLS.'),
      }),
    ),
    [{ server_name: 'matrix.org', verify_keys: undefined, accept_keys_insecurely: false }],
    "Servers asked for other servers' keys.",
  ),
  perspectives: optional(k.mapOf(k.anything), 'Old form of `trusted_key_servers`.', {
    deprecated: 'write trusted_key_servers',
  }),
  suppress_key_server_warning: setting(k.flag, false, 'Do not warn when matrix.org is the only one.'),
  key_server_signing_keys_path: optional(
    k.path,
    'Keys that sign when this server answers about keys; the signing key when unset.',
  ),

  'opentracing.enabled': setting(k.flag, false, 'Trace requests.'),
  'opentracing.homeserver_whitelist': setting(
    k.list(regex),
    [],
    'Servers (regular expressions) to which traces go on.',
  ),
  'opentracing.force_tracing_for_users': setting(
    k.list(k.text({ empty: false })),
    [],
    'Users whose requests are always traced.',
  ),
  'opentracing.jaeger_config': optional(
    k.mapOf(k.anything),
    'Where traces go, by OTLP over HTTP, and which: `sampler` (`type`: `const`, `probabilistic` or `ratelimiting`, and `param`), `local_agent.reporting_host` (port 4318), or `otlp_endpoint`.',
  ),
  'task_scheduler.max_concurrent_tasks': setting(
    k.whole(1),
    5,
    'Most tasks that administrators or the server scheduled, such as deletions of rooms, at a time.',
  ),
  'background_updates.background_update_duration_ms': setting(
    k.whole(1),
    100,
    'How long one batch should take, milliseconds.',
  ),
  'background_updates.sleep_enabled': setting(k.flag, true, 'Pause between batches.'),
  'background_updates.sleep_duration_ms': setting(k.whole(), 1000, 'The pause, milliseconds.'),
  'background_updates.min_batch_size': setting(k.whole(1), 1, 'Fewest rows of a batch.'),
  'background_updates.default_batch_size': setting(k.whole(1), 100, 'Rows of the first batch.'),
};
