import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL, fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { suggestModules } from './module-suggest.js';

const examples = fileURLToPath(new URL('../../../../modules-examples/', import.meta.url));
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-suggest-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function suggest(settings: string) {
  const file = join(folder, 'homeserver.yaml');
  writeFileSync(file, settings);
  const [out, notes]: [string[], string[]] = [[], []];
  const terminal = { out: (line: string) => out.push(line), note: (line: string) => notes.push(line) };
  suggestModules(file, terminal as unknown as Terminal);
  const text = out.join('\n');
  const { modules = [] } = (parse(text) ?? {}) as { modules?: { module: string; config?: unknown }[] };
  return { text, notes, modules };
}

const everything = `
server_name: example.org
modules:
  - module: ldap_auth_provider.LdapAuthProviderModule
    config:
      uri: ldap://ldap.example
      start_tls: true
      base: ou=people,dc=example
      attributes: { uid: cn, mail: mail, name: givenName }
      bind_dn: cn=matrix,dc=example
      bind_password: secret
      filter: (objectClass=person)
  - module: shared_secret_authenticator.SharedSecretAuthProvider
    config: { shared_secret: "${'s'.repeat(40)}", m_login_password_support_enabled: true }
  - module: rest_auth_provider.RestAuthProvider
    config: { endpoint: 'https://id.example/check' }
  - module: synapse_http_antispam.HTTPAntispam
    config:
      base_url: https://spam.example/api
      authorization: token
      enabled_callbacks: [user_may_invite, check_event_for_spam, user_may_create_room]
  - module: synapse_email_account_validity.EmailAccountValidity
    config: { period: 6w, renew_at: 1w, renew_email_subject: 'Renew your %(app)s account' }
  - module: synapse_domain_rule_checker.DomainRuleChecker
    config:
      default: false
      domain_mapping: { a.example: [a.example, b.example], b.example: [] }
      can_only_join_rooms_with_invite: true
  - module: mjolnir.Module
    config: { block_invites: true, ban_lists: ['!list:example.org'] }
  - module: matrix_e2ee_filter.EncryptedRoomFilter
    config: { deny_encryption_for_users_of: [a.example] }
  - module: synapse_auto_accept_invite.InviteAutoAccepter
    config: { accept_invites_only_for_direct_messages: true }
  - module: someones.own.Module
media_storage_providers:
  - module: s3_storage_provider.S3StorageProviderBackend
    config: { bucket: media, region_name: eu, endpoint_url: 'https://s3.example', access_key_id: a, secret_access_key: b, session_token: c, cache_directory: /cache, sse_customer_key: d }
`;

it('names a package for each module that is known, with settings that the package takes', async () => {
  const { modules, text, notes } = suggest(everything);
  const named = modules.map(({ module }) => module.replace('@rookery-examples/', ''));
  expect(named).toEqual([
    ...['ldap-login', 'shared-secret-auth', 'rest-auth', 'http-antispam', 'account-validity-mail', 'invite-policy'],
    ...['policy-lists', 'encryption-policy', 's3-media-storage'],
  ]);
  for (const [i, name] of named.entries()) {
    if (name === 's3-media-storage') continue;
    const url = pathToFileURL(join(examples, name, 'src/config.ts')).href;
    const { parseConfig } = (await import(url)) as { parseConfig: (raw: unknown) => unknown };
    expect(() => parseConfig(modules[i]!.config)).not.toThrow();
  }
  const configOf = (name: string): unknown => modules[named.indexOf(name)]?.config;
  expect(configOf('ldap-login')).toMatchObject({
    directories: [{ url: 'ldap://ldap.example', start_tls: true, uid: 'cn', display_name: 'givenName', mail: 'mail' }],
  });
  expect(configOf('account-validity-mail')).toEqual({
    ...{ period_days: 42, renew_days_before: 7, subject: 'Renew your Matrix account' },
  });
  expect(configOf('http-antispam')).toMatchObject({ ask: ['invite', 'event'], token: 'token' });
  expect(configOf('invite-policy')).toEqual({
    rules: [
      { from: '*:a.example', to: '*:a.example', action: 'allow' },
      { from: '*:a.example', to: '*:b.example', action: 'allow' },
      { from: '*:a.example', action: 'deny' },
      { from: '*:b.example', action: 'deny' },
    ],
    otherwise: 'deny',
  });
  // What does not come along is said beside it.
  for (const said of [
    ...[
      'There is no filter ((objectClass=person))',
      'Not asked: user_may_create_room',
      'Not taken over: can_only_join',
    ],
    ...[
      'auto_accept_invites: {"enabled":true,"only_for_direct_messages":true',
      'media_storage_providers: [{"module":"s3',
      '"session_token":"c","cache_folder":"/cache"',
      'Not taken over: sse_customer_key.',
    ],
    ...['# someones.own.Module\n  #   Nothing is known'],
  ])
    expect(text).toContain(said);
  expect(notes).toContain('rookery module add @rookery-examples/ldap-login');
  expect(notes.at(-1)).toBe('1 of 11 have no counterpart here.');
});

it('reads older settings, too, and says where there are none', () => {
  const old = suggest(
    `password_providers:\n  - module: ldap_auth_provider.LdapAuthProvider\n    config: { uri: 'ldaps://a', base: b }\n`,
  );
  expect(old.modules).toMatchObject([{ module: '@rookery-examples/ldap-login' }]);
  const spam = suggest(`spam_checker:\n  module: mjolnir.AntiSpam\n  config: { ban_lists: ['!a:x'] }\n`);
  expect(spam.modules).toMatchObject([{ module: '@rookery-examples/policy-lists', config: { rooms: ['!a:x'] } }]);
  expect(suggest('server_name: x\n').notes).toEqual([expect.stringContaining('names no modules')]);
  expect(() => suggest('a: [')).toThrow(CommandError);
});

it('leaves alone what is a module of this server', () => {
  const { text, notes } = suggest(`modules:
  - module: '@rookery-examples/word-filter'
  - module: ./no-shouting
  - module: my-filter
`);
  expect([text.trim(), ...notes].join()).toContain('names no modules of Python');
});
