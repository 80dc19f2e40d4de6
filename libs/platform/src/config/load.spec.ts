import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SystemIds } from '../ids.js';
import { Config } from './config.js';
import { checkConfig, loadConfig } from './load.js';
import { describeProblem } from './problem.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-load-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = join(folder, 'homeserver.yaml');

/** Writes a file with these lines behind the necessary two, and tells what is remarked about it. */
function problemsOf(lines: string): string[] {
  writeFileSync(file, `server_name: example.org\nreport_stats: false\n${lines}\n`);
  return checkConfig([file], { env: {} }).problems.map(
    (problem) => `${problem.level} ${describeProblem(problem).replaceAll(`${folder}/`, '')}`,
  );
}

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

  it('takes database and databases for one matter, of which the later file decides', () => {
    const [one, two] = [join(folder, 'one.yaml'), join(folder, 'two.yaml')];
    const stores = '{a: {data_stores: main, args: {database: a.db}}, b: {data_stores: state, args: {database: b.db}}}';
    writeFileSync(one, 'server_name: example.org\nreport_stats: false\ndatabase: {args: {database: one.db}}\n');
    writeFileSync(two, `databases: ${stores}\n`);
    expect(loadConfig([one, two], { env: {} }).get('database.args')).toEqual({ database: join(folder, 'a.db') });
    expect(loadConfig([two, one], { env: {} }).get('databases')).toBeUndefined();
    expect(loadConfig([two, one], { env: {} }).get('database.args')).toEqual({ database: join(folder, 'one.db') });
  });

  it.each([
    ['1.0', '1.0'],
    ['1.10', '1.1'],
    ['2', '2'],
    ['1_0', '10'],
    ['"1.0"', '1.0'],
    ['2024-01-01', '2024-01-01'],
  ])('takes the version %s for the text that Python makes of it', (written, text) => {
    const lines = `x: &version ${written}\nform_secret: s\nuser_consent: {template_dir: x, version: *version}`;
    expect(problemsOf(lines)).toEqual(['warning homeserver.yaml:3: x: unknown setting, ignored']);
    expect(loadConfig([file], { env: {} }).get('user_consent.version')).toBe(text);
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

  it('takes rules without an action for such that allow, and presets that are null for such without levels', () => {
    const rules = "[{user_id: '@a:*'}, {alias: '#b*', action: deny}]";
    expect(
      problemsOf(
        `alias_creation_rules: ${rules}\nroom_list_publication_rules: ${rules}\ndefault_power_level_content_override:\n  public_chat:\n  private_chat: {ban: 60}`,
      ),
    ).toEqual([]);
    const config = loadConfig([file], { env: {} });
    for (const name of ['alias_creation_rules', 'room_list_publication_rules'] as const)
      expect(config.get(name)).toEqual([
        { user_id: '@a:*', alias: '*', room_id: '*', action: 'allow' },
        { user_id: '*', alias: '#b*', room_id: '*', action: 'deny' },
      ]);
    expect(config.get('default_power_level_content_override')).toEqual({ public_chat: {}, private_chat: { ban: 60 } });
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

  it('makes the key of short-lived tokens from the signing key where there is no other', () => {
    const key = join(folder, 'key');
    const secret = (): string | undefined => loadConfig([file], { env: {} }).get('macaroon_secret_key');
    problemsOf('signing_key_path: key');
    expect(secret()).toBeUndefined();
    writeFileSync(key, 'ed25519 a_abcd first\n');
    const made = secret();
    expect(made).toMatch(/^[0-9a-f]{64}$/);
    expect(secret()).toBe(made);
    writeFileSync(key, 'ed25519 a_abcd second\n');
    expect(secret()).not.toBe(made);
    problemsOf('signing_key_path: key\nregistration_shared_secret: shared');
    expect(secret()).toBe('shared');
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

  it('takes what was left empty for what is not set', () => {
    const empty = [
      ...['web_client_location', 'pid_file', 'log_config', 'tls_certificate_path', 'signing_key_path', 'worker_name'],
      ...['registration_shared_secret', 'form_secret', 'turn_shared_secret', 'turn_password', 'recaptcha_public_key'],
      ...['recaptcha_private_key', 'default_identity_server', 'http_proxy', 'worker_replication_secret'],
    ];
    const problems = problemsOf(
      `${empty.map((name) => `${name}: ''`).join('\n')}
macaroon_secret_key: ""
registration_shared_secret_path: anew
account_threepid_delegates: {msisdn: ''}
redis: {password: ''}
sentry: {dsn: ''}
email: {notif_from: a@b.example, smtp_port: null, smtp_user: '', smtp_pass: '', client_base_url: ''}
listeners:
 - {port: 1, type: http, bind_address: ''}
 - {port: 2, type: http, bind_addresses: []}`,
    );
    expect(problems).toEqual([expect.stringMatching(/registration_shared_secret_path: cannot read/)]);
    const config = loadConfig([file], { env: { http_proxy: 'http://env' }, createSecrets: new SystemIds() });
    const shared = config.get('registration_shared_secret');
    expect(shared).toMatch(/^[A-Za-z]{50}$/);
    expect(config.get('macaroon_secret_key')).toBe(shared);
    expect(config.get('signing_key_path')).toBe(join(folder, 'example.org.signing.key'));
    expect(config.get('email.smtp_port')).toBe(25);
    expect([config.get('email.smtp_user'), config.get('turn_password'), config.get('http_proxy')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(config.get('listeners').map(({ bind_addresses: addresses }) => addresses)).toEqual([undefined, undefined]);
    // What has a default, or must be there, is not left empty.
    expect(problemsOf(`media_store_path: ''\nemail: {notif_from: a@b.example, smtp_host: ''}`)).toHaveLength(2);
  });

  it('takes what other files of the field hold', () => {
    const settings = `gc_min_interval: [0.5s, 30s, 1m]
turn_uris: [stun:turn.example.org, "turn:turn.example.org?transport=udp"]
url_preview_url_blacklist: [{netloc: example.org, port: 8080}]`;
    expect(problemsOf(settings)).toEqual([expect.stringMatching(/^warning .*gc_min_interval: has no meaning here/)]);
    expect(loadConfig([file], { env: {} }).get('url_preview_url_blacklist')).toEqual([
      { netloc: 'example.org', port: '8080' },
    ]);
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
    expect(Config.fromObject({ email: { force_tls: true, notif_from: 'x' } }).get('email.smtp_port')).toBe(465);
    const service = Config.fromObject({ matrix_authentication_service: { enabled: true, secret: 's' } });
    expect([service.get('password_config.enabled'), service.get('enable_3pid_changes')]).toEqual([false, false]);
  });

  it('takes a plain list of the state that invited people see for the whole of it', () => {
    const config = Config.fromObject({ room_prejoin_state: ['m.room.name', ['m.space.parent', '!a:b']] });
    expect(config.get('room_prejoin_state.disable_default_event_types')).toBe(true);
    expect(config.get('room_prejoin_state.additional_event_types')).toEqual([
      'm.room.name',
      ['m.space.parent', '!a:b'],
    ]);
    const problem = (): Config => Config.fromObject({ room_prejoin_state: [1] });
    expect(problem).toThrow(/room_prejoin_state\.additional_event_types\[0\]/);
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

  it('keeps the port of metrics of a file without listeners, beside the usual one', () => {
    const ports = (lines: string) => {
      problemsOf(lines);
      return loadConfig([file], { env: {} })
        .get('listeners')
        .map(({ port, type }) => [port, type]);
    };
    expect(ports('metrics_port: 9000')).toEqual([
      [8008, 'http'],
      [9000, 'metrics'],
    ]);
    expect(ports('metrics_port: 9000\nlisteners: []')).toEqual([[9000, 'metrics']]);
  });

  it('says of a module that only a path of a listener names that it is not loaded', () => {
    const listeners = `listeners:
- port: 8008
  type: http
  additional_resources:
    /_my/path: {module: my.Resource, config: {}}
    /_other: {module: ./other}
`;
    const opensOnly = (module: string): string =>
      `opens the path only: list ${module} under modules, where it registers the path itself`;
    expect(problemsOf(listeners)).toEqual([
      `warning homeserver.yaml:7: listeners[0].additional_resources./_my/path: ${opensOnly('my.Resource')}`,
      `warning homeserver.yaml:8: listeners[0].additional_resources./_other: ${opensOnly('./other')}`,
    ]);
    expect(problemsOf(`${listeners}modules: [{module: ./other}, {module: my.Resource}]`)).toEqual([]);
  });

  it('reloads what may change while running, and says what needs a restart', () => {
    const config = Config.fromObject({ caches: { global_factor: 1 } });
    const seen: string[] = [];
    config.onReload((changed) => seen.push(...changed));
    const result = config.reload(
      Config.fromObject({
        ...{ caches: { global_factor: 4 }, enable_search: false, worker_log_config: 'worker.yaml' },
        ...{ rc_message: { per_second: 1 }, retention: { allowed_lifetime_max: '1d' } },
      }),
    );
    const taken = ['caches.global_factor', 'rc_message', 'retention.allowed_lifetime_max', 'worker_log_config'];
    expect([...result.changed].sort()).toEqual(taken);
    expect(result.needRestart).toEqual(['enable_search']);
    expect(config.get('caches.global_factor')).toBe(4);
    expect(config.get('enable_search')).toBe(true);
    expect(seen.sort()).toEqual(taken);
  });
});
