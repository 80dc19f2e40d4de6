import {
  appservices,
  change,
  given,
  holds,
  isTrue,
  look,
  modules,
  newer,
  node,
  postgres,
  type Release,
  rust,
  sqlite,
  workers,
} from './register.js';

const spam = 'Returns NOT_SPAM or an error code, synapse.module_api.errors.Codes.<NAME> (for example FORBIDDEN)';

/** From 1.60 to 1.90. */
export const until190: readonly Release[] = [
  {
    version: '1.60',
    changes: [
      change(
        'database',
        'state_group_edges',
        'Gets a unique index. Its creation fails with duplicates: remove duplicate rows, keeping one per pair of state_group and prev_state_group, then retry.',
        {
          remedy: 'Rookery finds and removes them by itself, in the background.',
          ...look(
            ['state_group_edges'],
            'SELECT COUNT(*) AS found FROM (SELECT 1 FROM state_group_edges GROUP BY state_group, prev_state_group HAVING COUNT(*) > 1) AS doubled',
          ),
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
          remedy: 'Remove them from the proxy, and the setting.',
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
        { remedy: 'Change the module.', ...modules },
      ),
      change(
        'module',
        'user_may_join_room(user_id: str, room_id: str, is_invited: bool)',
        `${spam}: the same return rule; the old bool signature is deprecated.`,
        { remedy: 'Change the module.', ...modules },
      ),
      change(
        'module',
        'user_may_invite, user_may_send_3pid_invite, user_may_create_room, user_may_create_room_alias, user_may_publish_room, check_media_file_for_spam',
        `${spam}: the same return rule; the old bool signature is deprecated. A rejection by a module spam callback is answered with its error code; FORBIDDEN is the generic one.`,
        { remedy: 'Change the module.', ...modules },
      ),
    ],
  },
  {
    version: '1.64',
    changes: [
      change('setting', 'account_threepid_delegates.email', 'Delegation of email verification is deprecated.', {
        remedy: 'Set up the email section.',
        ...given('account_threepid_delegates.email'),
      }),
      change(
        'workers',
        'events stream',
        'The stream of events adds an outlier flag: incompatible in both directions with the adjacent release.',
        { remedy: 'Stop all workers, upgrade all.', ...workers },
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
        { remedy: 'Remove it and set up the email section.', ...given('account_threepid_delegates.email') },
      ),
      change(
        'setting',
        'email',
        'The service verifies emails itself: a working email server is required, with smtp_host, smtp_port and notif_from (needed); smtp_user, smtp_pass and require_transport_security are optional.',
        { remedy: 'Check it: rookery doctor', ...given('email') },
      ),
    ],
  },
  {
    version: '1.67',
    changes: [
      change('workers', 'worker_replication_port', 'Removed with direct TCP replication.', {
        remedy: 'Remove it and the listener of type replication.',
        ...given('worker_replication_port'),
      }),
      change(
        'workers',
        'redis',
        'The section is required for worker replication: Redis required. A replication HTTP listener is still required.',
        { remedy: 'Set up Redis.', ...workers },
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
        { remedy: 'Stop all workers, upgrade all.', ...workers },
      ),
      change('metrics', 'legacy metrics', 'Deprecation of legacy metric names.', {
        remedy: 'Change dashboards and rules.',
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
        { remedy: 'Upgrade bridges.', ...appservices },
      ),
    ],
  },
  {
    version: '1.71',
    changes: [
      change('setting', 'enable_legacy_metrics', 'Legacy metric names are off by default; they were on until 1.70.', {
        remedy: 'Change dashboards and rules.',
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
        { remedy: 'Change the module.', ...modules },
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
        remedy: 'Remove it.',
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
        { remedy: 'With workers: route the new paths.', ...given('experimental.faster_joins') },
      ),
      change(
        'workers',
        'account data and devices streams',
        'Their format changed: incompatible in both directions with the adjacent release. Replication resumes when all workers run the same release.',
        { remedy: 'Stop all workers, upgrade all.', ...workers },
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
        { remedy: 'Change scripts.' },
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
        { remedy: 'Change the module.', ...modules },
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
        { remedy: 'Look into clients and tools that ask for 403.' },
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
        { remedy: 'Upgrade bridges that answer unknown paths with something else than 404.', ...appservices },
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
        { remedy: 'Add main to instance_map.', ...workers },
      ),
      change(
        'workers',
        'worker_replication_host, worker_replication_http_port, worker_replication_http_tls',
        'Deprecated: worker_replication_* give way to instance_map.',
        {
          remedy: 'Remove them.',
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
        { remedy: 'Upgrade bridges.', ...appservices },
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
          remedy: 'Remove them; name main in instance_map.',
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
        { remedy: 'Upgrade bridges.', ...appservices },
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
        { remedy: 'Upgrade bridges; until then set it to true.', ...appservices },
      ),
    ],
  },
];
