import {
  appservices,
  change,
  given,
  holds,
  isTrue,
  missing,
  modules,
  newer,
  node,
  postgres,
  type Release,
  rust,
  sqlite,
  workers,
} from './register.js';

const delegated = given('matrix_authentication_service', 'experimental_features.msc3861');

/** From 1.91 to 1.157. */
export const since191: readonly Release[] = [
  {
    version: '1.91',
    changes: [
      change(
        'behaviour',
        'user locking',
        'Accounts can be locked; clients get M_USER_LOCKED (stable from 1.121). The list of users filters by admins.',
      ),
    ],
  },
  {
    version: '1.92',
    changes: [change('behaviour', 'edits', 'Edits of messages do not notify. The list of users has last_seen_ts.')],
  },
  {
    version: '1.93',
    changes: [
      change('platform', 'Rust 1.61', 'Minimum Rust compiler is 1.61 for source builds.', rust),
      change(
        'behaviour',
        'matrix-fed',
        'Other servers are also found by the SRV record _matrix-fed._tcp. Mails carry List-Unsubscribe.',
      ),
    ],
  },
  {
    version: '1.94',
    changes: [
      change('endpoint', 'GET /_synapse/admin/v1/server_version', 'The answer has no python_version any more.', {
        remedy: 'Look into tools that read it.',
      }),
    ],
  },
  {
    version: '1.97',
    changes: [change('endpoint', '/_matrix/media/v1/create', 'Media can be announced before they are uploaded.')],
  },
  {
    version: '1.98',
    changes: [change('behaviour', 'Matrix 1.7 to 1.9', 'These versions of the specification are supported.')],
  },
  {
    version: '1.100',
    schema: { version: 84, servedFrom: 83 },
    changes: [change('platform', 'Rust 1.65', 'Minimum Rust compiler is 1.65 for source builds.', rust)],
  },
  {
    version: '1.103',
    changes: [
      change(
        'endpoint',
        'GET /_synapse/admin/v3/users',
        'Lists users; refusals for too many requests carry Retry-After.',
      ),
    ],
  },
  {
    version: '1.106',
    changes: [change('platform', 'Rust 1.66', 'Minimum Rust compiler is 1.66 for source builds.', rust)],
  },
  {
    version: '1.109',
    changes: [
      change(
        'setting',
        'auto_accept_invites',
        'Invites can be accepted by the server, without a module.',
        given('auto_accept_invites'),
      ),
    ],
  },
  {
    version: '1.110',
    schema: { version: 85, servedFrom: 84 },
    changes: [
      change('endpoint', 'cross-signing', "A user's first upload of cross-signing keys asks for no authentication."),
    ],
  },
  {
    version: '1.111',
    changes: [
      change(
        'workers',
        '/_matrix/client/v1/media/, /_matrix/federation/v1/media/',
        'Media workers take these paths; proxies must route them.',
        { remedy: 'Route them.', ...workers },
      ),
    ],
  },
  {
    version: '1.114',
    changes: [
      change('endpoint', 'simplified sliding sync', 'On by default.', missing('experimental_features.msc3575_enabled')),
    ],
  },
  {
    version: '1.115',
    changes: [
      change(
        'endpoint',
        'via',
        'The query parameter via of joins and knocks is always understood; server_name is its old name.',
      ),
    ],
  },
  { version: '1.119', changes: [change('platform', 'Python 3.9', 'Minimum Python is 3.9.', node)] },
  {
    version: '1.120',
    schema: { version: 88, servedFrom: 84 },
    changes: [
      change('setting', 'experimental_features.msc3886_endpoint', 'Removed.', {
        remedy: 'Remove it.',
        ...given('experimental_features.msc3886_endpoint'),
      }),
      change(
        'setting',
        'enable_authenticated_media',
        'True by default: new media are shown to logged-in users only. Media stored earlier stay on the old endpoints as well.',
        {
          remedy: 'Set it to false while clients or bridges need the old endpoints.',
          ...missing('enable_authenticated_media'),
        },
      ),
    ],
  },
  {
    version: '1.122',
    changes: [change('platform', 'PostgreSQL 13', 'Minimum PostgreSQL is 13.', { ...newer, ...postgres })],
  },
  {
    version: '1.123',
    changes: [
      change(
        'endpoint',
        'unstable report-room',
        'The unstable endpoint for reports of rooms is removed; the stable one exists from 1.119.',
      ),
    ],
  },
  {
    version: '1.126',
    changes: [
      change(
        'setting',
        'room_list_publication_rules',
        'Unset it denies: only administrators put rooms into the public list.',
        { remedy: 'Write rules where users may.', ...missing('room_list_publication_rules') },
      ),
      change('platform', 'Debian repository', 'The key of the Debian repository is renewed.', { here: 'Not ours.' }),
    ],
  },
  {
    version: '1.130',
    schema: { version: 92, servedFrom: 84 },
    changes: [change('workers', '/_matrix/federation/v1/version', 'May be routed to workers.', workers)],
  },
  {
    version: '1.134',
    changes: [
      change('platform', 'ICU', 'Bundled; the system library is not needed.'),
      change('behaviour', 'origin', 'New events do not have it any more.', {
        remedy: 'Look into modules and bridges that read it.',
      }),
    ],
  },
  { version: '1.135', changes: [change('module', 'on_user_registration', 'May run on any worker.', { ...modules })] },
  {
    version: '1.136',
    changes: [
      change(
        'module',
        'run_as_background_process',
        'The module-level function is deprecated for the method of the module API.',
        { remedy: 'Change the module.', ...modules },
      ),
      change(
        'metrics',
        'origin_server_name, destination_server_name',
        'The labels of the last received and sent PDU times have these names; server_name is the own server.',
        { remedy: 'Change dashboards and rules.', ...holds('enable_metrics', isTrue) },
      ),
      change(
        'setting',
        'matrix_authentication_service',
        'Stable (needs an authentication service of at least 0.20). experimental_features.msc3861 is deprecated.',
        { remedy: 'Move to it.', ...delegated },
      ),
    ],
  },
  {
    version: '1.138',
    changes: [change('platform', 'Ubuntu 24.10', 'From 1.138.2 there are no packages for it.', { here: 'Not ours.' })],
  },
  {
    version: '1.139',
    changes: [
      change(
        'endpoint',
        'POST /register by application services',
        'With delegated authentication a registration without inhibit_login: true fails with M_APPSERVICE_LOGIN_UNSUPPORTED (until 1.157 with IO.ELEMENT.MSC4190. before it).',
        { remedy: 'Upgrade bridges.', ...delegated },
      ),
      change('endpoint', '/sync/e2ee', 'Removed.'),
    ],
  },
  {
    version: '1.140',
    schema: { version: 92, servedFrom: 84 },
    changes: [
      change('module', 'S3 storage provider', 'Has to be 1.6.0 or newer.', {
        remedy: 'Upgrade it.',
        ...given('media_storage_providers'),
      }),
      change('endpoint', 'unstable fallback keys', 'The unstable names of the fields for fallback keys are removed.'),
    ],
  },
  {
    version: '1.141',
    changes: [
      change('platform', 'container images', 'Based on Debian trixie with Python 3.13.', { here: 'Not ours.' }),
    ],
  },
  {
    version: '1.142',
    changes: [
      change('platform', 'Python 3.10', 'Minimum Python is 3.10.', node),
      change('platform', 'SQLite 3.40', 'Minimum SQLite is 3.40.', {
        here: 'Rookery brings its own SQLite.',
        ...sqlite,
      }),
    ],
  },
  {
    version: '1.143',
    changes: [change('platform', 'PostgreSQL 14', 'Minimum PostgreSQL is 14.', { ...newer, ...postgres })],
  },
  {
    version: '1.144',
    changes: [
      change('workers', 'delayed events, /restart', 'May be routed to workers.', workers),
      change(
        'setting',
        'experimental_features.msc2666_enabled',
        'The unstable endpoint for mutual rooms needs it; the stable one took its place in 1.151.',
        { ...given('experimental_features.msc2666_enabled') },
      ),
    ],
  },
  {
    version: '1.146',
    changes: [
      change('endpoint', 'MSC2697', 'The endpoints of the first dehydrated devices are removed.'),
      change('platform', 'Ubuntu 25.04', 'No packages for it any more.', { here: 'Not ours.' }),
      change('setting', 'enable_local_media_storage', 'Media can be kept at storage providers only.', {
        ...given('media_storage_providers'),
      }),
    ],
  },
  {
    version: '1.148',
    changes: [change('endpoint', 'MSC3244', 'Capabilities about room versions of this proposal are removed.')],
  },
  {
    version: '1.150',
    schema: { version: 93, servedFrom: 84 },
    changes: [
      change('platform', 'systemd', 'The extra of this name is removed.', { here: 'Not needed.' }),
      change('module', 'set_displayname(deactivation=…)', 'The argument is deprecated, to be removed in 2027.', {
        remedy: 'Change the module.',
        ...modules,
      }),
      change('behaviour', 'request log', 'Numbers are labelled ru=(…), db=(…).', {
        remedy: 'Look into what reads the log.',
        ...given('log_config'),
      }),
    ],
  },
  {
    version: '1.151',
    changes: [
      change('endpoint', 'MSC3852', 'The user agent is gone from lists of devices.'),
      change('endpoint', '/user/mutual_rooms', 'Stable.'),
    ],
  },
  {
    version: '1.152',
    changes: [
      change(
        'workers',
        'stream_writers.quarantined_media_changes',
        'Workers that quarantine media must be named there.',
        { remedy: 'Name them.', ...workers },
      ),
    ],
  },
  { version: '1.153', changes: [change('behaviour', 'server ACLs', 'Hold for EDUs as well.')] },
  { version: '1.156', changes: [change('setting', 'presence', 'Its times are settings.', given('presence'))] },
  {
    version: '1.157',
    schema: { version: 94, servedFrom: 84 },
    changes: [
      change('setting', 'experimental_features.msc3861', 'Refused.', {
        remedy: 'Set up matrix_authentication_service.',
        ...given('experimental_features.msc3861'),
      }),
      change(
        'setting',
        'exclude_rooms_from_presence',
        'Rooms in which nobody is told who is there.',
        given('exclude_rooms_from_presence'),
      ),
    ],
  },
  {
    version: 'rookery-0.1.0',
    schema: { version: 1, servedFrom: 1 },
    changes: [
      change(
        'database',
        'schema',
        'A schema of its own, version 1. Databases of other servers of this family are refused and stay as they are.',
        { remedy: 'There is no import: begin a new server, or stay with the old one.' },
      ),
      change('module', 'modules', 'Modules are npm packages; Python modules do not load.', {
        remedy: 'docs/modules/from-synapse.md says what became of each callback.',
        ...modules,
      }),
      change('platform', 'Node.js', 'Needs Node.js in place of Python; packages are npm packages.', {
        remedy: 'npm install -g @rookery/homeserver',
      }),
      change('endpoint', 'appservices', 'Application services keep their registration files.', { ...appservices }),
    ],
  },
];
