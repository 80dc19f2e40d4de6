import { type Change, change } from './register.js';

/** What holds in every release: names and rules that operators, modules and bridges rely on. Where a release brought it, it is listed there. */
export const standing: readonly Change[] = [
  // Upgrading.
  change(
    'platform',
    'lifecycles',
    'Before upgrading, the versions of Python and PostgreSQL in use must still be supported: upstream end-of-life dates are followed and unmaintained versions dropped.',
    { here: 'The same for Node.js and PostgreSQL.' },
  ),
  change('platform', 'prebuilt packages', 'Prebuilt-package installs are upgraded through the package manager.'),
  change(
    'platform',
    'pip',
    'Pip installs are upgraded by upgrading the package; extras stand in square brackets, for example postgres, oidc, user-search.',
    { here: 'npm install -g @rookery/homeserver; what pip calls extras are optional npm packages.' },
  ),
  change(
    'platform',
    'source installs',
    'Source installs: obtain the newest source (a version-control pull), activate the virtual environment if one is used, reinstall from the source directory with pip (pip install --upgrade .) with extras in brackets; a poetry-managed install runs poetry install with --extras <name> for each extra, --extras all is the simplest choice.',
    { here: 'git pull, then npm start builds what is stale.' },
  ),
  change(
    'behaviour',
    'synctl restart',
    'After the upgrade the service is restarted with synctl restart: before 1.55.0 the script is ./synctl in the root of the source tree, from 1.55.0 an entry point on PATH.',
  ),
  change(
    'endpoint',
    'GET /_synapse/admin/v1/server_version',
    'No body; returns the running server version. Success of an upgrade is checked with it, at the port of the listener (8008 unless configured).',
  ),
  change(
    'database',
    'rollback',
    'Rolling back is difficult because of database schema changes. It means undoing the upgrade steps: install the older version with pip (package==version) or the older Debian package file.',
    { here: 'rookery rollback plan says what it takes.' },
  ),
  change(
    'behaviour',
    'deprecation',
    'Releases are numbered (0.x, 1.x). A feature is first deprecated and later removed.',
  ),
  // Application services.
  change(
    'setting',
    'url',
    'In the registration file of an application service: string, base address of the application service.',
  ),
  change(
    'setting',
    'as_token',
    'In the registration file of an application service: string, token that the application service uses toward the service.',
  ),
  change(
    'setting',
    'hs_token',
    'In the registration file of an application service: string, token that the service uses toward the application service.',
  ),
  change(
    'setting',
    'sender_localpart',
    'In the registration file: string, localpart of the user id used when acting with the application-service token.',
  ),
  change('setting', 'namespaces', 'In the registration file: object with the keys users, aliases, rooms.'),
  change('setting', 'namespaces.<kind>[]', 'List of objects, each has exclusive (boolean) and regex (string).'),
  change(
    'setting',
    'app_service_config_files',
    'The files are listed in this configuration setting (list of file names); only they register an application service.',
  ),
  change(
    'behaviour',
    'application services',
    'Application services register users with type m.login.application_service and property username.',
  ),
  change(
    'behaviour',
    'events for application services',
    'The service does not document any outbound notification events beyond the interest rules; transaction ids of application services are kept in table application_services_txns, with sequence application_services_txn_id_seq.',
  ),
  // Registration.
  change(
    'endpoint',
    'type, in the body of /register',
    'String, login-style type; application services must send m.login.application_service (enforced since 1.32.0).',
  ),
  change(
    'endpoint',
    'username, in the body of /register',
    "String, the standard property for the new user's name; required for application-service registration since 1.89.0.",
  ),
  change(
    'endpoint',
    'user, in the body of /register',
    'String; legacy, unspecified property; deprecated in 1.85.0 and no longer accepted from application services since 1.89.0.',
  ),
  change('endpoint', 'password, in the body of /register', 'String, used by m.login.password.'),
  change(
    'endpoint',
    'threepidCreds, in the body of /register',
    'Object, used by m.login.email.identity (introduced 0.3.0).',
  ),
  change(
    'endpoint',
    'm.login.password, m.login.recaptcha, m.login.email.identity, m.login.application_service, m.login.registration_token',
    'Login-style stage types; m.login.registration_token is a registration stage. Enabling captcha adds an m.login.recaptcha stage before the next stage of every flow.',
  ),
  change('endpoint', 'GET /_matrix/client/r0/capabilities', 'Returns client capabilities.'),
  // Templates.
  change(
    'template',
    'files',
    'add_threepid.html, add_threepid.txt, add_threepid_failure.html, add_threepid_success.html; notice_expiry.html; notif_mail.html (includes room.html and notif.html); password_reset.html, password_reset.txt, password_reset_confirmation.html, password_reset_failure.html, password_reset_success.html; registration.html, registration.txt, registration_failure.html, registration_success.html; sso_account_deactivated.html, sso_auth_bad_user.html, sso_auth_confirm.html, sso_auth_success.html, sso_error.html, sso_login_idp_picker.html, sso_redirect_confirm.html; recaptcha.html, terms.html, account_previously_renewed.html are template file names.',
  ),
  change(
    'template',
    'missing files',
    'Missing custom template files: the server refuses to start in 1.4.0, defaults are used since 1.20.0.',
  ),
  // Settings.
  change('setting', 'stats.enabled', 'Boolean; see rollback rules of 1.4.0.'),
  change('setting', 'log_file', 'Set: refuses to start (1.8.0), use log_config.'),
  change('setting', 'account_threepid_delegates.email', 'A URL; set, it is a startup error (removed in 1.66.0).'),
  change('setting', 'account_threepid_delegates.msisdn', 'A URL; delegates phone verification to an identity server.'),
  change(
    'setting',
    'listeners[].x_forwarded',
    'Listener option; behind a reverse proxy each request should carry X-Forwarded-Proto set to https or http; when it is missing the service logs a warning on every request. The Host header must be preserved.',
  ),
  change(
    'setting',
    'notify_appservices, update_user_directory',
    'Contradicting old and new worker options: refuses to start.',
  ),
  change(
    'setting',
    'trust_identity_server_for_password_resets',
    'Trust flag true with no trusted identity server domains: error and refusal to start.',
  ),
  change(
    'behaviour',
    'http_proxy, https_proxy, no_proxy',
    'HTTP proxy use: environment variables name the proxy for outbound requests. Since 1.6.0 it covers push, URL previews, phone-home stats, reCAPTCHA validation, CAS validation, OpenID Connect and key-revocation checks; since 1.41.0 also outbound federation, remote media downloads and fetching public keys of other servers.',
  ),
  // Endpoints.
  change(
    'endpoint',
    '/_matrix/client/, /_matrix/federation/, /_matrix/media/, /_synapse/admin/, /_synapse/client/',
    'It serves these interfaces: a client API, a federation API, a media API, an admin API, service-specific client endpoints, and an application-service interface; as one process, or a main process plus worker processes.',
  ),
  change('endpoint', 'GET /_synapse/admin/v1/whois/...', '/admin/whois is also served by the client-server API.'),
  change('endpoint', '/_synapse/admin/v1/background_updates', 'A background-update admin API exists.'),
  change('endpoint', '/_synapse/client/*', 'Must be forwarded by a reverse proxy (1.21.0).'),
  change(
    'behaviour',
    'the service',
    'Stores data in PostgreSQL or SQLite; runs as one process or a main process plus worker processes; can load modules, verify email addresses through its own mail server, and sign users in through single sign-on (OpenID Connect, OAuth2, SAML2, CAS).',
  ),
  // Authentication.
  change(
    'behaviour',
    'certificates',
    'Certificates for the federation API are validated (1.0), unless the global switch is false or the server is on the whitelist.',
  ),
  change(
    'behaviour',
    'single sign-on',
    'Single sign-on callbacks are /_synapse/client/oidc/callback and /_synapse/client/saml2/authn_response.',
  ),
  change(
    'behaviour',
    'open registration',
    'Registration without verification and without the flag: refuses to start. Open registration with no email, captcha or token verification is refused at startup unless enable_registration_without_verification is true (1.56.0).',
  ),
  change(
    'behaviour',
    '3pid verification',
    'Emails or phone numbers are added to an account, or used for password reset, only after verification by a message with a link or token (3pid verification). Since 1.4.0 it is not delegated by default; email delegation is removed since 1.66.0; phone verification can be delegated only with account_threepid_delegates.msisdn.',
  ),
  // Errors and limits.
  change('behaviour', 'X-Forwarded-Proto', 'Missing: a warning is logged per request.'),
  change('module', 'deprecated module methods', 'Deprecated module method used: a warning is logged.'),
  change('module', 'rejections', 'Module spam callback rejects: returns an error code; FORBIDDEN is the generic one.'),
  change(
    'database',
    'long database updates',
    '1.12.0, 1.14.0: the service does not answer HTTP requests during the update.',
  ),
  change(
    'module',
    'legacy interfaces',
    'The legacy spam checker interface (deprecated 1.37.0, removal planned for August 2021) and the legacy third-party rules interface (deprecated 1.39.0, removal planned for September 2021) are superseded by the generic modules system introduced in 1.37.0.',
  ),
  change(
    'workers',
    'replication streams',
    'Streams between workers: each change is incompatible in both directions with the adjacent release; replication resumes when all workers run the same release.',
  ),
  change('platform', 'minimum Python', 'Minimum Python: 3.8 since 1.88.0 (3.7 1.50.0; 3.6 1.32.0; 3.5 1.1.0).', {
    here: 'Rookery runs on Node.js.',
  }),
  change('platform', 'minimum PostgreSQL', 'Minimum PostgreSQL: 11 since 1.72.0 (10 1.50.0; 9.6 1.32.0; 9.5 1.1.0).'),
  change('platform', 'minimum SQLite', 'Minimum SQLite: 3.27.0 since 1.68.0 (3.22 before).'),
  change(
    'platform',
    'minimum Rust compiler',
    'Minimum Rust compiler for source builds: 1.58.1 from 1.68.0; 1.60.0 from 1.86.0.',
  ),
  change('platform', 'minimum poetry', 'Minimum poetry: 1.2.0 (1.67.0); 1.3.2 (1.76.0).'),
  change('setting', 'cache entry expiry', 'Cache entry expiry: 30m without access, default.'),
];
