import { mkdtempSync, rmSync, statSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SystemIds } from '../ids.js';
import { Config } from './config.js';
import { checkConfig, loadConfig, type LoadOptions } from './load.js';
import { describeProblem } from './problem.js';
import { ConfigError } from './problem.js';

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
    ['error homeserver.yaml:3: form_secret_path: cannot read nowhere: ENOENT'],
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
    const problems = problemsOf(lines).filter((problem) => !problem.includes('has no effect'));
    expect(problems.map((problem, index) => problem.slice(0, expected[index]?.length))).toEqual(expected);
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
    expect(problemsOf('form_secret: a', { noSecretsInConfig: true })[0]).toContain(
      'homeserver.yaml:3: form_secret: secrets must not stand',
    );
  });
});

const wrongValues: [lines: string, expected: string][] = [
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
    expect(() => loadConfig([file], { env: {} })).toThrow(ConfigError);
    expect(() => loadConfig([file], { env: {} })).toThrow(
      /homeserver\.yaml:2: report_stats: expected true or false.*\n.*homeserver\.yaml:3: log_file/,
    );
  });

  it('tells a missing file, an empty folder and a file that is no section', () => {
    expect(checkConfig([join(folder, 'none.yaml')]).problems[0]?.message).toBe('cannot read: there is no such file');
    expect(checkConfig([mkdtempSync(join(folder, 'd'))]).problems[0]?.message).toContain('no *.yaml files');
    writeFileSync(file, '- a\n- b\n');
    expect(checkConfig([file]).problems[0]?.message).toContain('expected settings');
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
    expect(checkConfig([file]).problems[0]?.message).toContain('not valid YAML');
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

describe('reading', () => {
  it('merges files and folders by top-level key', () => {
    const first = join(folder, 'first.yaml');
    const parts = mkdtempSync(join(folder, 'conf.d-'));
    writeFileSync(
      first,
      'server_name: example.org\nreport_stats: false\nemail: {smtp_host: a, smtp_port: 26, notif_from: x}\n',
    );
    writeFileSync(join(parts, '20.yaml'), 'max_mau_value: 20\n');
    writeFileSync(join(parts, '10.yaml'), 'email: {smtp_host: b, notif_from: x}\nmax_mau_value: nope\n');
    writeFileSync(join(parts, 'note.txt'), 'not settings');
    const config = loadConfig([first, parts], { env: {} });
    expect(config.get('email.smtp_host')).toBe('b');
    expect(config.get('email.smtp_port')).toBe(25);
    expect(config.get('max_mau_value')).toBe(20);
    expect(config.configDir).toBe(folder);
    expect(config.where('email.smtp_host')).toBe(`${join(parts, '10.yaml')}:1`);
  });

  it('reads YAML 1.1: words for true, merges, null sections, octal', () => {
    expect(
      problemsOf(
        'x-base: &base {port: 1, type: http}\nlisteners:\n - {<<: *base, port: 2, mode: 0600}\nemail:\nenable_search: no\nencryption_enabled_by_default_for_room_type: off',
      ),
    ).toEqual(['warning homeserver.yaml:3: x-base: unknown setting, ignored']);
    const config = loadConfig([file], { env: {} });
    expect(config.get('listeners')[0]).toMatchObject({ port: 2, type: 'http', mode: 0o600, x_forwarded: false });
    expect(config.get('enable_search')).toBe(false);
    expect(config.get('encryption_enabled_by_default_for_room_type')).toBe('off');
  });

  it('takes secrets from files, and makes the one of registration', () => {
    writeFileSync(join(folder, 'pass'), 'hunter2\n');
    problemsOf('turn_shared_secret_path: pass\nregistration_shared_secret_path: made');
    const config = loadConfig([file], { env: {}, createSecrets: new SystemIds() });
    expect(config.get('turn_shared_secret')).toBe('hunter2');
    const made = readFileSync(join(folder, 'made'), 'utf8').trim();
    expect(made).toMatch(/^[A-Za-z]{50}$/);
    expect(statSync(join(folder, 'made')).mode & 0o777).toBe(0o600);
    expect(loadConfig([file], { env: {}, createSecrets: new SystemIds() }).get('registration_shared_secret')).toBe(
      made,
    );
    expect(config.get('macaroon_secret_key')).toBe(made);
  });

  it('takes proxies and cache factors from the environment where the file is silent', () => {
    problemsOf('https_proxy: http://file\ncaches: {per_cache_factors: {"*getEvent*": 3, other: 1}}');
    const env = {
      http_proxy: 'http://env',
      https_proxy: 'http://env',
      no_proxy: 'a, .b',
      SYNAPSE_CACHE_FACTOR: '2',
      SYNAPSE_CACHE_FACTOR_OTHER: '7',
    };
    const config = loadConfig([file], { env });
    expect(config.get('http_proxy')).toBe('http://env');
    expect(config.get('https_proxy')).toBe('http://file');
    expect(config.get('no_proxy_hosts')).toEqual(['a', '.b']);
    expect(config.get('caches.global_factor')).toBe(2);
    expect({ ...config.get('caches.per_cache_factors') }).toEqual({ getevent: 3, other: 7 });
  });

  it('tells null from silence where that matters', () => {
    expect(Config.fromObject({}).get('redaction_retention_period')).toBe(7 * 86_400_000);
    expect(Config.fromObject({ redaction_retention_period: null }).get('redaction_retention_period')).toBeUndefined();
    expect(Config.fromObject({ max_upload_size: null }).get('max_upload_size')).toBe(50 * 1024 * 1024);
  });

  it('fills in what follows from other settings', () => {
    const config = Config.fromObject({ server_name: 'example.org' }, { configDir: '/etc/rookery' });
    expect(config.get('signing_key_path')).toBe('/etc/rookery/example.org.signing.key');
    expect(config.get('media_store_path')).toBe('/etc/rookery/media_store');
    expect(config.get('database.args')['database']).toBe('/etc/rookery/homeserver.db');
    expect(config.get('listeners')).toMatchObject([
      { port: 8008, bind_addresses: ['127.0.0.1'], resources: [{ names: ['client', 'federation'] }] },
    ]);
    expect(config.get('pusher_instances')).toEqual(['master']);
    expect(Config.fromObject({ start_pushers: false }).get('pusher_instances')).toEqual([]);
    expect(Config.fromObject({ email: { force_tls: true, notif_from: 'x' } }).get('email.smtp_port')).toBe(465);
    const service = Config.fromObject({ matrix_authentication_service: { enabled: true, secret: 's' } });
    expect([service.get('password_config.enabled'), service.get('enable_3pid_changes')]).toEqual([false, false]);
  });

  it('reads what old names say', () => {
    const config = Config.fromObject({
      use_presence: false,
      rc_messages_per_second: 9,
      caches: { expiry_time: '5m' },
      push: { redact_content: true },
      metrics_port: 9000,
      listeners: [{ port: 8008, type: 'http' }],
      backup_media_store_path: '/backup',
      spam_checker: { module: 'checker', config: { a: 1 } },
      modules: [{ module: 'other' }],
      oidc_config: { enabled: true, issuer: 'i', client_id: 'c', client_secret: 's' },
      perspectives: { servers: { 'a.org': { verify_keys: { 'ed25519:1': { key: 'K' } } } } },
      room_invite_state_types: ['m.room.name'],
      saml2_config: { mxid_source_attribute: 'uid' },
      sso: { template_dir: '/templates' },
      allow_underscore_prefixed_registration: true,
    });
    expect(config.get('presence.enabled')).toBe(false);
    expect(config.get('rc_message')).toEqual({ per_second: 9, burst_count: 10 });
    expect(config.get('caches.cache_entry_ttl')).toBe(300_000);
    expect(config.get('push.include_content')).toBe(false);
    expect(config.get('listeners').map(({ port, type }) => [port, type])).toEqual([
      [8008, 'http'],
      [9000, 'metrics'],
    ]);
    expect(config.get('media_storage_providers')).toMatchObject([
      { module: 'file_system', store_local: true, config: { directory: '/backup' } },
    ]);
    expect(config.get('modules')).toMatchObject([
      { module: 'checker', config: { a: 1 }, on_error: 'deny' },
      { module: 'other' },
    ]);
    expect(config.get('oidc_providers')).toMatchObject([{ idp_id: 'oidc', issuer: 'i' }]);
    expect(config.get('trusted_key_servers')).toMatchObject([
      { server_name: 'a.org', verify_keys: { 'ed25519:1': 'K' } },
    ]);
    expect(config.get('room_prejoin_state.additional_event_types')).toEqual(['m.room.name']);
    expect(config.get('saml2_config.user_mapping_provider')?.config).toEqual({ mxid_source_attribute: 'uid' });
    expect(config.get('templates.custom_template_directory')).toBe('/templates');
    expect(config.get('allow_underscore_prefixed_localpart')).toBe(true);
    expect(config.warnings.filter((one) => one.message.startsWith('deprecated')).length).toBeGreaterThan(10);
  });

  it('reloads what may change while running, and says what needs a restart', () => {
    const config = Config.fromObject({ caches: { global_factor: 1 } });
    const seen: string[] = [];
    config.onReload((changed) => seen.push(...changed));
    const result = config.reload(Config.fromObject({ caches: { global_factor: 4 }, enable_search: false }));
    expect([...result.changed]).toEqual(['caches.global_factor']);
    expect(result.needRestart).toEqual(['enable_search']);
    expect(config.get('caches.global_factor')).toBe(4);
    expect(config.get('enable_search')).toBe(true);
    expect(seen).toEqual(['caches.global_factor']);
  });
});
