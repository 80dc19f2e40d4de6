import {
  appservices,
  change,
  given,
  holds,
  listenersWith,
  missing,
  modules,
  ownTemplates,
  postgres,
  type Release,
  sqlite,
  workers,
} from './register.js';

const isTrue = (value: unknown): boolean => value === true;
const node = { here: 'Rookery runs on Node.js.' };
const rust = { here: 'Rookery is built without Rust.' };
const newer = { here: 'Rookery says at the start when the database is too old.' };
const spam = 'Returns NOT_SPAM or an error code, synapse.module_api.errors.Codes.<NAME> (for example FORBIDDEN)';

/** From 1.32 to 1.90. */
export const until190: readonly Release[] = [
  {
    version: '1.32',
    changes: [
      change('platform', 'Python 3.6', 'Minimum Python is 3.6.', node),
      change('platform', 'PostgreSQL 9.6', 'Minimum PostgreSQL is 9.6.', { ...newer, ...postgres }),
      change('platform', 'SQLite 3.22', 'Minimum SQLite is 3.22.', { ...newer, ...sqlite }),
      change('endpoint', 'GET /_synapse/admin/v1/users/<user_id>', 'The v1 form that lists accounts is removed.', {
        todo: 'Use GET /_synapse/admin/v2/users.',
      }),
      change(
        'endpoint',
        'm.login.application_service',
        'Application services must send this type when they register users: enforced.',
        { todo: 'Upgrade bridges that do not.', ...appservices },
      ),
      change(
        'metrics',
        'regression of 1.32.0',
        'Overwhelms connected metrics collectors. The remedy is to downgrade to 1.31.0 and then remove excess write-ahead logs of the collector.',
        { todo: 'rookery rollback apply 1.32.0 --collector-data FOLDER', ...holds('enable_metrics', isTrue) },
      ),
    ],
  },
  {
    version: '1.33',
    changes: [
      change(
        'template',
        'expiration_ts',
        'Account validity renewal pages get this integer: the Unix timestamp in milliseconds of the date until which the account is renewed.',
        { ...given('account_validity') },
      ),
      change(
        'template',
        'account_previously_renewed.html',
        'Shown, with expiration_ts, when a valid renewal token is used again; it replaces the former error message.',
        { todo: 'Add it to your folder of templates.', ...given('account_validity') },
      ),
    ],
  },
  {
    version: '1.34',
    changes: [
      change(
        'setting',
        'room_prejoin_state',
        'Replaces room_invite_state_types, whose old default was m.room.join_rules, m.room.canonical_alias, m.room.avatar, m.room.encryption, m.room.name.',
        { todo: 'Rename it.', ...given('room_invite_state_types') },
      ),
    ],
  },
  {
    version: '1.37',
    changes: [
      change(
        'module',
        'modules',
        'A generic modules system is introduced. The legacy spam checker interface is deprecated; its removal is planned for August 2021.',
        { todo: 'List modules under modules.', ...given('spam_checker') },
      ),
    ],
  },
  {
    version: '1.38',
    changes: [
      change(
        'database',
        'events',
        'Re-indexing of the events table in the background, to widen stream_ordering. Disk need on PostgreSQL: 4 times the size of one index, e.g. events_order_room; SQLite is unaffected.',
        { todo: 'Make room on the disk.', here: 'No such update.', ...postgres },
      ),
    ],
  },
  {
    version: '1.39',
    changes: [
      change(
        'module',
        'third_party_event_rules',
        'The legacy third-party rules interface is deprecated, superseded by the generic modules system of 1.37; its removal is planned for September 2021.',
        { todo: 'List the module under modules.', ...given('third_party_event_rules') },
      ),
    ],
  },
  {
    version: '1.41',
    changes: [
      change(
        'setting',
        'templates.custom_template_directory',
        'Replaces template_dir in the sections sso, account_validity and email, which are deprecated with removal planned for October 2021.',
        {
          todo: 'Put the templates into one folder and name it there.',
          ...given('sso.template_dir', 'account_validity.template_dir', 'email.template_dir'),
        },
      ),
      change(
        'behaviour',
        'http_proxy, https_proxy, no_proxy',
        'The proxy also covers outbound federation, remote media downloads and fetching public keys of other servers.',
        { todo: 'Add to no_proxy what must be reached directly.' },
      ),
      change(
        'endpoint',
        'DELETE /_synapse/admin/v1/users/{userId}/media',
        "Deletes a user's media; it must be served by media repository workers, since it modifies the media store. The endpoint also has a GET method.",
        { todo: 'Route it to them.', ...workers },
      ),
    ],
  },
  {
    version: '1.42',
    changes: [
      change('endpoint', 'POST /_synapse/admin/v1/purge_room', 'Removed; use the Delete Room API.', {
        todo: 'DELETE /_synapse/admin/v2/rooms/{roomId}',
      }),
      change('endpoint', 'POST /_synapse/admin/v1/shutdown_room/<room_id>', 'Removed; use the Delete Room API.', {
        todo: 'DELETE /_synapse/admin/v2/rooms/{roomId}',
      }),
      change(
        'template',
        'recaptcha.html, terms.html',
        'The reCAPTCHA and terms fallback pages, templates of UI auth, get a variable error, present when user-interactive authentication failed.',
        { todo: 'Show it.', ...ownTemplates },
      ),
      change(
        'behaviour',
        'email pushers',
        'Out-of-date email pushers are removed: those for addresses that their account does not have any more.',
        { ...given('email') },
      ),
    ],
  },
  {
    version: '1.43',
    changes: [
      change(
        'workers',
        '/spaces, /hierarchy, /summary',
        'Client and federation requests for these may be routed to workers.',
        { ...workers },
      ),
    ],
  },
  {
    version: '1.44',
    changes: [
      change(
        'behaviour',
        'url_cache/, url_cache_thumbnails/',
        'The cache of URL previews is not mirrored to storage providers; these folders may be deleted there.',
        { todo: 'Delete them at the providers.', ...given('media_storage_providers') },
      ),
    ],
  },
  {
    version: '1.45',
    changes: [
      change(
        'module',
        'media storage provider modules',
        'Configuration values are read from a section, for example hs.config.media.media_store_path: module config sections.',
        { todo: 'Upgrade the provider.', ...given('media_storage_providers') },
      ),
    ],
  },
  {
    version: '1.47',
    changes: [
      change(
        'endpoint',
        'POST /_synapse/admin/v1/<room_id>/delete',
        'The old room admin API is removed; use the Delete Room API.',
        { todo: 'DELETE /_synapse/admin/v2/rooms/{roomId}' },
      ),
      change(
        'module',
        'user_may_create_room_with_invites',
        'Deprecated. Replace with user_may_invite plus the module API method get_room_state, or with on_create_room.',
        { todo: 'Change the module.', ...modules },
      ),
    ],
  },
  {
    version: '1.50',
    changes: [
      change('platform', 'Python 3.7', 'Minimum Python is 3.7.', node),
      change('platform', 'PostgreSQL 10', 'Minimum PostgreSQL is 10.', { ...newer, ...postgres }),
    ],
  },
  {
    version: '1.51',
    changes: [
      change(
        'setting',
        'listeners[].type: webclient',
        'Deprecated, with a web_client_location that is no HTTP(S) address.',
        { todo: 'Serve the web client elsewhere.', ...listenersWith((listener) => listener['type'] === 'webclient') },
      ),
    ],
  },
  {
    version: '1.53',
    changes: [
      change('setting', 'listeners[].type: webclient', 'The webclient listener is removed: a configuration error.', {
        todo: 'Remove the listener.',
        ...listenersWith((listener) => listener['type'] === 'webclient'),
      }),
      change(
        'setting',
        'web_client_location',
        'A value that is no HTTP(S) URL is a configuration error; it applies to the path / only.',
        { todo: 'Name a URL.', ...given('web_client_location') },
      ),
      change(
        'endpoint',
        'GET /_matrix/client/v1/register/m.login.registration_token/validity',
        'Checks a registration token: stabilised. The old path is /_matrix/client/unstable/org.matrix.msc3231/register/org.matrix.msc3231.login.registration_token/validity.',
      ),
      change('setting', 'caches.expire_caches', 'Time-based cache expiry is on by default.', {
        todo: 'Set it to false to keep entries.',
        ...missing('caches.expire_caches'),
      }),
      change(
        'setting',
        'caches.cache_entry_ttl',
        'A cache entry expires after 30m of not being accessed. Replaces expiry_time, which still works but is deprecated.',
        { todo: 'Rename caches.expiry_time.', ...given('caches.expiry_time') },
      ),
      change(
        'endpoint',
        'm.set_displayname, m.set_avatar_url, m.3pid_changes',
        'Capabilities stabilised: stable and active by default. org.matrix.msc3283.set_displayname, org.matrix.msc3283.set_avatar_url and org.matrix.msc3283.3pid_changes are deprecated, scheduled for removal in 1.54.0.',
      ),
    ],
  },
  {
    version: '1.54',
    changes: [
      change('setting', 'structured: true, drains', 'Legacy structured logging is removed.', {
        todo: 'Use handlers with a JSON formatter in log_config.',
        ...given('log_config'),
      }),
      change(
        'endpoint',
        'org.matrix.msc3283.set_displayname, org.matrix.msc3283.set_avatar_url, org.matrix.msc3283.3pid_changes',
        'These deprecated capabilities are scheduled for removal here.',
      ),
    ],
  },
  {
    version: '1.55',
    changes: [
      change(
        'behaviour',
        'synctl',
        'An entry point that must be on PATH; before it was the script ./synctl in the root of the source tree.',
        { todo: 'Call synctl restart instead of ./synctl restart.' },
      ),
      change('module', 'user_may_create_room_with_invites', 'Removed.', { todo: 'Change the module.', ...modules }),
      change(
        'module',
        'third-party module rules callback',
        'A removal: callbacks of third-party event rules modules lose what was deprecated.',
        { todo: 'Upgrade the module.', ...given('third_party_event_rules', 'modules') },
      ),
    ],
  },
  {
    version: '1.56',
    changes: [
      change(
        'setting',
        'enable_registration_without_verification',
        'Open registration is refused at startup: the service refuses to start with registration enabled and no email, captcha or token verification, unless this is true.',
        { todo: 'Add a verification, or set it to true.', ...holds('enable_registration', isTrue) },
      ),
      change(
        'setting',
        'allow_unsafe_locale',
        'An unsafe locale is refused: the service refuses to start on PostgreSQL with a COLLATE and CTYPE other than C unless this is true in the database section.',
        { todo: 'Make the database anew with the C locale.', ...postgres },
      ),
    ],
  },
  {
    version: '1.57',
    changes: [
      change(
        'database',
        'application_services_txns, application_services_txn_id_seq',
        'Application-service transaction ids changed: a sequence gives them. Stop the application-service worker during the schema upgrade. A sequence that is inconsistent with the txn table is a startup error: stop all processes, set the sequence to the greater of 0 and the maximum txn_id, restart.',
        {
          todo: 'rookery doctor --mend sets it.',
          query: 'SELECT MAX(txn_id) FROM application_services_txns',
          ...appservices,
        },
      ),
    ],
  },
  {
    version: '1.58',
    changes: [
      change('setting', 'experimental_features.groups_enabled', 'Groups are off: disabled by default.', {
        todo: 'Move to spaces.',
        ...given('experimental_features.groups_enabled'),
      }),
    ],
  },
  {
    version: '1.59',
    changes: [
      change(
        'setting',
        'allow_device_name_lookup_over_federation',
        'Off by default: device names are hidden from other servers; device ids stay visible.',
        { todo: 'Set it to true to show names.', ...missing('allow_device_name_lookup_over_federation') },
      ),
      change(
        'workers',
        'notify_appservices_from_worker, update_user_directory_from_worker',
        'Take the name of a worker and replace notify_appservices and update_user_directory, which are deprecated and must not contradict the new options: else the server refuses to start. The worker types appservice and user_dir are deprecated.',
        { todo: 'Name a generic worker.', ...given('notify_appservices', 'update_user_directory') },
      ),
    ],
  },
  {
    version: '1.60',
    changes: [
      change(
        'database',
        'state_group_edges',
        'Gets a unique index. Its creation fails with duplicates: remove duplicate rows, keeping one per pair of state_group and prev_state_group, then retry.',
        {
          todo: 'Rookery finds and removes them by itself, in the background.',
          query:
            'SELECT COUNT(*) FROM (SELECT 1 FROM state_group_edges GROUP BY state_group, prev_state_group HAVING COUNT(*) > 1) AS doubled',
        },
      ),
    ],
  },
  {
    version: '1.61',
    changes: [
      change(
        'endpoint',
        'groups',
        'The groups feature is removed, with experimental_features.groups_enabled. Worker routes with these patterns no longer exist: ^/_matrix/federation/v1/get_groups_publicised$, ^/_matrix/client/(r0|v3|unstable)/joined_groups$, ^/_matrix/client/(r0|v3|unstable)/publicised_groups$, ^/_matrix/client/(r0|v3|unstable)/publicised_groups/, ^/_matrix/federation/v1/groups/, ^/_matrix/client/(r0|v3|unstable)/groups/',
        {
          todo: 'Remove them from the proxy, and the setting.',
          ...given('experimental_features.groups_enabled', 'enable_group_creation'),
        },
      ),
    ],
  },
  {
    version: '1.62',
    changes: [
      change(
        'module',
        'check_event_for_spam',
        `Spam-callback signatures changed. Takes an event. ${spam}; the old return of str or bool is deprecated.`,
        { todo: 'Change the module.', ...modules },
      ),
      change(
        'module',
        'user_may_join_room(user_id: str, room_id: str, is_invited: bool)',
        `${spam}: the same return rule; the old bool signature is deprecated.`,
        { todo: 'Change the module.', ...modules },
      ),
      change(
        'module',
        'user_may_invite, user_may_send_3pid_invite, user_may_create_room, user_may_create_room_alias, user_may_publish_room, check_media_file_for_spam',
        `${spam}: the same return rule; the old bool signature is deprecated. A rejection by a module spam callback is answered with its error code; FORBIDDEN is the generic one.`,
        { todo: 'Change the module.', ...modules },
      ),
    ],
  },
  {
    version: '1.64',
    changes: [
      change('setting', 'account_threepid_delegates.email', 'Delegation of email verification is deprecated.', {
        todo: 'Set up the email section.',
        ...given('account_threepid_delegates.email'),
      }),
      change(
        'workers',
        'events stream',
        'The stream of events adds an outlier flag: incompatible in both directions with the adjacent release.',
        { todo: 'Stop all workers, upgrade all.', ...workers },
      ),
    ],
  },
  {
    version: '1.66',
    changes: [
      change(
        'setting',
        'account_threepid_delegates.email',
        'Email delegation is removed: setting it is a startup error. Phone verification can be delegated with account_threepid_delegates.msisdn only.',
        { todo: 'Remove it and set up the email section.', ...given('account_threepid_delegates.email') },
      ),
      change(
        'setting',
        'email',
        'The service verifies emails itself: a working email server is required, with smtp_host, smtp_port and notif_from (needed); smtp_user, smtp_pass and require_transport_security are optional.',
        { todo: 'Check it: rookery doctor', ...given('email') },
      ),
    ],
  },
  {
    version: '1.67',
    changes: [
      change('workers', 'worker_replication_port', 'Removed with direct TCP replication.', {
        todo: 'Remove it and the listener of type replication.',
        ...given('worker_replication_port'),
      }),
      change(
        'workers',
        'redis',
        'The section is required for worker replication: Redis required. A replication HTTP listener is still required.',
        { todo: 'Set up Redis.', ...workers },
      ),
      change('platform', 'poetry 1.2.0', 'Minimum poetry is 1.2.0.', node),
    ],
  },
  {
    version: '1.68',
    changes: [
      change('platform', 'SQLite 3.27.0', 'Minimum SQLite is 3.27.0 (3.22 before).', { ...newer, ...sqlite }),
      change(
        'platform',
        'Rust 1.58.1',
        'Rust requirement: building from source needs a Rust compiler, at least 1.58.1.',
        rust,
      ),
    ],
  },
  {
    version: '1.69',
    changes: [
      change(
        'workers',
        'receipts stream',
        'The receipts stream changed: adds whether a receipt applies to a thread. Incompatible in both directions with the adjacent release.',
        { todo: 'Stop all workers, upgrade all.', ...workers },
      ),
      change('metrics', 'legacy metrics', 'Deprecation of legacy metric names.', {
        todo: 'Change dashboards and rules.',
        ...holds('enable_metrics', isTrue),
      }),
    ],
  },
  {
    version: '1.70',
    changes: [
      change(
        'endpoint',
        'Authorization',
        'The application-service token is sent in the header Authorization; another note says 1.71.0.',
        { todo: 'Upgrade bridges.', ...appservices },
      ),
    ],
  },
  {
    version: '1.71',
    changes: [
      change('setting', 'enable_legacy_metrics', 'Legacy metric names are off by default; they were on until 1.70.', {
        todo: 'Change dashboards and rules.',
        ...holds('enable_metrics', isTrue),
      }),
      change(
        'behaviour',
        'namespaces.users',
        'Application-service interest rules: user interest is local only, the regex of the users namespace is applied to local users. A room or alias namespace match makes all events in the room interesting; an interesting local user in a room makes all events in it interesting.',
        { ...appservices },
      ),
      change(
        'module',
        'create_login_token(user_id: str, duration_in_ms: int = 120000, auth_provider_id: Optional[str] = None, auth_provider_session_id: Optional[str] = None)',
        'Async, returns str; the login token lasts 2*60*1000 ms by default. Replaces generate_short_term_login_token, which is removed.',
        { todo: 'Change the module.', ...modules },
      ),
    ],
  },
  {
    version: '1.72',
    changes: [change('platform', 'PostgreSQL 11', 'Minimum PostgreSQL is 11.', { ...newer, ...postgres })],
  },
  {
    version: '1.73',
    changes: [
      change('setting', 'enable_legacy_metrics', 'Legacy metric names and this option are removed.', {
        todo: 'Remove it.',
        ...given('enable_legacy_metrics'),
      }),
    ],
  },
  {
    version: '1.74',
    changes: [
      change(
        'database',
        'user-search',
        'Optional improved Unicode user search: the extra user-search needs an ICU dependency. Queues a background rebuild of the user directory; lookups are incomplete until it is done, which the background-update admin API shows (monitor GET /_synapse/admin/v1/background_updates/status).',
        { here: 'Unicode search needs no extra.' },
      ),
    ],
  },
  {
    version: '1.76',
    changes: [
      change(
        'setting',
        'experimental.faster_joins',
        'Faster joins are on by default (partial join on first join); false opts out.',
        { todo: 'With workers: route the new paths.', ...given('experimental.faster_joins') },
      ),
      change(
        'workers',
        'account data and devices streams',
        'Their format changed: incompatible in both directions with the adjacent release. Replication resumes when all workers run the same release.',
        { todo: 'Stop all workers, upgrade all.', ...workers },
      ),
      change('platform', 'poetry 1.3.2', 'Minimum poetry is 1.3.2.', node),
    ],
  },
  {
    version: '1.78',
    changes: [
      change(
        'endpoint',
        'POST /_synapse/admin/v1/media/delete',
        'The media delete admin path is replaced: identical to the deprecated form /_synapse/admin/v1/media/<server_name>/delete.',
        { todo: 'Change scripts.' },
      ),
    ],
  },
  {
    version: '1.79',
    changes: [
      change(
        'module',
        'on_threepid_bind',
        'Deprecated in favour of on_add_user_third_party_identifier, which has the same arguments.',
        { todo: 'Change the module.', ...modules },
      ),
      change(
        'module',
        'on_remove_user_third_party_identifier',
        'Added; called when a user removes a third-party identifier.',
        { ...modules },
      ),
    ],
  },
  {
    version: '1.80',
    changes: [
      change(
        'endpoint',
        'POST /_matrix/client/v3/rooms/{roomId}/report/{eventId}',
        'Reports an event. The error for a report of an event that the user cannot access is 404 (was 403).',
        { todo: 'Look into clients and tools that ask for 403.' },
      ),
    ],
  },
  {
    version: '1.81',
    changes: [
      change(
        'behaviour',
        'application service callbacks',
        'The service tries versioned application-service paths first, before it falls back to legacy paths. Legacy routes are deprecated; their removal is announced for 1.88.0 or later.',
        { todo: 'Upgrade bridges that answer unknown paths with something else than 404.', ...appservices },
      ),
    ],
  },
  {
    version: '1.84',
    changes: [
      change(
        'workers',
        'instance_map',
        'A map of instance name to host, port and tls (optional, mirrors the old TLS setting). The entry named main describes the main process; required when any worker is used.',
        { todo: 'Add main to instance_map.', ...workers },
      ),
      change(
        'workers',
        'worker_replication_host, worker_replication_http_port, worker_replication_http_tls',
        'Deprecated: worker_replication_* give way to instance_map.',
        {
          todo: 'Remove them.',
          ...given('worker_replication_host', 'worker_replication_http_port', 'worker_replication_http_tls'),
        },
      ),
    ],
  },
  {
    version: '1.85',
    changes: [
      change(
        'endpoint',
        'user, in the body of /register',
        'This legacy, unspecified property is deprecated; username is the standard one.',
        { todo: 'Upgrade bridges.', ...appservices },
      ),
    ],
  },
  {
    version: '1.86',
    changes: [change('platform', 'Rust 1.60.0', 'Minimum Rust compiler is 1.60.0 for source builds.', rust)],
  },
  {
    version: '1.88',
    changes: [
      change('platform', 'Python 3.8', 'Minimum Python is 3.8.', node),
      change(
        'workers',
        'worker_replication_host, worker_replication_http_port, worker_replication_http_tls',
        'The settings worker_replication_* are removed.',
        {
          todo: 'Remove them; name main in instance_map.',
          ...given('worker_replication_host', 'worker_replication_http_port', 'worker_replication_http_tls'),
        },
      ),
    ],
  },
  {
    version: '1.89',
    changes: [
      change(
        'endpoint',
        'user, in the body of /register',
        'The property is removed for application-service registration: no longer accepted. username is required.',
        { todo: 'Upgrade bridges.', ...appservices },
      ),
    ],
  },
  {
    version: '1.90',
    schema: { version: 80, servedFrom: 76 },
    changes: [
      change(
        'setting',
        'use_appservice_legacy_authorization',
        'Legacy application-service query-parameter authorization is behind this option, false by default: the token goes into the header Authorization; sending it also as query parameter access_token is legacy and insecure. Its removal was announced for 1.88.0 or later.',
        { todo: 'Upgrade bridges; until then set it to true.', ...appservices },
      ),
    ],
  },
];
