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
      enabled_callbacks: [user_may_invite, check_event_for_spam, user_may_create_room, accept_make_join]
      async: { user_may_create_room: true }
  - module: email_account_validity.EmailAccountValidity
    config: { period: 6w, renew_at: 1w, renew_email_subject: 'Renew your %(app)s account' }
  - module: synapse_domain_rule_checker.DomainRuleChecker
    config:
      can_invite_if_not_in_domain_mapping: false
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
    store_local: true
    store_synchronous: false
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
    directories: [
      {
        ...{ url: 'ldap://ldap.example', start_tls: true, uid: 'cn', display_name: 'givenName', mail: 'mail' },
        ...{ filter: '(objectClass=person)', allow_existing_users: true },
      },
    ],
  });
  expect(configOf('account-validity-mail')).toEqual({
    ...{ period_days: 42, renew_days_before: 7, subject: 'Renew your Matrix account' },
  });
  expect(configOf('http-antispam')).toEqual({
    ...{ url: 'https://spam.example/api', token: 'token', form: 'callbacks' },
    ...{ ask: ['invite', 'event', 'room'], background: ['room'], on_failure: { event: 'allow', others: 'deny' } },
  });
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
    ...['Not taken over: accept_make_join', 'Not taken over: can_only_join', 'may not invite by address'],
    ...[
      'auto_accept_invites: {"enabled":true,"only_for_direct_messages":true',
      'media_storage_providers: [{"module":"s3-media-storage","store_local":true,"store_synchronous":false,',
      '"session_token":"c","cache_folder":"/cache"',
      'Not taken over: sse_customer_key.',
    ],
    ...['# someones.own.Module\n  #   Nothing is known'],
  ])
    expect(text).toContain(said);
  expect(notes).toContain('rookery module add @rookery-examples/ldap-login');
  expect(notes.at(-1)).toBe('1 of 11 have no counterpart here.');
});

it('sees what stands outside of modules: a directory, presence', () => {
  const ldap = (enabled: boolean) =>
    suggest(
      `ldap_config: { enabled: ${enabled}, uri: 'ldaps://ldap.example', base: 'dc=x', attributes: { uid: cn } }\n`,
    );
  expect(ldap(true).modules).toMatchObject([
    { module: '@rookery-examples/ldap-login', config: { directories: [{ url: 'ldaps://ldap.example', uid: 'cn' }] } },
  ]);
  expect(ldap(false).notes.join()).toContain('no modules of Python');
  expect(suggest('presence: { presence_router: { module: some.Router } }\n').text).toContain('# some.Router');
});

it('goes by the last of two keys, as the server does', () => {
  const { text, notes } = suggest('modules: [{ module: the.First }]\nmodules: [{ module: the.Last }]\n');
  expect(text).toContain('# the.Last');
  expect(notes).toEqual(['1 of 1 have no counterpart here.']);
  expect(() => suggest('modules: [')).toThrow(/homeserver\.yaml:1: not valid YAML/);
});

it('closes what was closed, and opens what was open', () => {
  const policy = (config: string) =>
    suggest(
      `server_name: a.example\nmodules:\n  - module: synapse_domain_rule_checker.DomainRuleChecker\n    config: ${config}\n`,
    ).modules[0]?.config;
  expect(policy('{ can_invite_if_not_in_domain_mapping: true }')).toEqual({ rules: [], otherwise: 'allow' });
  expect(policy('{ default: true }')).toEqual({ rules: [], otherwise: 'allow' });
  expect(policy('{}')).toEqual({ rules: [], otherwise: 'deny' });

  const checker = (permissions: string) =>
    suggest(
      `server_name: a.example\nmodules:\n  - module: synapse_invite_checker.InviteChecker\n    config: { federation_list_url: 'https://x', default_permissions: ${permissions} }\n`,
    );
  const to = '*:a.example';
  const blocked = checker(
    `{ defaultSetting: block all, serverExceptions: { '@LOCAL_SERVER@': , b.example: }, userExceptions: { '@c:c.example': } }`,
  );
  expect(blocked.modules[0]?.config).toEqual({
    rules: [
      { from: '@c:c.example', to, action: 'allow' },
      { from: '*:a.example', to, action: 'allow' },
      { from: '*:b.example', to, action: 'allow' },
      { to, action: 'deny' },
    ],
    otherwise: 'allow',
  });
  expect(blocked.text).toContain('Not taken over: federation_list_url');
  expect(checker(`{ serverExceptions: { b.example: } }`).modules[0]?.config).toEqual({
    rules: [{ from: '*:b.example', to, action: 'deny' }],
    otherwise: 'allow',
  });

  const antispam = (config: string) =>
    suggest(`modules:\n  - module: synapse_http_antispam.HTTPAntispam\n    config: ${config}\n`).modules[0]?.config;
  expect(antispam('{ base_url: "http://a", enabled_callbacks: [user_may_invite] }')).toMatchObject({
    on_failure: 'deny',
  });
  // Where none is named, all are asked.
  expect(antispam('{ base_url: "http://a", fail_open: { check_event_for_spam: false } }')).toMatchObject({
    ask: expect.arrayContaining(['event', 'join', 'login', 'username']),
    on_failure: 'deny',
  });
});

it('reads older settings, too, and says where there are none', () => {
  const old = suggest(
    `password_providers:\n  - module: ldap_auth_provider.LdapAuthProvider\n    config: { uri: 'ldap://a', base: b }\n`,
  );
  // Passwords do not go there in the open.
  expect(old.modules).toMatchObject([
    { module: '@rookery-examples/ldap-login', config: { directories: [{ url: 'ldap://a', start_tls: true }] } },
  ]);
  const spam = suggest(`spam_checker:\n  module: mjolnir.AntiSpam\n  config: { ban_lists: ['!a:x'] }\n`);
  expect(spam.modules).toMatchObject([{ module: '@rookery-examples/policy-lists', config: { rooms: ['!a:x'] } }]);
  const byPath = suggest(`listeners:
- additional_resources: { /_renew: { module: email_account_validity.Page } }
`);
  expect(byPath.modules).toMatchObject([{ module: '@rookery-examples/account-validity-mail' }]);
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
