import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from './config.js';
import { checkConfig, loadConfig, type LoadOptions } from './load.js';
import { SettingsError, describeProblem } from './problem.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-config-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = join(folder, 'homeserver.yaml');

/** The problems of a file with these lines after `server_name` (line 1) and `report_stats` (line 2). */
function problemsOf(lines: string, options: LoadOptions = {}): string[] {
  writeFileSync(file, `server_name: example.org\nreport_stats: false\n${lines}\n`);
  return checkConfig([file], { env: {}, ...options }).problems.map(
    (problem) => `${problem.level} ${describeProblem(problem).replaceAll(`${folder}/`, '')}`,
  );
}

const refusals: [name: string, lines: string, expected: string[]][] = [
  ['a log file', 'log_file: /var/log/x.log', ['error homeserver.yaml:3: log_file: removed in 1.8.']],
  [
    'delegated mail verification',
    'account_threepid_delegates:\n  email: https://id.example.org',
    ['error homeserver.yaml:4: account_threepid_delegates.email: removed in 1.66. This server verifies emails itself'],
  ],
  [
    'open registration',
    'enable_registration: true',
    ['error homeserver.yaml:3: enable_registration: open registration without any verification'],
  ],
  [
    'open registration by the old name',
    'disable_registration: false',
    [
      'error homeserver.yaml:3: disable_registration: open registration',
      'warning homeserver.yaml:3: disable_registration: deprecated',
    ],
  ],
  [
    'a webclient listener',
    'listeners:\n  - port: 8008\n    type: webclient',
    ['error homeserver.yaml:5: listeners[0].type: webclient listeners were removed in 1.53'],
  ],
  [
    'a replication listener over TCP',
    'listeners: [{port: 9092, type: replication}]',
    ['error homeserver.yaml:3: listeners[0].type: replication over TCP was removed in 1.67'],
  ],
  [
    'a web client that is not http',
    'web_client_location: file:///srv/client',
    ['error homeserver.yaml:3: web_client_location: expected an http:// or https:// URL, found "file:///srv/client"'],
  ],
  [
    'a web client by path',
    'web_client_location: /srv/client',
    ['error homeserver.yaml:3: web_client_location: expected an http:// or https:// URL, found "/srv/client"'],
  ],
  [
    'the trust flag without trusted servers',
    'trust_identity_server_for_password_resets: true',
    [
      'error homeserver.yaml:3: trust_identity_server_for_password_resets: true without any trusted_third_party_id_servers',
      'warning',
    ],
  ],
  [
    'the trust flag with trusted servers, whose mails this server sends itself',
    'trust_identity_server_for_password_resets: true\ntrusted_third_party_id_servers: [vector.im]',
    [
      'error homeserver.yaml:3: trust_identity_server_for_password_resets: emails are no longer verified by identity servers',
      'warning',
      'warning',
    ],
  ],
  [
    'worker_replication_host',
    'worker_replication_host: localhost',
    ['error homeserver.yaml:3: worker_replication_host: removed in 1.88.'],
  ],
  [
    'worker_replication_http_port',
    'worker_replication_http_port: 9093',
    ['error homeserver.yaml:3: worker_replication_http_port: removed in 1.88.'],
  ],
  [
    'worker_replication_http_tls',
    'worker_replication_http_tls: true',
    ['error homeserver.yaml:3: worker_replication_http_tls: removed in 1.88.'],
  ],
  [
    'worker_replication_port',
    'worker_replication_port: 9092',
    ['error homeserver.yaml:3: worker_replication_port: removed in 1.67.'],
  ],
  [
    'groups',
    'experimental_features:\n  groups_enabled: true',
    ['error homeserver.yaml:4: experimental_features.groups_enabled: removed in 1.61.'],
  ],
  [
    'the experimental form of delegated auth',
    'experimental_features: {msc3861: {enabled: true}}',
    ['error homeserver.yaml:3: experimental_features.msc3861: removed in 1.157. Set up matrix_authentication_service'],
  ],
  [
    'a secret twice',
    'form_secret: a\nform_secret_path: ./form',
    ['error homeserver.yaml:4: form_secret_path: set either form_secret or form_secret_path, not both'],
  ],
  [
    'a secret whose file is missing',
    'form_secret_path: ./nowhere',
    ['error homeserver.yaml:3: form_secret_path: cannot read nowhere: there is no such file or folder'],
  ],
  [
    'a secret of a provider twice',
    'oidc_providers:\n  - idp_id: a\n    idp_name: A\n    issuer: https://a\n    client_id: x\n    client_secret: s\n    client_secret_path: ./s',
    [
      'error homeserver.yaml:9: oidc_providers[0].client_secret_path: set either client_secret or client_secret_path, not both',
    ],
  ],
  [
    'the public room directory in both old and new form',
    'restrict_public_rooms_to_local_users: true\nallow_public_rooms_without_auth: true',
    ['error homeserver.yaml:3: restrict_public_rooms_to_local_users: not together with', 'warning'],
  ],
  [
    'invite state in both old and new form',
    'room_invite_state_types: [m.room.name]\nroom_prejoin_state: {disable_default_event_types: true}',
    ['error homeserver.yaml:3: room_invite_state_types: not together with room_prejoin_state', 'warning'],
  ],
  [
    'contradicting old and new registration',
    'disable_registration: true\nenable_registration: true',
    [
      'error homeserver.yaml:3: disable_registration: contradicts enable_registration',
      'error homeserver.yaml:4: enable_registration: open registration',
      'warning homeserver.yaml:3: disable_registration: deprecated',
    ],
  ],
  [
    'a TLS listener without certificate',
    'listeners: [{port: 8448, type: http, tls: true, resources: [{names: [federation]}]}]',
    [
      'error homeserver.yaml:3: listeners: a listener with tls: true needs tls_certificate_path and tls_private_key_path',
    ],
  ],
  [
    'previews into the own network',
    'url_preview_enabled: true',
    ['error homeserver.yaml:3: url_preview_enabled: needs url_preview_ip_range_blacklist'],
  ],
  [
    'mails without a sender',
    'email:\n  smtp_host: mail',
    ['error homeserver.yaml:3: email.notif_from: needed once email has anything in it'],
  ],
  [
    'consent without a document',
    'user_consent: {version: 1.0}\nform_secret: s',
    ['error homeserver.yaml:3: user_consent.version: user_consent needs template_dir and version'],
  ],
  [
    'an upside-down retention',
    'retention: {default_policy: {min_lifetime: 2d, max_lifetime: 1d}}',
    ['error homeserver.yaml:3: retention.default_policy.min_lifetime: must not be longer than'],
  ],
  [
    'tokens longer than sessions',
    'session_lifetime: 1h\nrefresh_token_lifetime: 2h',
    ['error homeserver.yaml:4: refresh_token_lifetime: must not be longer than session_lifetime'],
  ],
  [
    'addresses to prove that nobody can prove',
    'enable_registration: true\nregistrations_require_3pid: [email, msisdn]',
    ['error homeserver.yaml:4: registrations_require_3pid: nobody could register: to prove mail addresses'],
  ],
  [
    'captcha without keys',
    'enable_registration_captcha: true',
    ['error homeserver.yaml:3: enable_registration_captcha: needs recaptcha_public_key', 'error'],
  ],
  [
    'an empty list of authorities',
    'federation_custom_ca_list: []',
    ['error homeserver.yaml:3: federation_custom_ca_list: expected a list that is not empty'],
  ],
  [
    'half an autotuning',
    'caches: {cache_autotuning: {max_cache_memory_usage: 1G}}',
    ['error homeserver.yaml:3: caches.cache_autotuning.max_cache_memory_usage: max_cache_memory_usage, target'],
  ],
  [
    'well-known keys that are ours',
    'extra_well_known_client_content: {m.homeserver: {}}',
    ['error homeserver.yaml:3: extra_well_known_client_content: m.homeserver follows from'],
  ],
  [
    'two databases settings',
    'database: {name: psycopg2}\ndatabases: {a: {name: psycopg2}}',
    ['error homeserver.yaml:4: databases: set either database or databases'],
  ],
  [
    'databases of which none holds state',
    'databases: {a: {name: psycopg2, data_stores: [main]}}',
    ['error homeserver.yaml:3: databases: the data stores main and state must each lie in exactly one'],
  ],
  [
    'a state database of another kind',
    'databases:\n  a: {name: psycopg2, data_stores: [main]}\n  b:\n    data_stores: state\n    name: sqlite3\n    args: {database: x.db}',
    ['error homeserver.yaml:7: databases.b.name: is sqlite3, and that of a is psycopg2: main and state'],
  ],
  [
    'a state database that is the main one',
    'databases:\n  a: {name: psycopg2, data_stores: [main], args: {dbname: x, cp_max: 5}}\n  b:\n    name: psycopg2\n    data_stores: [state]\n    args: {dbname: x, host: localhost}',
    ['error homeserver.yaml:8: databases.b.args: is the database of a as well: write one entry'],
  ],
  [
    'a state file that is the main one, and one without a name',
    'databases: {a: {data_stores: [main], args: {database: x.db}}, b: {data_stores: [state], args: {database: ./x.db}}}',
    ['error homeserver.yaml:3: databases.b.args: is the database of a as well'],
  ],
  [
    'a room version of an experiment',
    'experimental_features: {msc4242_enabled: true, msc1767_enabled: false}',
    ['error homeserver.yaml:3: experimental_features.msc4242_enabled: the room version of this experiment'],
  ],
  [
    'a listener with port and path',
    'listeners: [{port: 1, path: /x, type: http}]',
    ['error homeserver.yaml:3: listeners[0]: expected exactly one of port and path'],
  ],
  [
    'a listener without either',
    'listeners: [{type: http}]',
    ['error homeserver.yaml:3: listeners[0]: expected exactly one of port and path'],
  ],
  [
    'uploads with nowhere to go',
    'enable_local_media_storage: false',
    ['error homeserver.yaml:3: enable_local_media_storage: false needs one of media_storage_providers'],
  ],
];

const workerSetup =
  'redis: {enabled: true}\ndatabase: {name: psycopg2}\ninstance_map: {main: {host: a, port: 1}, w: {host: b, port: 2}}\n';
const workerRefusals: [name: string, lines: string, expected: string[]][] = [
  [
    'a map without main',
    'redis: {enabled: true}\ndatabase: {name: psycopg2}\ninstance_map: {w: {host: b, port: 2}}',
    ['error homeserver.yaml:5: instance_map: workers need an instance_map with an entry main'],
  ],
  [
    'a worker without a map',
    'redis: {enabled: true}\ndatabase: {name: psycopg2}\nworker_app: synapse.app.generic_worker\nworker_name: w',
    ['error homeserver.yaml:5: worker_app: workers need an instance_map with an entry main'],
  ],
  [
    'workers without Redis and PostgreSQL',
    'instance_map: {main: {host: a, port: 1}, w: {host: b, port: 2}}',
    [
      'error homeserver.yaml:3: instance_map: workers need Redis',
      'error homeserver.yaml:3: instance_map: workers need PostgreSQL',
    ],
  ],
  [
    'a writer that is not in the map',
    `${workerSetup}stream_writers: {events: [w, x]}`,
    ['error homeserver.yaml:6: stream_writers.events: x is not in instance_map'],
  ],
  [
    'two writers of typing',
    `${workerSetup}stream_writers: {typing: [w, main]}`,
    ['error homeserver.yaml:6: stream_writers.typing: expected exactly one writer'],
  ],
  [
    'the directory kept here by the old name, there by the new',
    `${workerSetup}update_user_directory: true\nupdate_user_directory_from_worker: w`,
    ['error homeserver.yaml:6: update_user_directory: contradicts update_user_directory_from_worker', 'warning'],
  ],
  [
    'application services told nowhere by the old name, here by the new',
    `${workerSetup}notify_appservices: false\nnotify_appservices_from_worker: master`,
    ['error homeserver.yaml:6: notify_appservices: contradicts notify_appservices_from_worker', 'warning'],
  ],
  [
    'a worker of the old kind while main still does it',
    `${workerSetup}worker_app: synapse.app.user_dir\nworker_name: w`,
    ['error homeserver.yaml:6: worker_app: synapse.app.user_dir is deprecated and needs update_user_directory: false'],
  ],
  [
    'pushers on main and on a worker',
    `${workerSetup}start_pushers: true\npusher_instances: [w]`,
    ['error homeserver.yaml:6: start_pushers: contradicts pusher_instances'],
  ],
  [
    'senders on main and on a worker',
    `${workerSetup}send_federation: true\nfederation_sender_instances: [w]`,
    ['error homeserver.yaml:6: send_federation: contradicts federation_sender_instances'],
  ],
  [
    'a sender worker while main sends',
    `${workerSetup}worker_app: synapse.app.federation_sender\nworker_name: w`,
    ['error homeserver.yaml:6: worker_app: synapse.app.federation_sender needs send_federation: false'],
  ],
  [
    'a worker called main',
    `${workerSetup}worker_app: synapse.app.generic_worker\nworker_name: main`,
    ['error homeserver.yaml:7: worker_name: main and master are names'],
  ],
  [
    'a worker called writer',
    `${workerSetup}worker_app: synapse.app.generic_worker\nworker_name: writer`,
    ['error homeserver.yaml:7: worker_name: writer is what the process that writes is called'],
  ],
  [
    'restricted federation without secret',
    `${workerSetup}outbound_federation_restricted_to: [w]`,
    ['error homeserver.yaml:6: outbound_federation_restricted_to: needs worker_replication_secret'],
  ],
];

const delegated = 'matrix_authentication_service: {enabled: true, secret: s}\n';
const delegatedRefusals: [lines: string, setting: string][] = [
  ['password_config: {enabled: true}', 'password_config.enabled'],
  ['enable_registration: true\nenable_registration_without_verification: true', 'enable_registration'],
  ['user_consent: {version: "1", template_dir: x}\nform_secret: x', 'user_consent.version'],
  ['oidc_providers: [{idp_id: a, idp_name: A, issuer: x, client_id: x, client_secret: x}]', 'oidc_providers'],
  ['saml2_config: {sp_config: {}}', 'saml2_config.sp_config'],
  ['cas_config: {server_url: "https://cas"}', 'cas_config.server_url'],
  ['jwt_config: {enabled: true, secret: x, algorithm: HS256}', 'jwt_config.enabled'],
  ['password_providers: [{module: x}]', 'password_providers'],
  ['ldap_config: {enabled: true}', 'ldap_config'],
  [
    'enable_registration_captcha: true\nrecaptcha_public_key: a\nrecaptcha_private_key: b',
    'enable_registration_captcha',
  ],
  ['login_via_existing_session: {enabled: true}', 'login_via_existing_session.enabled'],
  ['refresh_token_lifetime: 1d', 'refresh_token_lifetime'],
  ['nonrefreshable_access_token_lifetime: 1d', 'nonrefreshable_access_token_lifetime'],
  ['session_lifetime: 1d', 'session_lifetime'],
  ['enable_3pid_changes: true', 'enable_3pid_changes'],
];

describe('settings that the server refuses', () => {
  it.each([...refusals, ...workerRefusals])('%s', (_name, lines, expected) => {
    const besides = /has no effect|without redis\.enabled/;
    const problems = problemsOf(lines).filter((problem) => !besides.test(problem));
    expect(problems.map((problem, index) => problem.slice(0, expected[index]?.length))).toEqual(expected);
  });

  it.each([
    ['worker_app: synapse.app.generic_worker\nworker_name: w', 'worker_app: these are the settings of a worker'],
    ['instance_map: {main: {host: a, port: 1}, w: {host: b, port: 2}}', 'instance_map: w would be a worker'],
    ['stream_writers: {typing: w}', 'stream_writers.typing: w would be a worker'],
    ['stream_writers: {receipts: [main, w]}', 'stream_writers.receipts: w would be a worker'],
    ['pusher_instances: [w]', 'pusher_instances: w would be a worker'],
    ['federation_sender_instances: [w]', 'federation_sender_instances: w would be a worker'],
    ['outbound_federation_restricted_to: [w]', 'outbound_federation_restricted_to: w would be a worker'],
    ['run_background_tasks_on: w', 'run_background_tasks_on: w would be a worker'],
    ['update_user_directory_from_worker: w', 'update_user_directory_from_worker: w would be a worker'],
    ['notify_appservices_from_worker: w', 'notify_appservices_from_worker: w would be a worker'],
    ['media_instance_running_background_jobs: w', 'media_instance_running_background_jobs: w would be a worker'],
    ['auto_accept_invites: {worker_to_run_on: w}', 'auto_accept_invites.worker_to_run_on: w would be a worker'],
    ['start_pushers: false', 'start_pushers: false leaves it to a worker'],
    ['send_federation: false', 'send_federation: false leaves it to a worker'],
    ['update_user_directory: false', 'update_user_directory: false leaves it to a worker'],
    ['notify_appservices: false', 'notify_appservices: false leaves it to a worker'],
  ])('%s, while there are no workers', (lines, expected) => {
    expect(problemsOf(lines)).toContainEqual(expect.stringContaining(`error homeserver.yaml:3: ${expected}`));
  });

  it.each([
    'experimental_features: {groups_enabled: false}',
    'experimental_features: {groups_enabled: null, msc3861: {enabled: false, issuer: x}}',
    'account_threepid_delegates: {email: null}',
    'account_threepid_delegates: {email: ""}',
    'log_file: null',
    'ldap_config: {enabled: false, uri: "ldap://x"}',
    'worker_replication_http_tls: false',
  ])('not %s, which asks for nothing', (lines) => {
    expect(problemsOf(lines).filter((problem) => problem.startsWith('error'))).toEqual([]);
  });

  it('a kind of worker that nobody knows', () => {
    expect(problemsOf('worker_app: my.own.worker')[0]).toMatch(
      /^error homeserver\.yaml:3: worker_app: expected one of synapse\.app\.homeserver, .*, found "my\.own\.worker"/,
    );
  });

  it('not what names the main process only', () => {
    const lines =
      'worker_app: synapse.app.homeserver\ninstance_map: {main: {host: a, port: 1}}\nstream_writers: {events: main}\n' +
      'pusher_instances: [master]\nstart_pushers: true\nrun_background_tasks_on: main';
    expect(problemsOf(lines).filter((problem) => problem.startsWith('error'))).toEqual([]);
  });

  it.each(delegatedRefusals)('%s, together with an authentication service', (lines, setting) => {
    const [problem] = problemsOf(delegated + lines);
    expect(problem).toMatch(/^error homeserver\.yaml:\d+: /);
    expect(problem).toContain(`${setting}: not possible together with matrix_authentication_service.enabled`);
  });

  it('an authentication service without its secret', () => {
    expect(problemsOf('matrix_authentication_service: {enabled: true}')[0]).toBe(
      'error homeserver.yaml:3: matrix_authentication_service.enabled: needs matrix_authentication_service.secret',
    );
  });

  it('no server name and no word on usage reports', () => {
    writeFileSync(file, '{}');
    const { problems } = checkConfig([file], { env: {} });
    expect(problems.map(describeProblem)).toEqual([
      `${file}: server_name: missing: expected a server name such as example.org or example.org:8448`,
      expect.stringContaining(`${file}: report_stats: must be set`),
    ]);
  });

  it('secrets in line when they must lie in files', () => {
    const found = (lines: string): readonly string[] => problemsOf(lines, { noSecretsInConfig: true });
    expect(found('form_secret: a')[0]).toContain('homeserver.yaml:3: form_secret: secrets must not stand');
    const provider = "oidc_providers: [{idp_id: a, idp_name: A, issuer: 'https://a', client_id: c, client_secret";
    expect(found(`${provider}: s}]`)[0]).toContain('oidc_providers[0].client_secret: secrets must not stand');
    writeFileSync(join(folder, 'oidc-secret'), 's\n');
    expect(found(`${provider}_path: oidc-secret}]`)).toEqual([]);
  });
});

const wrongValues: [lines: string, expected: string][] = [
  [
    'default_room_version: org.matrix.msc1767.10',
    'homeserver.yaml:3: default_room_version: expected a known room version: "1" to "12", found "org.matrix.msc1767.10"',
  ],
  ['default_room_version: 13', 'homeserver.yaml:3: default_room_version: expected a known room version'],
  [
    'max_upload_size: much',
    'homeserver.yaml:3: max_upload_size: expected a size such as 500K, 50M or 1G, found "much"',
  ],
  [
    'listeners:\n  - type: http\n    port: 80080',
    'homeserver.yaml:5: listeners[0].port: expected a whole number from 0 to 65535, found 80080',
  ],
  [
    'federation:\n  client_timeout: soon',
    'homeserver.yaml:4: federation.client_timeout: expected a duration such as 30s, 5m, 1h, 7d, 4w or 1y (a plain number is milliseconds), found "soon"',
  ],
  ['enable_search: "yes"', 'homeserver.yaml:3: enable_search: expected true or false, found "yes"'],
  ['email: mail.example.org', 'homeserver.yaml:3: email: expected a section with settings such as'],
  [
    'modules: word-filter',
    'homeserver.yaml:3: modules: expected a list, each entry a section with module, found "word-filter"',
  ],
  ['modules:\n - config: {}', 'homeserver.yaml:4: modules[0]: module is missing'],
  [
    'ip_range_blacklist: [10.0.0.0/33]',
    'homeserver.yaml:3: ip_range_blacklist[0]: expected an IP address or a range such as 10.0.0.0/8, found "10.0.0.0/33"',
  ],
  [
    'public_baseurl: https://x/?a=1',
    'homeserver.yaml:3: public_baseurl: expected an http:// or https:// URL without query and fragment',
  ],
  [
    'form_secret: 12345',
    'homeserver.yaml:3: form_secret: expected text that is not empty (in quotes when it looks like a number), found a number',
  ],
  [
    'allowed_local_3pids: [{medium: email, pattern: "["}]',
    'homeserver.yaml:3: allowed_local_3pids[0].pattern: expected a regular expression, found "["',
  ],
  [
    'rc_message: {per_second: -1}',
    'homeserver.yaml:3: rc_message.per_second: expected a number of at least 0, found -1',
  ],
  ['listeners: [{port: 1', 'homeserver.yaml:4: not valid YAML'],
  [
    'enable_search: true\n enable_metrics: true',
    'homeserver.yaml:3: not valid YAML: Nested mappings are not allowed in compact mappings; are the spaces at the beginning of this line and the next right?',
  ],
];

describe('values that cannot be read', () => {
  it.each(wrongValues)('%s', (lines, expected) => {
    const [problem = ''] = problemsOf(lines);
    expect(problem.slice('error '.length)).toContain(expected);
  });

  it('never shows a secret', () => {
    expect(problemsOf('form_secret: [hunter2]').join()).not.toContain('hunter2');
  });

  it('throws all errors at once', () => {
    writeFileSync(file, 'server_name: example.org\nreport_stats: maybe\nlog_file: x\n');
    expect(() => loadConfig([file], { env: {} })).toThrow(SettingsError);
    expect(() => loadConfig([file], { env: {} })).toThrow(
      /homeserver\.yaml:2: report_stats: expected true or false.*\n.*homeserver\.yaml:3: log_file/,
    );
  });

  it('tells a missing file, an empty folder and a file that is no section', () => {
    expect(checkConfig([join(folder, 'none.yaml')]).problems[0]?.message).toBe(
      'cannot read: there is no such file or folder',
    );
    expect(checkConfig([mkdtempSync(join(folder, 'd'))]).problems[0]?.message).toContain('no *.yaml files');
    writeFileSync(file, '- a\n- b\n');
    expect(checkConfig([file]).problems[0]?.message).toContain('expected settings');
    // Beside a file a folder may be empty: units name one for what may be added.
    writeFileSync(file, 'server_name: example.org\nreport_stats: false\n');
    expect(checkConfig([file, mkdtempSync(join(folder, 'd'))]).config?.serverName).toBe('example.org');
  });

  it('survives a YAML bomb', () => {
    const lines = ['a0: &a0 [x,x,x,x,x,x,x,x,x,x]'];
    for (let i = 1; i < 12; i++)
      lines.push(
        `a${i}: &a${i} [${Array(10)
          .fill(`*a${i - 1}`)
          .join()}]`,
      );
    writeFileSync(file, lines.join('\n'));
    expect(checkConfig([file]).problems[0]?.message).toContain('Excessive alias count');
  });
});

describe('hostile files', () => {
  it.each([
    ['a structure within itself', 'modules: [{module: a, config: &a {b: *a}}]'],
    ['endless nesting', `modules: ${'['.repeat(100_000)}`],
    ['a huge file', `# ${'x'.repeat(5_000_000)}`],
  ])('%s is an error, not a crash', (_name, lines) => {
    expect(problemsOf(lines)[0]).toMatch(/^error homeserver\.yaml/);
  });

  it('a key that means something to the runtime is only an unknown key', () => {
    expect(
      problemsOf(
        '__proto__: {server_name: evil.org}\nconstructor: {}\nemail: {__proto__: {}, toString: 1, notif_from: a}',
      ).length,
    ).toBe(4);
    expect(loadConfig([file], { env: {} }).serverName).toBe('example.org');
  });
});

describe('warnings', () => {
  it('an unknown name with the nearest known one, at the top and inside', () => {
    expect(
      problemsOf(
        'enable_registratoin: true\nemail: {notif_from: a@b, smtp_hots: x}\nlisteners: [{port: 1, type: http, x_forward: true}]\nzebra: 1',
      ),
    ).toEqual(
      expect.arrayContaining([
        'warning homeserver.yaml:3: enable_registratoin: unknown setting, ignored; did you mean enable_registration?',
        'warning homeserver.yaml:4: email.smtp_hots: unknown setting, ignored; did you mean smtp_host?',
        'warning homeserver.yaml:5: listeners[0].x_forward: unknown, ignored; did you mean x_forwarded?',
        'warning homeserver.yaml:6: zebra: unknown setting, ignored',
      ]),
    );
  });

  it('a key that stands twice, of which the last holds', () => {
    expect(problemsOf('max_mau_value: 1\nmax_mau_value: 2')).toContainEqual(
      'warning homeserver.yaml:4: the same key stands here twice: the last one holds',
    );
    expect(loadConfig([file], { env: {} }).get('max_mau_value')).toBe(2);
    expect(problemsOf('max_mau_value: 1\nmax_mau_value: x')[0]).toContain('error homeserver.yaml:4: max_mau_value');
  });
});

it('databases: the one that holds all but state is the database', () => {
  const entry = (file: string, store: string): object => ({ data_stores: [store], args: { database: file } });
  const config = Config.fromObject(
    { databases: { a: entry('main.db', 'main'), b: entry('state.db', 'state') } },
    { configDir: '/srv/rookery' },
  );
  expect(config.get('database.args')).toEqual({ database: '/srv/rookery/main.db' });
  expect(config.get('databases')?.['b']?.args).toEqual({ database: '/srv/rookery/state.db' });
  expect(config.warnings).toEqual([]);
});

it('databases: one that holds everything is the database', () => {
  const args = { user: 'u', dbname: 'd' };
  const stores = { name: 'psycopg2', args, txn_limit: 7, allow_unsafe_locale: true };
  const config = Config.fromObject({ databases: { all: stores, none: { ...stores, data_stores: [] } } });
  expect([config.get('database.name'), config.get('database.args'), config.get('database.txn_limit')]).toEqual([
    'psycopg2',
    args,
    7,
  ]);
  expect(config.get('database.allow_unsafe_locale')).toBe(true);
  expect(config.warnings).toEqual([]);
});
