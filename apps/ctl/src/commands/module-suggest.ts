import { describeProblem, readSources } from '@rookery/platform';
import { stringify } from 'yaml';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';

type Settings = Readonly<Record<string, unknown>>;

/** What takes the place of a module of another server. */
interface Suggestion {
  /** The package; `undefined` where the server does it itself. */
  readonly package?: string;
  readonly config?: Settings;
  /** What somebody has to look at. */
  readonly notes?: readonly string[];
}

const examples = '@rookery-examples';
const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);
const listOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : [];
const objectOf = (value: unknown): Settings =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Settings) : {};
/** Without what is not there. */
const only = (given: Settings): Settings =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));

const notTaken = (names: readonly string[]): string[] =>
  names.length > 0 ? [`Not taken over: ${names.join(', ')}.`] : [];

const dayMs = 86_400_000;
const units: Readonly<Record<string, number>> = {
  ...{ s: 1000, m: 60_000, h: 3_600_000, d: dayMs, w: 7 * dayMs, y: 365 * dayMs },
};

/** Days, at least one, of a duration: milliseconds, or a number with a unit. */
function daysOf(value: unknown): number | undefined {
  const [, number, unit] = /^(\d+)([smhdwy]?)$/.exec(String(value)) ?? [];
  if (number === undefined) return undefined;
  return Math.max(1, Math.round((Number(number) * (units[unit ?? ''] ?? 1)) / dayMs));
}

function ldap(config: Settings): Suggestion {
  const attributes = objectOf(config['attributes']);
  const [uri, ...others] = Array.isArray(config['uri']) ? listOf(config['uri']) : [textOf(config['uri'])];
  // Passwords are not sent in the open.
  const isPlain = uri?.startsWith('ldap://') === true;
  const directory = only({
    name: 'Directory',
    url: uri,
    start_tls: isPlain ? true : undefined,
    base: textOf(config['base']),
    bind_dn: textOf(config['bind_dn']),
    bind_password: textOf(config['bind_password']),
    uid: textOf(attributes['uid']),
    display_name: textOf(attributes['name']),
    mail: textOf(attributes['mail']),
    filter: textOf(config['filter']),
    allow_existing_users: true,
  });
  const notes = [
    'People sign in on a page in the browser, not in the form of the client, so passwords pass no client.',
    'allow_existing_users ties those of the directory to the accounts that they have already, by their names.',
  ];
  if (isPlain && config['start_tls'] !== true) notes.push('start_tls is needed: without it passwords are not sent.');
  if (others.length > 0) notes.push(`Only the first address is taken: ${others.join(', ')} are not.`);
  if (config['bind_dn'] === undefined) notes.push('People are looked for before they sign in: bind_dn says by whom.');
  if (config['bind_password_file'] !== undefined) notes.push('bind_password_file: put its content into bind_password.');
  const left = ['validate_cert', 'tls_options', 'active_directory', 'default_domain'];
  notes.push(...notTaken(left.filter((name) => config[name] !== undefined && config[name] !== false)));
  return { package: 'ldap-login', config: { directories: [directory] }, notes };
}

/** What a checker by HTTP is asked about, by the callback. */
const asked: Readonly<Record<string, string>> = {
  user_may_join_room: 'join',
  user_may_invite: 'invite',
  federated_user_may_invite: 'remote_invite',
  user_may_send_3pid_invite: 'threepid_invite',
  user_may_create_room: 'room',
  user_may_create_room_alias: 'alias',
  user_may_publish_room: 'publish',
  check_username_for_spam: 'username',
  check_login_for_spam: 'login',
  check_event_for_spam: 'event',
};

function antispam(config: Settings): Suggestion {
  const named = config['enabled_callbacks'];
  const callbacks = Array.isArray(named) ? listOf(named) : Object.keys(asked);
  const ask = callbacks.filter((name) => Object.hasOwn(asked, name));
  const subjectsOf = (flags: Settings): string[] =>
    ask.filter((name) => flags[name] === true).map((name) => asked[name]!);
  // Events pass where the checker is away, and everything else is refused, unless they say otherwise.
  const passing = subjectsOf({ check_event_for_spam: true, ...objectOf(config['fail_open']) });
  const background = subjectsOf(objectOf(config['async']));
  return {
    package: 'http-antispam',
    config: only({
      url: textOf(config['base_url']),
      token: textOf(config['authorization']),
      form: 'callbacks',
      ask: ask.map((name) => asked[name]),
      background: background.length > 0 ? background : undefined,
      on_failure:
        passing.length > 0
          ? { ...Object.fromEntries(passing.map((subject) => [subject, 'allow'])), others: 'deny' }
          : 'deny',
    }),
    notes: [
      'A checker on this machine or in a private network is reached where ip_range_whitelist names it.',
      ...(config['authorization_path'] === undefined ? [] : ['authorization_path: put its content into token.']),
      ...notTaken(callbacks.filter((name) => !ask.includes(name))),
    ],
  };
}

/** Who may invite whom, between domains. */
function domainRules(config: Settings): Suggestion {
  const mapping = Object.entries(objectOf(config['domain_mapping']));
  const rules = mapping.flatMap(([from, to]) => [
    ...listOf(to).map((domain) => ({ from: `*:${from}`, to: `*:${domain}`, action: 'allow' })),
    { from: `*:${from}`, action: 'deny' },
  ]);
  const defaults = ['can_invite_if_not_in_domain_mapping', 'default'];
  const notes = ['Administrators of the server may invite everybody.'];
  if (config['can_invite_by_third_party_id'] !== false)
    notes.push('Who may not invite everybody may not invite by address either: nobody knows whose it is.');
  const known = ['domain_mapping', 'can_invite_by_third_party_id', ...defaults];
  notes.push(...notTaken(Object.keys(config).filter((name) => !known.includes(name))));
  return {
    package: 'invite-policy',
    // What does not say is closed.
    config: { rules, otherwise: defaults.some((name) => config[name] === true) ? 'allow' : 'deny' },
    notes,
  };
}

/** Whom the users of a server let invite them. */
function invitePermissions(config: Settings, { server_name: serverName }: Settings): Suggestion {
  const permissions = objectOf(config['default_permissions']);
  const isOpen = permissions['defaultSetting'] !== 'block all';
  const here = { to: `*:${String(serverName)}` };
  const action = isOpen ? 'deny' : 'allow';
  const namesOf = (key: string): string[] => Object.keys(objectOf(permissions[key]));
  const servers = namesOf('serverExceptions').map((name) => (name === '@LOCAL_SERVER@' ? String(serverName) : name));
  const rules = [
    ...namesOf('userExceptions').map((user) => ({ from: user, ...here, action })),
    ...servers.map((server) => ({ from: `*:${server}`, ...here, action })),
    ...(isOpen ? [] : [{ ...here, action: 'deny' }]),
  ];
  return {
    package: 'invite-policy',
    config: { rules, otherwise: 'allow' },
    notes: [
      'No list of a federation is asked for: name its servers in federation_domain_whitelist, or everybody is one of it.',
      'What people choose for themselves is for their clients (m.invite_permission_config).',
      ...notTaken([
        ...Object.keys(config).filter((name) => name !== 'default_permissions'),
        ...(permissions['groupException'] === undefined ? [] : ['groupException']),
      ]),
    ],
  };
}

function mediaStore({ bucket, ...config }: Settings, _settings: Settings, entry: Settings): Suggestion {
  const notes = ['Its settings belong to media_storage_providers, see below; the entry here has none.'];
  if (config['access_key_id'] === undefined)
    notes.push('access_key_id and secret_access_key are needed: the environment is not asked for them.');
  const left = ['sse_customer_key', 'sse_customer_algo', 'threadpool_size'];
  notes.push(...notTaken(left.filter((name) => config[name] !== undefined)));
  const settings = only({
    bucket,
    region: textOf(config['region_name']) ?? 'us-east-1',
    endpoint: textOf(config['endpoint_url']),
    access_key_id: textOf(config['access_key_id']),
    secret_access_key: textOf(config['secret_access_key']),
    session_token: textOf(config['session_token']),
    cache_folder: textOf(config['cache_directory']),
    prefix: textOf(config['prefix']),
    storage_class: textOf(objectOf(config['extra_args'])['StorageClass'] ?? config['storage_class']),
  });
  const { store_local, store_remote, store_synchronous } = entry;
  const provider = { module: 's3-media-storage', ...only({ store_local, store_remote, store_synchronous }) };
  notes.push(`media_storage_providers: ${JSON.stringify([{ ...provider, config: settings }])}`);
  return { package: 's3-media-storage', notes };
}

function accountValidity(config: Settings): Suggestion {
  return {
    package: 'account-validity-mail',
    config: only({
      period_days: daysOf(config['period']),
      renew_days_before: daysOf(config['renew_at']),
      subject: textOf(config['renew_email_subject'])?.replace(/%\(app\)s/g, 'Matrix'),
    }),
    ...(config['send_links'] === false && { notes: ['Links are always sent; codes in their place are not.'] }),
  };
}

/** By the Python module, or the package that it lies in. */
const known: Readonly<Record<string, (config: Settings, settings: Settings, entry: Settings) => Suggestion>> = {
  ldap_auth_provider: ldap,
  shared_secret_authenticator: (config) => ({
    package: 'shared-secret-auth',
    config: only({
      shared_secret: textOf(config['shared_secret']),
      as_password: config['m_login_password_support_enabled'] === true ? true : undefined,
    }),
  }),
  rest_auth_provider: (config) => ({
    package: 'rest-auth',
    config: only({ url: textOf(config['endpoint']), create_accounts: true }),
    notes: [
      'The address is that of the check itself, and the form another one: see the README of the package.',
      'A service in a private network is reached where ip_range_whitelist names it.',
    ],
  }),
  synapse_http_antispam: antispam,
  email_account_validity: accountValidity,
  synapse_email_account_validity: accountValidity,
  synapse_domain_rule_checker: domainRules,
  synapse_invite_checker: invitePermissions,
  mjolnir: (config) => ({
    package: 'policy-lists',
    config: { rooms: listOf(config['ban_lists']) },
    notes: [
      'Messages, invitations and names in the directory are always looked at; a user of this server has to be in the rooms.',
    ],
  }),
  s3_storage_provider: mediaStore,
  matrix_e2ee_filter: () => ({
    package: 'encryption-policy',
    config: { new_rooms: 'none', refuse_plain: false },
    notes: ['It asks for encryption or forbids it in public rooms; exceptions by server are not there.'],
  }),
  synapse_auto_accept_invite: (config) => ({
    notes: [
      'The server does it: take the module away, and set ' +
        `auto_accept_invites: ${JSON.stringify({
          enabled: true,
          only_for_direct_messages: config['accept_invites_only_for_direct_messages'] === true,
          only_from_local_users: config['accept_invites_only_from_local_users'] === true,
        })}`,
    ],
  }),
};

/** A class of Python by its path. Packages of npm and paths of files are modules of this server already. */
const isPython = (module: unknown): boolean => /^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$/.test(String(module));

/**
 * Says which packages take the place of the modules that settings name, and with which settings: a `modules` section on the standard
 * output, with what has to be looked at as comments.
 * @throws CommandError when the file cannot be read
 */
export function suggestModules(file: string, terminal: Terminal): void {
  const settings = read(file);
  const oldLdap = objectOf(settings['ldap_config']);
  const entries = [
    ...listed(settings['modules']),
    ...listed(settings['password_providers']),
    ...listed(settings['media_storage_providers']),
    ...(textOf(objectOf(settings['spam_checker'])['module']) !== undefined
      ? [objectOf(settings['spam_checker'])]
      : listed(settings['spam_checker'])),
    objectOf(settings['third_party_event_rules']),
    objectOf(objectOf(settings['presence'])['presence_router']),
    ...listed(settings['listeners']).flatMap((one) =>
      Object.values(objectOf(one['additional_resources'])).map(objectOf),
    ),
    ...(oldLdap['enabled'] === true ? [{ module: 'ldap_auth_provider.LdapAuthProvider', config: oldLdap }] : []),
  ].filter(({ module }) => textOf(module) !== undefined && isPython(module));
  if (entries.length === 0) {
    terminal.note(`${file} names no modules of Python.`);
    return;
  }
  const lines: string[] = [];
  const packages = new Set<string>();
  let missing = 0;
  for (const entry of entries) {
    const name = String(entry['module']);
    const suggest = Object.hasOwn(known, name.split('.')[0]!) ? known[name.split('.')[0]!] : undefined;
    const found = suggest?.(objectOf(entry['config']), settings, entry);
    lines.push(`# ${name}`);
    if (!found) {
      missing++;
      lines.push(
        '#   Nothing is known that takes its place: see docs/modules/from-synapse.md for how to bring it over.',
      );
      continue;
    }
    for (const note of found.notes ?? []) lines.push(`#   ${note}`);
    if (found.package === undefined) continue;
    const taker = `${examples}/${found.package}`;
    packages.add(taker);
    const hasConfig = found.config !== undefined && Object.keys(found.config).length > 0;
    lines.push(stringify([{ module: taker, ...(hasConfig && { config: found.config }) }], { lineWidth: 0 }).trimEnd());
  }
  if (packages.size > 0) lines.splice(0, 0, 'modules:');
  for (const line of lines.flatMap((text) => text.split('\n'))) terminal.out(line === 'modules:' ? line : `  ${line}`);
  for (const name of packages) terminal.note(`rookery module add ${name}`);
  if (missing > 0) terminal.note(`${missing} of ${entries.length} have no counterpart here.`);
}

const listed = (value: unknown): readonly Settings[] => (Array.isArray(value) ? value.map(objectOf) : []);

function read(file: string): Settings {
  const { raw, problems } = readSources([file]);
  const wrong = problems.find(({ level }) => level === 'error');
  if (wrong) throw new CommandError(describeProblem(wrong));
  return raw;
}
