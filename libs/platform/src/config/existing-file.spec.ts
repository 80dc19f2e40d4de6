import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { checkConfig } from './load.js';
import { describeProblem } from './problem.js';

const folder = mkdtempSync(join(tmpdir(), 'rookery-existing-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What an operator brings along who has run another server for years. */
const existing = `
# Configuration file.
#
# [1] https://matrix-org.github.io/synapse/latest/usage/configuration/config_documentation.html
modules:
  - module: rookery-invite-policy
    config:
      allowed: ["*:example.org"]

server_name: "example.org"
public_baseurl: https://matrix.example.org
serve_server_wellknown: true
pid_file: /var/run/matrix-synapse.pid
presence: {enabled: no}
require_auth_for_profile_requests: true
allow_public_rooms_over_federation: true
default_room_version: 10
ip_range_blacklist:
  - '127.0.0.0/8'
  - '10.0.0.0/8'
  - '::1/128'
x-listener: &private
  tls: false
  type: http
  x_forwarded: true
  bind_addresses: ['::1', '127.0.0.1']
listeners:
  - <<: *private
    port: 8008
    resources:
      - names: [client, federation]
        compress: false
  - port: 9000
    type: metrics
    bind_addresses: 0.0.0.0
  - path: /run/rookery/main.sock
    type: http
    mode: 0660
    resources: [{names: replication}]

database:
  name: psycopg2
  txn_limit: 10000
  args:
    user: synapse_user
    password: "s3cret: with, signs"
    dbname: synapse
    host: localhost
    cp_min: 5
    cp_max: 10

log_config: "/etc/matrix-synapse/example.org.log.config"
media_store_path: /var/lib/matrix-synapse/media
max_upload_size: 100M
media_retention:
  local_media_lifetime: 90d
  remote_media_lifetime: 14d
url_preview_enabled: true
url_preview_ip_range_blacklist: ['127.0.0.0/8', '10.0.0.0/8']
url_preview_url_blacklist:
  - username: '*'
  - netloc: '^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$'

retention:
  enabled: true
  default_policy: {min_lifetime: 1d, max_lifetime: 1y}
  purge_jobs:
    - {longest_max_lifetime: 3d, interval: 12h}
    - {shortest_max_lifetime: 3d, interval: 1d}

caches:
  global_factor: 1.0
  per_cache_factors:
    get_users_who_share_room_with_user: 2.0
  expire_caches: false
  sync_response_cache_duration: 2m

rc_message: {per_second: 0.2, burst_count: 10}
rc_login:
  address: {per_second: 0.15, burst_count: 5}
rc_joins:
  local: {per_second: 0.1}

turn_uris: ["turn:turn.example.org?transport=udp", "turn:turn.example.org?transport=tcp"]
turn_shared_secret: "AbCd"
turn_user_lifetime: 1h

enable_registration: true
registration_requires_token: true
registrations_require_3pid:
  - email
registration_shared_secret: "XYZ"
auto_join_rooms: ["#welcome:example.org"]
bcrypt_rounds: 12
allow_guest_access: false
enable_metrics: true
report_stats: no
macaroon_secret_key: "abc"
form_secret: "def"
signing_key_path: "/etc/matrix-synapse/example.org.signing.key"
old_signing_keys:
  "ed25519:a_old": {key: "base64string", expired_ts: 123456789123}
trusted_key_servers:
  - server_name: "matrix.org"
suppress_key_server_warning: true
app_service_config_files:
  - /etc/matrix-synapse/irc.yaml

oidc_providers:
  - idp_id: keycloak
    idp_name: "Company login"
    issuer: "https://sso.example.org/realms/staff"
    client_id: "synapse"
    client_secret: "oidcsecret"
    scopes: ["openid", "profile"]
    user_mapping_provider:
      config:
        localpart_template: "{{ user.preferred_username }}"
        display_name_template: "{{ user.name }}"
    backchannel_logout_enabled: true
password_config:
  enabled: true
  pepper: "PEPPER"
  policy: {enabled: true, minimum_length: 15, require_digit: true}
email:
  smtp_host: mail.example.org
  smtp_port: 587
  smtp_user: "synapse"
  smtp_pass: "mailsecret"
  require_transport_security: true
  notif_from: "Your friendly %(app)s homeserver <noreply@example.org>"
  enable_notifs: true
  client_base_url: "https://chat.example.org"
  subjects: {password_reset: "[%(server_name)s] New password"}
push:
  include_content: false
user_directory: {enabled: true, search_all_users: false}
user_consent:
  template_dir: res/templates/privacy
  version: 1.0
server_notices:
  system_mxid_localpart: notices
  room_name: "Server Notices"
alias_creation_rules:
  - {user_id: "*", alias: "*", room_id: "*", action: allow}
opentracing:
experimental_features:
  msc3814_enabled: true
  msc3266_enabled: true

redis: {enabled: true, host: localhost, password: redispass}
worker_replication_secret: "wsecret"
instance_map:
  main: {path: /run/rookery/main.sock}
`;

const withWorkers = `${existing}
  persister1: {host: localhost, port: 9101}
  sender1: {host: localhost, port: 9102}
stream_writers:
  events: persister1
  typing: [persister1]
federation_sender_instances: [sender1]
`;

describe("an existing server's file", () => {
  const file = join(folder, 'homeserver.yaml');
  writeFileSync(file, existing);
  const { config, problems } = checkConfig([file], { env: {} });
  const get: NonNullable<typeof config>['get'] = (name) => {
    if (!config) throw new Error(problems.map(describeProblem).join('\n'));
    return config.get(name);
  };

  it('is understood; only what is unknown is remarked', () => {
    const remarks = problems
      .filter(({ message }) => !message.includes('has no effect'))
      .map((one) => `${one.level}: ${one.setting}`);
    expect(remarks).toEqual(['warning: x-listener', 'warning: experimental_features.msc3266_enabled']);
  });

  it('means what it meant', () => {
    expect(get('public_baseurl')).toBe('https://matrix.example.org/');
    expect(get('presence.enabled')).toBe(false);
    expect(get('default_room_version')).toBe('10');
    expect(get('listeners')).toMatchObject([
      {
        port: 8008,
        x_forwarded: true,
        bind_addresses: ['::1', '127.0.0.1'],
        resources: [{ names: ['client', 'federation'] }],
      },
      { port: 9000, type: 'metrics', bind_addresses: ['0.0.0.0'] },
      { path: '/run/rookery/main.sock', mode: 0o660, x_forwarded: true, resources: [{ names: ['replication'] }] },
    ]);
    expect(get('database.name')).toBe('psycopg2');
    expect({ ...get('database.args') }).toEqual({
      user: 'synapse_user',
      password: 's3cret: with, signs',
      dbname: 'synapse',
      host: 'localhost',
      cp_min: 5,
      cp_max: 10,
    });
    expect(get('max_upload_size')).toBe(104_857_600);
    expect(get('media_retention.remote_media_lifetime')).toBe(14 * 86_400_000);
    expect(get('retention.default_policy.max_lifetime')).toBe(365 * 86_400_000);
    expect(get('retention.purge_jobs')).toMatchObject([
      { longest_max_lifetime: 3 * 86_400_000, interval: 43_200_000 },
      { interval: 86_400_000 },
    ]);
    expect(get('rc_login.address')).toEqual({ per_second: 0.15, burst_count: 5 });
    expect(get('rc_login.account')).toEqual({ per_second: 0.003, burst_count: 5 });
    expect(get('rc_joins.local')).toEqual({ per_second: 0.1, burst_count: 10 });
    expect(get('report_stats')).toBe(false);
    expect(get('old_signing_keys')['ed25519:a_old']).toEqual({ key: 'base64string', expired_ts: 123456789123 });
    expect(get('oidc_providers')).toMatchObject([
      { idp_id: 'keycloak', discover: true, pkce_method: 'auto', backchannel_logout_enabled: true },
    ]);
    expect(get('password_config.policy.minimum_length')).toBe(15);
    expect(get('email.smtp_port')).toBe(587);
    expect(get('email.subjects.password_reset')).toBe('[%(server_name)s] New password');
    expect(get('email.subjects.email_validation')).toBe('[%(server_name)s] Validate your email');
    expect(get('user_consent.version')).toBe('1.0');
    expect(get('user_consent.template_dir')).toBe(join(folder, 'res/templates/privacy'));
    expect(get('stream_writers.receipts')).toEqual(['master']);
    expect(get('modules')).toMatchObject([{ module: 'rookery-invite-policy', on_error: 'deny' }]);
    expect(get('redis.password')).toBe('redispass');
  });

  it('is taken with workers where it has Redis, and refused for each line that asks for them where it has none', () => {
    const other = join(folder, 'with-workers.yaml');
    writeFileSync(other, withWorkers);
    const asking = ['instance_map', 'stream_writers.events', 'stream_writers.typing', 'federation_sender_instances'];
    const taken = checkConfig([other], { env: {} });
    expect(taken.config).toBeDefined();
    const idle = taken.problems.filter(({ message }) => /has no effect/.test(message)).map(({ setting }) => setting);
    expect(idle).toEqual(expect.arrayContaining(asking.filter((name) => name.startsWith('stream_writers'))));
    expect(idle).not.toContain('federation_sender_instances');

    const without = join(folder, 'without-redis.yaml');
    writeFileSync(without, 'redis: {enabled: false}\n');
    const refused = checkConfig([other, without], { env: {} });
    expect(refused.config).toBeUndefined();
    const errors = refused.problems.filter(({ message }) =>
      /would be a worker, and without redis.enabled/.test(message),
    );
    expect(errors.map(({ setting }) => setting)).toEqual(asking);
  });

  it('keeps passwords out of what is printed', () => {
    for (const secret of ['s3cret', 'mailsecret', 'oidcsecret', 'redispass'])
      expect(problems.map(describeProblem).join()).not.toContain(secret);
  });
});
