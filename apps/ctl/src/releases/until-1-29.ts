import {
  appservices,
  change,
  given,
  holds,
  isTrue,
  listenersWith,
  look,
  mail,
  missing,
  ownTemplates,
  type Release,
} from './register.js';

/** From the first releases to 1.29. */
export const until129: readonly Release[] = [
  {
    version: '0.3',
    changes: [
      change(
        'endpoint',
        'GET and POST /_matrix/client/{r0 or v3}/register',
        'Registration is interactive: GET lists the valid flows, each a list of stages; POST goes through one and returns the result of authentication.',
      ),
      change(
        'endpoint',
        'm.login.email.identity, threepidCreds',
        'The login-style stage m.login.email.identity of registration takes the object threepidCreds.',
      ),
    ],
  },
  {
    version: '0.4',
    changes: [
      change(
        'database',
        'schema',
        'Releases up to this one reset the schema and change the format of the configuration: a database of before cannot be taken along.',
        { remedy: 'Begin with an empty database and a new configuration.' },
      ),
      change('setting', 'signing_key_path', 'The signing key has another format.', {
        remedy: 'Convert the key, or let a new one be made and list the old one.',
        ...given('signing_key_path'),
      }),
    ],
  },
  {
    version: '0.9',
    changes: [
      change(
        'setting',
        'app_service_config_files',
        'Application services register only by files that this setting lists; they cannot register over HTTP any more. A file has url, as_token, hs_token, sender_localpart and namespaces.',
        { remedy: 'List the registration file of each application service.', ...appservices },
      ),
    ],
  },
  {
    version: '0.11',
    changes: [
      change('setting', 'report_stats', 'Has to be set explicitly, true or false.', {
        remedy: 'Decide and set it.',
        ...missing('report_stats'),
      }),
    ],
  },
  {
    version: '0.15',
    changes: [
      change(
        'endpoint',
        'GET /_matrix/media/r0/preview_url',
        'There are URL previews; they stay off until the configuration enables them with url_preview_enabled.',
        { ...given('url_preview_enabled') },
      ),
    ],
  },
  {
    version: '0.34',
    changes: [
      change('platform', 'Python 3', 'Python 3 is supported.', { here: 'Rookery runs on Node.js.' }),
      change('setting', 'log_config', 'A log file needs the encoding utf8 when the server runs on Python 3.', {
        remedy: 'Add encoding: utf8 to file handlers.',
        here: 'Logs are UTF-8 always; the key is accepted.',
        ...given('log_config'),
      }),
    ],
  },
  {
    version: '1.0',
    changes: [
      change(
        'setting',
        'federation_verify_certificates',
        'Certificates of other servers are validated on the federation API, unless this global switch is false.',
        {
          remedy: 'Let your own certificate be one that everybody can verify.',
          ...missing('federation_verify_certificates'),
        },
      ),
      change(
        'setting',
        'federation_certificate_verification_whitelist',
        'A list of server domains that are trusted without validation of their certificates.',
        { ...given('federation_certificate_verification_whitelist') },
      ),
      change('behaviour', 'password reset', 'The service sends the email for a password reset itself.', {
        remedy: 'Set up the email section.',
        ...missing('email'),
      }),
    ],
  },
  {
    version: '1.1',
    changes: [
      change('platform', 'Python 3.5', 'Minimum Python is 3.5.', { here: 'Rookery runs on Node.js.' }),
      change('platform', 'PostgreSQL 9.5', 'Minimum PostgreSQL is 9.5.', {
        here: 'Rookery says at the start when PostgreSQL is too old.',
        ...given('database'),
      }),
    ],
  },
  {
    version: '1.2',
    changes: [
      change('metrics', 'counters', 'Counter metrics are renamed: they end in _total.', {
        remedy: 'Change dashboards and rules.',
        ...holds('enable_metrics', isTrue),
      }),
    ],
  },
  {
    version: '1.4',
    changes: [
      change(
        'behaviour',
        '3pid verification',
        'An email address or phone number is added to an account, or used for a password reset, only after verification by a message with a link or token; that is not delegated to an identity server by default any more.',
        { remedy: 'Set up the email section, or name delegates in account_threepid_delegates.' },
      ),
      change(
        'setting',
        'account_threepid_delegates',
        'Names the identity servers that verify in place of this one: email and msisdn (phone).',
        { ...given('account_threepid_delegates') },
      ),
      change(
        'setting',
        'trust_identity_server_for_password_resets',
        'Deprecated; the dictionary of delegates account_threepid_delegates replaces it. True without a trusted identity server domain is an error, and the server refuses to start.',
        { remedy: 'Remove it.', ...given('trust_identity_server_for_password_resets') },
      ),
      change(
        'template',
        'registration.html, registration.txt, registration_failure.html, registration_success.html',
        'New templates for registration are required: with a template folder of your own that misses custom files the server refuses to start, until 1.20.',
        { remedy: 'Add them to your folder.', ...ownTemplates },
      ),
      change(
        'database',
        'rollback of 1.4.0 to 1.3.1',
        'After going back to 1.3.1 the room statistics engine stops updating; with stats.enabled false there are no error logs, and it is set to true again when upgrading anew.',
        { remedy: 'rookery rollback apply 1.4.0' },
      ),
    ],
  },
  {
    version: '1.5',
    changes: [
      change('database', 'devices', 'A migration of the devices table may take minutes.', {
        remedy: 'Plan an outage.',
        here: 'rookery upgrade check says how long each step takes.',
      }),
    ],
  },
  {
    version: '1.6',
    changes: [
      change(
        'behaviour',
        'http_proxy, https_proxy, no_proxy',
        'The environment variables for an outbound proxy hold for push, URL previews, phone-home stats, reCAPTCHA validation, CAS validation, OpenID Connect and key-revocation checks.',
        { remedy: 'Let the proxy admit what the server asks.' },
      ),
    ],
  },
  {
    version: '1.7',
    changes: [
      change(
        'setting',
        'allow_public_rooms_without_auth',
        'Default is false now: the public room directory is inverted, only logged-in users see it.',
        { remedy: 'Set it to true where everybody may look.', ...missing('allow_public_rooms_without_auth') },
      ),
      change(
        'setting',
        'allow_public_rooms_over_federation',
        'Default is false now: other servers do not see the public room directory.',
        { remedy: 'Set it to true where other servers may look.', ...missing('allow_public_rooms_over_federation') },
      ),
      change('endpoint', 'GET /_synapse/admin/v2/users', 'Lists accounts.'),
    ],
  },
  {
    version: '1.8',
    changes: [
      change('setting', 'log_file', 'The server refuses to start with it; log_config takes its place.', {
        remedy: 'Write a log_config.',
        ...given('log_file'),
      }),
    ],
  },
  {
    version: '1.10',
    changes: [
      change('database', 'locale', 'A warning is logged when the PostgreSQL database has a non-recommended locale.', {
        remedy: 'Make the database anew with the C locale.',
        ...given('database'),
      }),
    ],
  },
  {
    version: '1.12',
    changes: [
      change(
        'database',
        'state_events',
        'A long blocking update of the database: the service does not answer HTTP requests meanwhile. A temporary index on state_events(room_id) where type is m.room.create shortens the outage; it is dropped afterwards.',
        { remedy: 'Make the index before the upgrade.', here: 'No such update.' },
      ),
    ],
  },
  {
    version: '1.13',
    changes: [
      change('workers', 'redis', 'Replication between workers can go over Redis.', { ...given('redis') }),
      change(
        'database',
        'populate_stats_process_rooms, populate_stats_process_users',
        'An incomplete room directory is mended by queueing these background updates and restarting.',
        {
          remedy:
            "Where rooms are missing: INSERT INTO background_updates (update_name, progress_json, depends_on) both, the users behind the rooms, and restart; or rookery doctor --repair; or the administrators' job of that name.",
          ...look(
            ['rooms', 'current_state_events', 'room_stats_current'],
            `SELECT COUNT(*) AS found FROM rooms r WHERE EXISTS (SELECT 1 FROM current_state_events e WHERE e.room_id = r.room_id)
               AND NOT EXISTS (SELECT 1 FROM room_stats_current s WHERE s.room_id = r.room_id)`,
          ),
        },
      ),
      change('module', 'complete_sso_login', 'Deprecated; complete_sso_login_async is used instead.', {
        ...given('modules', 'oidc_providers'),
      }),
      change(
        'database',
        'rollback of 1.13.0 to 1.12.4',
        'Stop the server, set schema_version to 57, downgrade the package.',
        { remedy: 'rookery rollback apply 1.13.0' },
      ),
    ],
  },
  {
    version: '1.14',
    changes: [
      change(
        'database',
        'long update',
        'Another long blocking update of the database, during which the service does not answer HTTP requests.',
        { remedy: 'Plan an outage.', here: 'No such update.' },
      ),
    ],
  },
  {
    version: '1.18',
    changes: [
      change('workers', 'redis', 'Redis is recommended for replication.', { ...given('worker_app') }),
      change(
        'platform',
        'container tags',
        'From 10 August 2020 no container tags with the suffix -py3 are published.',
        { remedy: 'Use the tags without it.' },
      ),
    ],
  },
  {
    version: '1.20',
    changes: [
      change(
        'template',
        'custom templates',
        'Templates not found in a custom directory fall back to the defaults; a missing custom file does not keep the server from starting.',
        { ...ownTemplates },
      ),
    ],
  },
  {
    version: '1.21',
    changes: [
      change('endpoint', '/_synapse/client/*', 'A reverse proxy must forward these paths.', {
        remedy: 'Forward /_synapse/client.',
        ...listenersWith((listener) => listener['x_forwarded'] === true),
      }),
      change(
        'endpoint',
        'POST /_synapse/client/password_reset/{medium}/submit_token',
        'Takes a URL-encoded form that carries the query parameters of the emailed link; the email variant can be served by any worker.',
        { ...mail },
      ),
      change(
        'template',
        'password_reset_confirmation.html',
        'New templates: the password reset confirmation page must offer a POST, as a URL-encoded form carrying the query parameters of the emailed link, to /_synapse/client/password_reset/{medium}/submit_token.',
        { remedy: 'Add it to your folder.', ...ownTemplates },
      ),
    ],
  },
  {
    version: '1.22',
    changes: [
      change(
        'template',
        'sso_error.html',
        'Replaces saml_error.html. Variables: error, a string with a short hint why the page is shown; error_description in place of the former msg; code is removed.',
        { remedy: 'Rename and change your template.', ...ownTemplates },
      ),
      change(
        'module',
        'third_party_event_rules',
        'Third-party event rules modules receive an argument module_api at initialisation; http_client is gone as an argument and is a property of the module API object.',
        { ...given('third_party_event_rules') },
      ),
    ],
  },
  {
    version: '1.23',
    changes: [
      change(
        'setting',
        'structured: true, drains',
        'Structured logging with drains in the logging configuration is deprecated.',
        { remedy: 'Use handlers with a JSON formatter in log_config.', ...given('log_config') },
      ),
    ],
  },
  {
    version: '1.24',
    changes: [
      change(
        'endpoint',
        '/_matrix/client/api/v1/admin, /_matrix/client/unstable/admin, /_matrix/client/r0/admin',
        'These former prefixes of the admin API are removed; it exists only under /_synapse/admin/v1 from here on. The path /admin/whois is also served by the client-server API, besides GET /_synapse/admin/v1/whois/...',
        { remedy: 'Change scripts and proxies.' },
      ),
      change(
        'module',
        'map_user_attributes',
        'A custom OpenID Connect mapping provider must normalise the localpart that it returns; the helper map_username_to_mxid_localpart reproduces the previous behaviour.',
        { remedy: 'Change the provider.', ...given('oidc_providers', 'oidc_config') },
      ),
    ],
  },
  {
    version: '1.25',
    changes: [
      change(
        'setting',
        'ip_range_blacklist, ip_range_whitelist',
        'Lists of ranges that control outgoing requests: federation, identity servers, push, key validity for third-party invites. The blacklist defaults to private ranges. They replace federation_ip_range_blacklist.',
        {
          remedy: 'Name private addresses that the server must reach in ip_range_whitelist.',
          ...missing('ip_range_blacklist'),
        },
      ),
      change('setting', 'federation_ip_range_blacklist', 'Replaced by ip_range_blacklist.', {
        remedy: 'Rename it.',
        ...given('federation_ip_range_blacklist'),
      }),
      change('platform', 'Python 3.5', 'The last release that supports Python 3.5.', {
        here: 'Rookery runs on Node.js.',
      }),
    ],
  },
  {
    version: '1.26',
    schema: { version: 59, servedFrom: 59 },
    changes: [
      change(
        'database',
        'rollback of 1.26.0 to 1.25.0',
        'Stop the server; set the single value in schema_version to 58; drop ignored_users if it exists; set has_auth_chain_index to false on all rows of rooms; empty event_auth_chain_links and event_auth_chains, by TRUNCATE on PostgreSQL and DELETE of all rows on SQLite; delete from applied_schema_deltas the rows of version 59 for 59/01ignored_user.py and 59/06chain_cover_index.sql; downgrade the package.',
        { remedy: 'rookery rollback apply 1.26.0' },
      ),
    ],
  },
  {
    version: '1.27',
    changes: [
      change(
        'endpoint',
        'GET /_synapse/client/oidc/callback',
        'The callback from an OpenID Connect or OAuth2 provider is here; <public baseurl>/_synapse/client/oidc/callback must be registered there as a permitted redirect address.',
        { remedy: 'Change it at the provider.', ...given('oidc_providers', 'oidc_config') },
      ),
      change(
        'endpoint',
        'POST /_synapse/client/saml2/authn_response',
        'The assertion consumer location for a SAML2 provider; the issuer of authentication requests and the metadata address is <public baseurl>/_synapse/client/saml2/metadata.xml.',
        { remedy: 'Change it at the provider.', ...given('saml2_config') },
      ),
      change(
        'template',
        'autoescape',
        'The template engine has autoescape enabled for file names ending in .html, .htm and .xml.',
        { remedy: 'Mark with the filter safe what is markup on purpose.', ...ownTemplates },
      ),
    ],
  },
  {
    version: '1.29',
    changes: [
      change(
        'setting',
        'listeners[].x_forwarded',
        'The service expects a header X-Forwarded-Proto with https or http behind a reverse proxy; a warning is logged for each request without it. The Host header must be preserved.',
        { remedy: 'Let the proxy set it.', ...listenersWith((listener) => listener['x_forwarded'] === true) },
      ),
    ],
  },
];
