import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { checkConfig } from './load.js';
import { settingNames } from './table.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-options-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const secretFile = join(folder, 'secret');
writeFileSync(secretFile, 'secret\n');
const certificateFile = join(folder, 'ca.pem');
writeFileSync(certificateFile, rootCertificates[0] ?? '');
const logFile = join(folder, 'log.yaml');
writeFileSync(logFile, 'version: 1\n');
const providersFile = join(folder, 'providers.json');
writeFileSync(providersFile, '[]');
const listener = { port: 8008, type: 'http', resources: [{ names: ['client'], compress: true }] };
const emailNeeds = { notif_from: 'a@b.example' };
const oidc = {
  ...{ idp_id: 'x', idp_name: 'X', issuer: 'https://x.example', client_id: 'c', client_secret: 's' },
  user_mapping_provider: { config: { localpart_template: '{{ user.sub }}' } },
};
const rate = { per_second: 1, burst_count: 2 };
const redis = { enabled: true };
const matrixAuth = {
  ...{ enabled: true, endpoint: 'http://localhost:8080', secret: 'x' },
};

/** A whole section with what it needs, by the name of one of its options. */
interface Given {
  readonly [setting: string]: unknown;
}

/** Every option that operators of the field know, with a value that it can have and whatever it needs beside it. */
const options: Readonly<Record<string, unknown>> = {
  // The server.
  modules: [],
  pid_file: '/run/x.pid',
  daemonize: false,
  print_pidfile: false,
  user_agent_suffix: 'x',
  use_frozen_dicts: true,
  web_client_location: 'https://app.example/',
  public_baseurl: 'https://matrix.example.org',
  serve_server_wellknown: true,
  extra_well_known_client_content: { a: 1 },
  soft_file_limit: 0,
  'presence.enabled': 'untracked',
  'presence.include_offline_users_on_sync': true,
  'presence.last_active_granularity': '1m',
  'presence.sync_online_timeout': '30s',
  'presence.idle_timeout': '5m',
  'presence.presence_router': { module: 'x', config: {} },
  use_presence: true,
  require_auth_for_profile_requests: true,
  limit_profile_requests_to_users_who_share_rooms: () => ({
    limit_profile_requests_to_users_who_share_rooms: true,
    require_auth_for_profile_requests: true,
  }),
  include_profile_data_on_invite: false,
  include_profile_updates_in_sync: true,
  allow_public_rooms_without_auth: true,
  allow_public_rooms_over_federation: true,
  restrict_public_rooms_to_local_users: true,
  default_room_version: '12',
  gc_thresholds: [700, 10, 10],
  gc_min_interval: ['1s', '10s', '30s'],
  filter_timeline_limit: -1,
  block_non_admin_invites: true,
  enable_search: false,
  ip_range_blacklist: ['10.0.0.0/8'],
  ip_range_whitelist: ['10.1.0.0/16'],
  federation_ip_range_blacklist: ['10.0.0.0/8'],
  listeners: [listener],
  manhole: 9000,
  'manhole_settings.username': 'matrix',
  'manhole_settings.password': 'secret',
  'manhole_settings.ssh_priv_key_path': '/x',
  'manhole_settings.ssh_pub_key_path': '/x',
  http_proxy: 'http://proxy.example:3128',
  https_proxy: 'http://proxy.example:3128',
  no_proxy_hosts: ['10.0.0.1'],
  'matrix_authentication_service.enabled': () => ({ matrix_authentication_service: matrixAuth }),
  'matrix_authentication_service.endpoint': () => ({ matrix_authentication_service: matrixAuth }),
  'matrix_authentication_service.force_http2': () => ({
    matrix_authentication_service: { ...matrixAuth, force_http2: true },
  }),
  'matrix_authentication_service.secret': () => ({ matrix_authentication_service: matrixAuth }),
  'matrix_authentication_service.secret_path': () => ({
    matrix_authentication_service: { enabled: true, secret_path: secretFile },
  }),
  dummy_events_threshold: 10,
  cleanup_extremities_with_dummy_events: false,
  delete_stale_devices_after: '1y',
  max_event_delay_duration: '24h',
  'user_types.default_user_type': () => ({ user_types: { default_user_type: 'a', extra_user_types: ['a'] } }),
  'user_types.extra_user_types': ['a'],
  enable_ephemeral_messages: true,
  use_account_validity_in_account_status: true,
  'auto_accept_invites.enabled': true,
  'auto_accept_invites.only_for_direct_messages': true,
  'auto_accept_invites.only_from_local_users': true,
  'auto_accept_invites.worker_to_run_on': 'main',
  // Blocking and limits.
  admin_contact: 'mailto:a@b.example',
  hs_disabled: false,
  hs_disabled_message: 'x',
  limit_usage_by_mau: true,
  max_mau_value: 10,
  mau_trial_days: 2,
  mau_appservice_trial_days: { x: 1 },
  mau_limit_alerting: false,
  mau_stats_only: true,
  mau_limit_reserved_threepids: [{ medium: 'email', address: 'a@b.example' }],
  server_context: 'x',
  'limit_remote_rooms.enabled': true,
  'limit_remote_rooms.complexity': 0.5,
  'limit_remote_rooms.complexity_error': 'x',
  'limit_remote_rooms.admins_can_join': true,
  require_membership_for_aliases: false,
  allow_per_room_profiles: false,
  max_avatar_size: '10M',
  allowed_avatar_mimetypes: ['image/png'],
  redaction_retention_period: '28d',
  redaction_allowed_period: '1d',
  forgotten_room_retention_period: '28d',
  user_ips_max_age: '14d',
  request_token_inhibit_3pid_errors: true,
  next_link_domain_whitelist: ['matrix.org'],
  'templates.custom_template_directory': folder,
  'retention.enabled': true,
  'retention.default_policy': { min_lifetime: '1d', max_lifetime: '1y' },
  'retention.allowed_lifetime_min': '1d',
  'retention.allowed_lifetime_max': '1y',
  'retention.purge_jobs': [{ shortest_max_lifetime: '3d', longest_max_lifetime: '5d', interval: '12h' }],
  // TLS.
  tls_certificate_path: '/x/tls.crt',
  tls_private_key_path: '/x/tls.key',
  no_tls: true,
  federation_verify_certificates: () => ({ federation_verify_certificates: false, trusted_key_servers: [] }),
  federation_client_minimum_tls_version: '1.2',
  federation_certificate_verification_whitelist: ['*.example.org'],
  federation_custom_ca_list: [certificateFile],
  // Federation.
  federation_domain_whitelist: ['a.example'],
  federation_whitelist_endpoint_enabled: true,
  federation_metrics_domains: ['a.example'],
  allow_profile_lookup_over_federation: false,
  allow_device_name_lookup_over_federation: true,
  'federation.client_timeout': '180s',
  'federation.max_short_retry_delay': '7s',
  'federation.max_long_retry_delay': '100s',
  'federation.max_short_retries': 5,
  'federation.max_long_retries': 20,
  'federation.destination_min_retry_interval': '30s',
  'federation.destination_retry_multiplier': 5,
  'federation.destination_max_retry_interval': '12h',
  // Caches.
  event_cache_size: '15K',
  'caches.global_factor': 1,
  'caches.per_cache_factors': { get_users_who_share_room_with_user: 2 },
  'caches.expire_caches': false,
  'caches.cache_entry_ttl': '10m',
  'caches.expiry_time': '10m',
  'caches.sync_response_cache_duration': '2m',
  'caches.track_memory_usage': true,
  'caches.cache_autotuning': {
    max_cache_memory_usage: '1024M',
    target_cache_memory_usage: '758M',
    min_cache_ttl: '5m',
  },
  // Database and logging.
  'database.name': 'sqlite3',
  'database.txn_limit': 100,
  'database.allow_unsafe_locale': true,
  'database.args': { database: '/x/homeserver.db' },
  databases: () => ({
    databases: { main: { name: 'psycopg2', data_stores: ['main', 'state'], args: { dbname: 'a' } } },
  }),
  database_path: '/x/homeserver.db',
  log_config: logFile,
  // Rate limits.
  rc_message: rate,
  rc_registration: rate,
  rc_registration_token_validity: rate,
  'rc_login.address': rate,
  'rc_login.account': rate,
  'rc_login.failed_attempts': rate,
  rc_admin_redaction: rate,
  'rc_joins.local': rate,
  'rc_joins.remote': rate,
  rc_joins_per_room: rate,
  rc_3pid_validation: rate,
  'rc_invites.per_room': rate,
  'rc_invites.per_user': rate,
  'rc_invites.per_issuer': rate,
  rc_third_party_invite: rate,
  rc_media_create: rate,
  rc_key_requests: rate,
  rc_messages_per_second: 1,
  rc_message_burst_count: 5,
  federation_rc_window_size: 1000,
  federation_rc_sleep_limit: 10,
  federation_rc_sleep_delay: 500,
  federation_rc_reject_limit: 50,
  federation_rc_concurrent: 3,
  rc_federation: { window_size: 1000, sleep_limit: 10, sleep_delay: 500, reject_limit: 50, concurrent: 3 },
  federation_rr_transactions_per_room_per_second: 50,
  rc_presence: { per_user: { per_second: 1, burst_count: 2 } },
  rc_delayed_event_mgmt: rate,
  rc_room_creation: rate,
  rc_reports: rate,
  rc_user_directory: rate,
  rc_profile: rate,
  // Media.
  enable_authenticated_media: false,
  enable_media_repo: true,
  enable_local_media_storage: true,
  media_store_path: '/x/media',
  max_pending_media_uploads: 5,
  unused_expiration_time: '24h',
  media_storage_providers: [{ module: 'file_system', store_local: true, config: { directory: '/x' } }],
  backup_media_store_path: '/x',
  synchronous_backup_media_store: true,
  max_upload_size: '60M',
  media_upload_limits: [{ time_period: '1h', max_size: '100M', info_uri: 'https://x.example', can_upgrade: true }],
  max_image_pixels: '35M',
  remote_media_download_burst_count: '500M',
  remote_media_download_per_second: '87K',
  prevent_media_downloads_from: ['a.example'],
  dynamic_thumbnails: true,
  thumbnail_sizes: [{ width: 32, height: 32, method: 'crop' }],
  'media_retention.local_media_lifetime': '90d',
  'media_retention.remote_media_lifetime': '14d',
  media_instance_running_background_jobs: 'main',
  url_preview_enabled: () => ({ url_preview_enabled: true, url_preview_ip_range_blacklist: ['10.0.0.0/8'] }),
  url_preview_ip_range_blacklist: ['10.0.0.0/8'],
  url_preview_ip_range_whitelist: ['10.1.0.0/16'],
  url_preview_url_blacklist: [{ username: '*' }, { netloc: '^[0-9]+$' }],
  max_spider_size: '8M',
  url_preview_accept_language: ['en-UK'],
  'oembed.disable_default_providers': true,
  'oembed.additional_providers': [providersFile],
  // Captcha, TURN, RTC.
  recaptcha_public_key: 'x',
  recaptcha_public_key_path: secretFile,
  recaptcha_private_key: 'x',
  recaptcha_private_key_path: secretFile,
  enable_registration_captcha: () => ({
    enable_registration_captcha: true,
    recaptcha_public_key: 'a',
    recaptcha_private_key: 'b',
  }),
  recaptcha_siteverify_api: 'https://x.example/verify',
  turn_uris: ['turn:example.org'],
  turn_shared_secret: 'x',
  turn_shared_secret_path: secretFile,
  turn_username: 'x',
  turn_password: 'x',
  turn_user_lifetime: '2h',
  turn_allow_guests: false,
  'matrix_rtc.transports': [{ type: 'livekit', livekit_service_url: 'https://rtc.example' }],
  // Registration.
  enable_registration: () => ({ enable_registration: true, enable_registration_without_verification: true }),
  disable_registration: true,
  enable_registration_without_verification: true,
  registrations_require_3pid: () => ({ registrations_require_3pid: ['email'], email: emailNeeds }),
  disable_msisdn_registration: true,
  allowed_local_3pids: [{ medium: 'email', pattern: '.*@example.org' }],
  enable_3pid_lookup: false,
  registration_requires_token: true,
  enable_registration_token_3pid_bypass: true,
  registration_shared_secret: 'x',
  registration_shared_secret_path: secretFile,
  bcrypt_rounds: 14,
  allow_guest_access: true,
  trusted_third_party_id_servers: ['is.example'],
  default_identity_server: 'https://is.example',
  'account_threepid_delegates.msisdn': 'https://is.example',
  enable_set_displayname: false,
  enable_set_avatar_url: false,
  enable_3pid_changes: false,
  auto_join_rooms: ['#a:example.org'],
  autocreate_auto_join_rooms: false,
  autocreate_auto_join_rooms_federated: false,
  autocreate_auto_join_room_preset: () => ({
    autocreate_auto_join_room_preset: 'private_chat',
    auto_join_mxid_localpart: 'system',
  }),
  auto_join_mxid_localpart: 'system',
  auto_join_rooms_for_guests: false,
  inhibit_user_in_use_error: true,
  allow_underscore_prefixed_registration: true,
  allow_underscore_prefixed_localpart: true,
  // Sessions.
  session_lifetime: '24h',
  refreshable_access_token_lifetime: '10m',
  refresh_token_lifetime: '24h',
  nonrefreshable_access_token_lifetime: '24h',
  'ui_auth.session_timeout': '15s',
  'login_via_existing_session.enabled': true,
  'login_via_existing_session.require_ui_auth': false,
  'login_via_existing_session.token_timeout': '5m',
  'password_config.enabled': 'only_for_reauth',
  'password_config.localdb_enabled': false,
  'password_config.pepper': 'x',
  'password_config.policy.enabled': true,
  'password_config.policy.minimum_length': 15,
  'password_config.policy.require_digit': true,
  'password_config.policy.require_symbol': true,
  'password_config.policy.require_lowercase': true,
  'password_config.policy.require_uppercase': true,
  account_validity: () => ({
    account_validity: { enabled: true, period: '6w', renew_at: '1w' },
    ...{ email: emailNeeds, public_baseurl: 'https://x.example' },
  }),
  'account_validity.renew_email_subject': 'Renew',
  'account_validity.template_dir': folder,
  'account_validity.account_renewed_html_path': 'account_renewed.html',
  'account_validity.invalid_token_html_path': 'invalid_token.html',
  // Metrics.
  enable_metrics: true,
  metrics_port: 9101,
  metrics_bind_host: '127.0.0.1',
  'sentry.dsn': 'https://key@sentry.example/1',
  'sentry.environment': 'production',
  'metrics_flags.known_servers': true,
  report_stats: true,
  report_stats_endpoint: 'https://x.example/push',
  // API, application services, keys.
  'room_prejoin_state.disable_default_event_types': true,
  'room_prejoin_state.additional_event_types': [['org.example', 'foo'], 'com.example'],
  room_invite_state_types: ['m.room.name'],
  track_puppeted_user_ips: true,
  app_service_config_files: [],
  track_appservice_user_ips: true,
  use_appservice_legacy_authorization: true,
  macaroon_secret_key: 'x',
  macaroon_secret_key_path: secretFile,
  form_secret: 'x',
  form_secret_path: secretFile,
  signing_key_path: '/x/signing.key',
  signing_key: 'ed25519 a_abcd AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
  old_signing_keys: { 'ed25519:old': { key: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', expired_ts: 1 } },
  key_refresh_interval: '2d',
  trusted_key_servers: [{ server_name: 'a.example' }],
  perspectives: { servers: { 'a.example': { verify_keys: {} } } },
  suppress_key_server_warning: true,
  key_server_signing_keys_path: '/x/key_server.keys',
  // Single sign-on.
  'sso.client_whitelist': ['https://app.example/'],
  'sso.update_profile_information': true,
  'sso.template_dir': folder,
  oidc_providers: () => ({ oidc_providers: [oidc], public_baseurl: 'https://x.example' }),
  oidc_config: () => ({
    oidc_config: {
      ...{ enabled: true, issuer: 'https://x.example', client_id: 'c', client_secret: 's', discover: true },
      user_mapping_provider: { config: { localpart_template: '{{ user.sub }}' } },
    },
    public_baseurl: 'https://x.example',
  }),
  saml2_config: () => ({
    saml2_config: {
      ...{ enabled: true, idp_name: 'X', idp_icon: 'mxc://a/b', idp_brand: 'x', idp_entityid: 'https://idp.example' },
      ...{ saml_session_lifetime: '5m', grandfathered_mxid_source_attribute: 'upn' },
      sp_config: { metadata: { remote: [{ url: 'https://idp.example/metadata' }] } },
      user_mapping_provider: { config: { mxid_source_attribute: 'displayName', mxid_mapping: 'dotreplace' } },
      attribute_requirements: [{ attribute: 'group', one_of: ['a', 'b'] }],
    },
    public_baseurl: 'https://x.example',
  }),
  cas_config: () => ({
    cas_config: {
      ...{ enabled: true, server_url: 'https://cas.example', idp_name: 'X', idp_icon: 'mxc://a/b', idp_brand: 'x' },
      ...{ protocol_version: 3, displayname_attribute: 'name', required_attributes: { a: 'b' } },
      ...{ enable_registration: true, allow_numeric_ids: true, numeric_ids_prefix: 'n' },
    },
    public_baseurl: 'https://x.example',
  }),
  jwt_config: () => ({
    jwt_config: {
      ...{ enabled: true, secret: 'x'.repeat(32), algorithm: 'HS256', subject_claim: 'name' },
      ...{ display_name_claim: 'display', issuer: 'x', audiences: ['y'] },
    },
  }),
  // Push, rooms, directory.
  'push.enabled': false,
  'push.include_content': false,
  'push.group_unread_count_by_room': false,
  'push.jitter_delay': '10s',
  'push.redact_content': true,
  'push_rules.limits.rule_count': 5,
  'push_rules.limits.rule_id_length': 5,
  'push_rules.limits.rule_size': 500,
  encryption_enabled_by_default_for_room_type: 'invite',
  'user_directory.enabled': false,
  'user_directory.search_all_users': true,
  'user_directory.prefer_local_users': true,
  'user_directory.exclude_remote_users': true,
  'user_directory.show_locked_users': true,
  'stats.enabled': false,
  enable_room_list_search: false,
  alias_creation_rules: [{ user_id: '*', alias: '*', room_id: '*', action: 'allow' }],
  room_list_publication_rules: [{ user_id: '*', alias: '*', room_id: '*', action: 'allow' }],
  default_power_level_content_override: {
    private_chat: { events: { 'm.room.name': 50 } },
    trusted_private_chat: null,
    public_chat: null,
  },
  forget_rooms_on_leave: true,
  exclude_rooms_from_sync: ['!a:example.org'],
  exclude_rooms_from_presence: ['!a:example.org'],
  user_consent: () => ({
    user_consent: {
      ...{ template_dir: folder, version: '1', server_notice_content: { msgtype: 'm.text', body: 'x' } },
      ...{ send_server_notice_to_guests: true, block_events_error: 'x', require_at_registration: true },
      policy_name: 'P',
    },
    ...{ form_secret: 'x', public_baseurl: 'https://x.example', server_notices: { system_mxid_localpart: 'n' } },
  }),
  server_notices: () => ({
    server_notices: {
      ...{ system_mxid_localpart: 'n', system_mxid_display_name: 'N', system_mxid_avatar_url: 'mxc://a/b' },
      ...{ room_name: 'N', room_avatar_url: 'mxc://a/b', room_topic: 'T', auto_join: true },
    },
  }),
  // Mail.
  email: () => ({
    email: {
      ...{ smtp_host: 'localhost', smtp_port: 25, smtp_user: 'x', smtp_pass: 'x', force_tls: false },
      ...{ require_transport_security: true, enable_tls: true, tlsname: 'x', notif_from: 'a@b.example' },
      ...{ app_name: 'M', enable_notifs: true, notif_for_new_users: false, notif_delay_before_mail: '10m' },
      ...{ client_base_url: 'https://app.example', validation_token_lifetime: '15m' },
      ...{ invite_client_location: 'https://app.example', subjects: { password_reset: 'Reset' } },
      ...{ notif_template_html: 'notif_mail.html', expiry_template_text: 'notice_expiry.txt' },
    },
    public_baseurl: 'https://x.example',
  }),
  'email.template_dir': () => ({ email: { ...emailNeeds, template_dir: folder } }),
  'email.riot_base_url': () => ({ email: { ...emailNeeds, riot_base_url: 'https://app.example' } }),
  'email.redact_content': () => ({ email: { ...emailNeeds, redact_content: true } }),
  // Tracing, background work.
  opentracing: {
    ...{ enabled: true, homeserver_whitelist: ['.*'], force_tracing_for_users: ['@a:example.org'] },
    jaeger_config: { sampler: { type: 'const', param: 1 } },
  },
  'background_updates.background_update_duration_ms': 500,
  'background_updates.sleep_enabled': false,
  'background_updates.sleep_duration_ms': 300,
  'background_updates.min_batch_size': 10,
  'background_updates.default_batch_size': 50,
  'task_scheduler.max_concurrent_tasks': 3,
  // Workers.
  worker_replication_secret: 'x',
  worker_replication_secret_path: secretFile,
  start_pushers: true,
  pusher_instances: ['master'],
  send_federation: true,
  federation_sender_instances: ['master'],
  instance_map: { main: { host: 'localhost', port: 8030 } },
  'stream_writers.events': 'master',
  'stream_writers.push_rules': 'master',
  'stream_writers.presence': 'master',
  'stream_writers.receipts': 'master',
  'stream_writers.account_data': 'master',
  'stream_writers.to_device': 'master',
  'stream_writers.typing': 'master',
  'stream_writers.thread_subscriptions': 'master',
  'stream_writers.quarantined_media_changes': 'master',
  'stream_writers.device_lists': 'master',
  outbound_federation_restricted_to: () => ({
    outbound_federation_restricted_to: ['main'],
    instance_map: { main: { host: 'localhost', port: 8030 } },
    worker_replication_secret: 'x',
  }),
  worker_listeners: [{ ...listener, port: 8009 }],
  worker_manhole: 9001,
  worker_daemonize: false,
  worker_pid_file: '/run/worker.pid',
  worker_log_config: logFile,
  worker_name: 'one',
  run_background_tasks_on: 'main',
  update_user_directory_from_worker: 'main',
  notify_appservices_from_worker: 'main',
  update_user_directory: true,
  notify_appservices: true,
  redis: () => ({
    redis: { ...redis, host: 'localhost', port: 6379, password: 'x', username: 'x', dbid: 1, use_tls: false },
    worker_replication_secret: 'x',
    database: { name: 'psycopg2', args: { dbname: 'a' } },
  }),
  // Experiments.
  'experimental.faster_joins': false,
  'experimental_features.msc3866': { enabled: true, require_approval_for_new_accounts: true },
  'experimental_features.msc4140_max_delayed_events_per_user': 10,
  'experimental_features.msc4388_mode': 'open',
};

/** Options that are refused, or ignored, each with what is said of it. */
const refused: readonly (readonly [setting: string, value: unknown, said: RegExp])[] = [
  ['log_file', '/x.log', /^error.*log_file: removed in 1\.8/],
  ['account_threepid_delegates.email', 'https://is.example', /^error.*removed in 1\.66/],
  ['trust_identity_server_for_password_resets', true, /^error.*trust_identity_server_for_password_resets/],
  ['experimental_features.groups_enabled', true, /^error.*removed in 1\.61/],
  ['experimental_features.msc3861', { enabled: true }, /^error.*removed in 1\.157/],
  ['experimental_features.msc1767_enabled', true, /^error.*msc1767_enabled/],
  ['experimental_features.msc4242_enabled', true, /^error.*msc4242_enabled/],
  ['redis.username', 'x', /^error.*redis.username: needs redis\.password/],
  ['worker_replication_host', 'x', /^error.*removed in 1\.88/],
  ['worker_replication_http_port', 1, /^error.*removed in 1\.88/],
  ['worker_replication_http_tls', true, /^error.*removed in 1\.88/],
  ['worker_replication_port', 1, /^error.*removed in 1\.67/],
  ['enable_legacy_metrics', true, /^warning.*enable_legacy_metrics/],
  ['worker_main_http_uri', 'http://x', /^warning.*worker_main_http_uri/],
  ['invite_3pid_guest', true, /invite_3pid_guest/],
  ['replication_torture_level', 1, /^warning.*replication_torture_level/],
  ['password_providers', [{ module: 'x', config: {} }], /password_providers/],
  ['ldap_config', { enabled: true }, /^error.*ldap_config: .*rookery module suggest/],
  ['ldap_config', { enabled: false, uri: 'ldap://x' }, /^warning.*ldap_config: deprecated/],
  ['spam_checker', { module: 'x', config: {} }, /spam_checker/],
  ['third_party_event_rules', { module: 'x', config: {} }, /third_party_event_rules/],
  ['structured', true, /structured/],
  ['drains', {}, /drains/],
  ['worker_app', 'synapse.app.generic_worker', /^error.*worker_app/],
  ['start_pushers', false, /^error.*start_pushers/],
  ['pusher_instances', ['one'], /^error.*pusher_instances/],
  ['stream_writers.events', ['one'], /^error.*stream_writers\.events/],
  ['rc_message', { per_second: 'much' }, /^error.*rc_message/],
];

/** What the section of an option takes as a whole. */
function written(setting: string, value: unknown): Given {
  if (typeof value === 'function') return (value as () => Given)();
  return setting.split('.').reduceRight<unknown>((inner, part) => ({ [part]: inner }), value) as Given;
}

const file = join(folder, 'homeserver.yaml');
const problemsOf = (settings: Given): string[] => {
  writeFileSync(file, stringify({ server_name: 'example.org', report_stats: false, ...settings }));
  return checkConfig([file]).problems.map(({ level, setting, message }) => `${level} ${setting}: ${message}`);
};

it('every option that operators of the field bring along is accepted, with a word at most on what to write instead', () => {
  const wrong = Object.entries(options).flatMap(([setting, value]) => {
    const said = problemsOf(written(setting, value)).filter((one) => /^error|unknown|not a setting/.test(one));
    return said.length === 0 ? [] : [[setting, ...said]];
  });
  expect(wrong).toEqual([]);
});

it.each(refused)('%s is refused or ignored, and told why', (setting, value, said) => {
  expect(problemsOf(written(setting, value)).filter((one) => said.test(one))).not.toEqual([]);
});

it('every experiment is accepted, or refused and told why', () => {
  const told = new Set(refused.map(([setting]) => setting));
  for (const name of settingNames.filter((one) => one.startsWith('experimental_features.msc'))) {
    if (told.has(name) || name in options || name.endsWith('_endpoint') || !name.endsWith('_enabled')) continue;
    const needs = { experimental_features: { [name.split('.')[1] ?? '']: true, msc3391_enabled: true } };
    const said = problemsOf({ ...needs, matrix_authentication_service: matrixAuth });
    expect([name, said.filter((one) => /^error|unknown/.test(one))]).toEqual([name, []]);
  }
});

it('has a row for every setting but those that are here alone', () => {
  const known = [...Object.keys(options), ...refused.map(([setting]) => setting)];
  const sections = new Set(known.filter((setting) => typeof options[setting] === 'function'));
  const isKnown = (name: string): boolean =>
    known.some((setting) => name === setting || name.startsWith(`${setting}.`) || setting.startsWith(`${name}.`)) ||
    sections.has(name.split('.')[0] ?? '');
  const others = settingNames.filter((name) => !isKnown(name) && !name.startsWith('experimental_features.'));
  // `server_name` is in every file of this page; the others are of this server.
  expect(others).toEqual([
    ...['server_name', 'protocol_prefix', 'service_prefix', 'federation.max_state_events', 'log_level', 'log_format'],
    ...[
      'log_slow_requests',
      'log_slow_queries',
      'remote_media_downloads_per_server',
      'remote_media_downloads_per_user',
    ],
    ...['max_account_data_size', 'rc_ui_auth', 'processes.address', 'processes.tls'],
  ]);
});
