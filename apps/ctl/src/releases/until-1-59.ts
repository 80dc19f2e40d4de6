import {
  appservices,
  change,
  given,
  holds,
  isTrue,
  listenersWith,
  missing,
  modules,
  newer,
  node,
  ownTemplates,
  postgres,
  type Release,
  sqlite,
  workers,
} from './register.js';

/** From 1.32 to 1.59. */
export const until159: readonly Release[] = [
  {
    version: '1.32',
    changes: [
      change('platform', 'Python 3.6', 'Minimum Python is 3.6.', node),
      change('platform', 'PostgreSQL 9.6', 'Minimum PostgreSQL is 9.6.', { ...newer, ...postgres }),
      change('platform', 'SQLite 3.22', 'Minimum SQLite is 3.22.', { ...newer, ...sqlite }),
      change('endpoint', 'GET /_synapse/admin/v1/users/<user_id>', 'The v1 form that lists accounts is removed.', {
        remedy: 'Use GET /_synapse/admin/v2/users.',
      }),
      change(
        'endpoint',
        'm.login.application_service',
        'Application services must send this type when they register users: enforced.',
        { remedy: 'Upgrade bridges that do not.', ...appservices },
      ),
      change(
        'metrics',
        'regression of 1.32.0',
        'Overwhelms connected metrics collectors. The remedy is to downgrade to 1.31.0 and then remove excess write-ahead logs of the collector.',
        { remedy: 'rookery rollback apply 1.32.0 --collector-data FOLDER', ...holds('enable_metrics', isTrue) },
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
        { remedy: 'Add it to your folder of templates.', ...given('account_validity') },
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
        { remedy: 'Rename it.', ...given('room_invite_state_types') },
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
        { remedy: 'List modules under modules.', ...given('spam_checker') },
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
        { remedy: 'Make room on the disk.', here: 'No such update.', ...postgres },
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
        { remedy: 'List the module under modules.', ...given('third_party_event_rules') },
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
          remedy: 'Put the templates into one folder and name it there.',
          ...given('sso.template_dir', 'account_validity.template_dir', 'email.template_dir'),
        },
      ),
      change(
        'behaviour',
        'http_proxy, https_proxy, no_proxy',
        'The proxy also covers outbound federation, remote media downloads and fetching public keys of other servers.',
        { remedy: 'Add to no_proxy what must be reached directly.' },
      ),
      change(
        'endpoint',
        'DELETE /_synapse/admin/v1/users/{userId}/media',
        "Deletes a user's media; it must be served by media repository workers, since it modifies the media store. The endpoint also has a GET method.",
        { remedy: 'Route it to them.', ...workers },
      ),
    ],
  },
  {
    version: '1.42',
    changes: [
      change('endpoint', 'POST /_synapse/admin/v1/purge_room', 'Removed; use the Delete Room API.', {
        remedy: 'DELETE /_synapse/admin/v2/rooms/{roomId}',
      }),
      change('endpoint', 'POST /_synapse/admin/v1/shutdown_room/<room_id>', 'Removed; use the Delete Room API.', {
        remedy: 'DELETE /_synapse/admin/v2/rooms/{roomId}',
      }),
      change(
        'template',
        'recaptcha.html, terms.html',
        'The reCAPTCHA and terms fallback pages, templates of UI auth, get a variable error, present when user-interactive authentication failed.',
        { remedy: 'Show it.', ...ownTemplates },
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
        { remedy: 'Delete them at the providers.', ...given('media_storage_providers') },
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
        { remedy: 'Upgrade the provider.', ...given('media_storage_providers') },
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
        { remedy: 'DELETE /_synapse/admin/v2/rooms/{roomId}' },
      ),
      change(
        'module',
        'user_may_create_room_with_invites',
        'Deprecated. Replace with user_may_invite plus the module API method get_room_state, or with on_create_room.',
        { remedy: 'Change the module.', ...modules },
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
        { remedy: 'Serve the web client elsewhere.', ...listenersWith((listener) => listener['type'] === 'webclient') },
      ),
    ],
  },
  {
    version: '1.53',
    changes: [
      change('setting', 'listeners[].type: webclient', 'The webclient listener is removed: a configuration error.', {
        remedy: 'Remove the listener.',
        ...listenersWith((listener) => listener['type'] === 'webclient'),
      }),
      change(
        'setting',
        'web_client_location',
        'A value that is no HTTP(S) URL is a configuration error; it applies to the path / only.',
        { remedy: 'Name a URL.', ...given('web_client_location') },
      ),
      change(
        'endpoint',
        'GET /_matrix/client/v1/register/m.login.registration_token/validity',
        'Checks a registration token: stabilised. The old path is /_matrix/client/unstable/org.matrix.msc3231/register/org.matrix.msc3231.login.registration_token/validity.',
      ),
      change('setting', 'caches.expire_caches', 'Time-based cache expiry is on by default.', {
        remedy: 'Set it to false to keep entries.',
        ...missing('caches.expire_caches'),
      }),
      change(
        'setting',
        'caches.cache_entry_ttl',
        'A cache entry expires after 30m of not being accessed. Replaces expiry_time, which still works but is deprecated.',
        { remedy: 'Rename caches.expiry_time.', ...given('caches.expiry_time') },
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
        remedy: 'Use handlers with a JSON formatter in log_config.',
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
        { remedy: 'Call synctl restart instead of ./synctl restart.' },
      ),
      change('module', 'user_may_create_room_with_invites', 'Removed.', { remedy: 'Change the module.', ...modules }),
      change(
        'module',
        'third-party module rules callback',
        'A removal: callbacks of third-party event rules modules lose what was deprecated.',
        { remedy: 'Upgrade the module.', ...given('third_party_event_rules', 'modules') },
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
        { remedy: 'Add a verification, or set it to true.', ...holds('enable_registration', isTrue) },
      ),
      change(
        'setting',
        'allow_unsafe_locale',
        'An unsafe locale is refused: the service refuses to start on PostgreSQL with a COLLATE and CTYPE other than C unless this is true in the database section.',
        {
          remedy: 'Make the database anew with the C locale.',
          look: {
            tables: [],
            sql: {
              postgres:
                "SELECT COUNT(*) AS found FROM pg_database WHERE datname = current_database() AND (datcollate NOT IN ('C', 'POSIX') OR datctype NOT IN ('C', 'POSIX'))",
            },
          },
          ...postgres,
        },
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
          remedy: 'rookery doctor --repair sets it.',
          look: {
            tables: ['application_services_txns'],
            sql: {
              postgres:
                'SELECT COUNT(*) AS found FROM application_services_txns WHERE txn_id > (SELECT last_value FROM application_services_txn_id_seq)',
              sqlite:
                "SELECT COUNT(*) AS found FROM application_services_txns WHERE txn_id > COALESCE((SELECT stream_id FROM stream_positions WHERE stream_name = 'application_services_txn_id_seq'), 0)",
            },
          },
          ...appservices,
        },
      ),
    ],
  },
  {
    version: '1.58',
    changes: [
      change('setting', 'experimental_features.groups_enabled', 'Groups are off: disabled by default.', {
        remedy: 'Move to spaces.',
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
        { remedy: 'Set it to true to show names.', ...missing('allow_device_name_lookup_over_federation') },
      ),
      change(
        'workers',
        'notify_appservices_from_worker, update_user_directory_from_worker',
        'Take the name of a worker and replace notify_appservices and update_user_directory, which are deprecated and must not contradict the new options: else the server refuses to start. The worker types appservice and user_dir are deprecated.',
        { remedy: 'Name a generic worker.', ...given('notify_appservices', 'update_user_directory') },
      ),
    ],
  },
];
