import { type Draft, valueOf } from './draft.js';
import { noWorkersRules } from './no-workers.js';
import type { Rule, RuleView } from './rule.js';
import type { SettingName } from './table.js';
import { workerRules } from './worker-rules.js';

const rule = (about: Rule['about'], check: Rule['check']): Rule => ({ about, check });
const notLonger = (shorter: SettingName, longer: SettingName): Rule =>
  rule([shorter, longer], ({ get }) => {
    const [less, more] = [get(shorter), get(longer)];
    return typeof less === 'number' && typeof more === 'number' && less > more
      ? `must not be longer than ${longer}`
      : undefined;
  });
const needs = (when: SettingName, what: SettingName): Rule =>
  rule([when, what], ({ get }) => (get(when) === true && get(what) === undefined ? `needs ${what}` : undefined));

const asksLdap = (get: RuleView['get']): boolean => get('ldap_config')?.['enabled'] === true;

const accountRules: readonly Rule[] = [
  rule(
    [
      'enable_registration',
      'enable_registration_without_verification',
      'enable_registration_captcha',
      'registrations_require_3pid',
      'registration_requires_token',
    ],
    ({ get }) => {
      const verified =
        get('enable_registration_captcha') ||
        get('registration_requires_token') ||
        get('registrations_require_3pid').length > 0;
      return get('enable_registration') && !verified && !get('enable_registration_without_verification')
        ? 'open registration without any verification draws spammers: set registrations_require_3pid, enable_registration_captcha or ' +
            'registration_requires_token, or enable_registration_without_verification: true if that is really what you want'
        : undefined;
    },
  ),
  rule(
    ['registrations_require_3pid', 'account_threepid_delegates.msisdn', 'disable_msisdn_registration'],
    ({ get, given }) => {
      if (!get('enable_registration')) return undefined;
      if (get('enable_registration_token_3pid_bypass')) return undefined;
      const required = get('registrations_require_3pid');
      if (required.includes('email') && !given('email'))
        return 'nobody could register: to prove mail addresses, set up the email section';
      const asksForNumber = required.includes('msisdn') && !get('disable_msisdn_registration');
      return asksForNumber && get('account_threepid_delegates.msisdn') === undefined
        ? 'nobody could register: to prove phone numbers, set account_threepid_delegates.msisdn'
        : undefined;
    },
  ),
  needs('enable_registration_captcha', 'recaptcha_public_key'),
  needs('enable_registration_captcha', 'recaptcha_private_key'),
  rule(['trust_identity_server_for_password_resets', 'trusted_third_party_id_servers'], ({ get }) => {
    if ((get('trust_identity_server_for_password_resets') as unknown) !== true) return undefined;
    return (get('trusted_third_party_id_servers') ?? []).length === 0
      ? 'true without any trusted_third_party_id_servers: leave it out, and set up the email section'
      : 'emails are no longer verified by identity servers: leave it out, and set up the email section';
  }),
  rule(['autocreate_auto_join_room_preset', 'auto_join_mxid_localpart', 'auto_join_rooms'], ({ get, given }) =>
    given('auto_join_rooms') &&
    get('autocreate_auto_join_room_preset') !== 'public_chat' &&
    get('auto_join_mxid_localpart') === undefined
      ? 'a private preset needs auto_join_mxid_localpart, the user who invites'
      : undefined,
  ),
  notLonger('refreshable_access_token_lifetime', 'session_lifetime'),
  notLonger('refresh_token_lifetime', 'session_lifetime'),
  notLonger('nonrefreshable_access_token_lifetime', 'session_lifetime'),
  needs('jwt_config.enabled', 'jwt_config.secret'),
  needs('jwt_config.enabled', 'jwt_config.algorithm'),
  needs('account_validity.enabled', 'account_validity.period'),
  rule(['ldap_config', 'matrix_authentication_service.enabled'], ({ get }) =>
    asksLdap(get) && !get('matrix_authentication_service.enabled')
      ? 'nobody of the directory could log in: a module asks it, whose entry `rookery module suggest` writes. Leave ldap_config out then'
      : undefined,
  ),
  rule(['user_consent.template_dir', 'user_consent.version', 'form_secret'], ({ get, given }) => {
    if (!given('user_consent')) return undefined;
    if (get('user_consent.template_dir') === undefined || get('user_consent.version') === undefined)
      return 'user_consent needs template_dir and version';
    return get('form_secret') === undefined ? 'user_consent needs form_secret' : undefined;
  }),
  rule(['server_notices.system_mxid_localpart'], ({ get, given }) =>
    given('server_notices') && get('server_notices.system_mxid_localpart') === undefined
      ? 'needed once server_notices has anything in it'
      : undefined,
  ),
];

/** Ways of logging in that an authentication service replaces: where each stands, and how it shows. */
const replacedByService: readonly (readonly [about: Rule['about'], used: (view: RuleView) => boolean])[] = [
  [['password_config.enabled'], ({ get }) => get('password_config.enabled') !== false],
  [['enable_registration'], ({ get }) => get('enable_registration')],
  [['user_consent.version', 'user_consent.template_dir'], ({ given }) => given('user_consent')],
  [['oidc_providers'], ({ get }) => get('oidc_providers').length > 0],
  [
    ['saml2_config.sp_config', 'saml2_config.config_path', 'saml2_config.enabled'],
    ({ get }) =>
      get('saml2_config.enabled') && (get('saml2_config.sp_config') ?? get('saml2_config.config_path')) !== undefined,
  ],
  [['cas_config.server_url', 'cas_config.enabled'], ({ get }) => get('cas_config.enabled') === true],
  [['jwt_config.enabled'], ({ get }) => get('jwt_config.enabled')],
  [['password_providers'], ({ get }) => (get('password_providers') ?? []).length > 0],
  [['ldap_config'], ({ get }) => asksLdap(get)],
  [['enable_registration_captcha'], ({ get }) => get('enable_registration_captcha')],
  [['login_via_existing_session.enabled'], ({ get }) => get('login_via_existing_session.enabled')],
  [['refresh_token_lifetime'], ({ get }) => get('refresh_token_lifetime') !== undefined],
  [['nonrefreshable_access_token_lifetime'], ({ get }) => get('nonrefreshable_access_token_lifetime') !== undefined],
  [['session_lifetime'], ({ get }) => get('session_lifetime') !== undefined],
  [['enable_3pid_changes'], ({ get }) => get('enable_3pid_changes')],
];

const authenticationServiceRules: readonly Rule[] = [
  needs('matrix_authentication_service.enabled', 'matrix_authentication_service.secret'),
  ...replacedByService.map(([about, used]) =>
    rule(about, (view) =>
      view.get('matrix_authentication_service.enabled') && used(view)
        ? 'not possible together with matrix_authentication_service.enabled'
        : undefined,
    ),
  ),
  rule(['experimental_features.msc4108_enabled', 'matrix_authentication_service.enabled'], ({ get }) =>
    get('experimental_features.msc4108_enabled') && !get('matrix_authentication_service.enabled')
      ? 'needs matrix_authentication_service.enabled'
      : undefined,
  ),
];

const generalRules: readonly Rule[] = [
  rule(['report_stats'], ({ get }) =>
    get('report_stats') === undefined
      ? 'must be set: true sends anonymous usage numbers to report_stats_endpoint, false sends nothing'
      : undefined,
  ),
  rule(
    ['restrict_public_rooms_to_local_users', 'allow_public_rooms_without_auth', 'allow_public_rooms_over_federation'],
    ({ given }) =>
      given('restrict_public_rooms_to_local_users') &&
      (given('allow_public_rooms_without_auth') || given('allow_public_rooms_over_federation'))
        ? 'not together with allow_public_rooms_without_auth and allow_public_rooms_over_federation'
        : undefined,
  ),
  rule(['limit_profile_requests_to_users_who_share_rooms', 'require_auth_for_profile_requests'], ({ get }) =>
    get('limit_profile_requests_to_users_who_share_rooms') && !get('require_auth_for_profile_requests')
      ? 'needs require_auth_for_profile_requests: without a login nobody shares a room'
      : undefined,
  ),
  rule(['presence.idle_timeout', 'presence.last_active_granularity'], ({ get }) =>
    get('presence.idle_timeout') <= get('presence.last_active_granularity')
      ? 'must be longer than presence.last_active_granularity'
      : undefined,
  ),
  rule(['max_event_delay_duration'], ({ get }) =>
    get('max_event_delay_duration') === 0 ? 'must be more than 0' : undefined,
  ),
  notLonger('retention.default_policy.min_lifetime', 'retention.default_policy.max_lifetime'),
  notLonger('retention.allowed_lifetime_min', 'retention.allowed_lifetime_max'),
  rule(['listeners', 'tls_certificate_path', 'tls_private_key_path'], ({ get }) =>
    get('listeners').some((one) => one.tls) &&
    (get('tls_certificate_path') === undefined || get('tls_private_key_path') === undefined)
      ? 'a listener with tls: true needs tls_certificate_path and tls_private_key_path'
      : undefined,
  ),
  rule(['url_preview_enabled', 'url_preview_ip_range_blacklist', 'http_proxy', 'https_proxy'], ({ get }) =>
    get('url_preview_enabled') &&
    get('url_preview_ip_range_blacklist') === undefined &&
    (get('http_proxy') ?? get('https_proxy')) === undefined
      ? 'needs url_preview_ip_range_blacklist, or users could make this server fetch from your own network'
      : undefined,
  ),
  rule(['enable_local_media_storage', 'media_storage_providers'], ({ get }) =>
    !get('enable_local_media_storage') && !get('media_storage_providers').some((one) => one.store_local)
      ? 'false needs one of media_storage_providers with store_local: true, or uploads would be lost'
      : undefined,
  ),
  rule(['email.notif_from'], ({ get, given }) =>
    given('email') && get('email.notif_from') === undefined ? 'needed once email has anything in it' : undefined,
  ),
  rule(['email.enable_tls', 'email.force_tls', 'email.require_transport_security'], ({ get }) =>
    !get('email.enable_tls') && (get('email.force_tls') || get('email.require_transport_security'))
      ? 'must be true with force_tls or require_transport_security'
      : undefined,
  ),
  rule(
    [
      'caches.cache_autotuning.max_cache_memory_usage',
      'caches.cache_autotuning.target_cache_memory_usage',
      'caches.cache_autotuning.min_cache_ttl',
    ],
    ({ get }) => {
      const set = [
        get('caches.cache_autotuning.max_cache_memory_usage'),
        get('caches.cache_autotuning.target_cache_memory_usage'),
        get('caches.cache_autotuning.min_cache_ttl'),
      ].filter((value) => value !== undefined).length;
      return set === 1 || set === 2
        ? 'max_cache_memory_usage, target_cache_memory_usage and min_cache_ttl go together'
        : undefined;
    },
  ),
  rule(['databases', 'database.name'], ({ get, given }) => {
    const stores = get('databases');
    if (stores === undefined) return undefined;
    if (given('database')) return 'set either database or databases, not both';
    const held = Object.values(stores).flatMap((one) => one.data_stores);
    return held.filter((one) => one === 'main').length !== 1 || held.filter((one) => one === 'state').length !== 1
      ? 'the data stores main and state must each lie in exactly one database'
      : undefined;
  }),
  rule(['room_invite_state_types'], ({ get, given }) =>
    get('room_invite_state_types') !== undefined && given('room_prejoin_state')
      ? 'not together with room_prejoin_state'
      : undefined,
  ),
  rule(['trusted_key_servers', 'federation_verify_certificates'], ({ get }) => {
    if (get('federation_verify_certificates')) return undefined;
    const open = get('trusted_key_servers').find(
      (one) => !one.accept_keys_insecurely && Object.keys(one.verify_keys ?? {}).length === 0,
    );
    return (
      open &&
      `${open.server_name} needs verify_keys (or accept_keys_insecurely) while federation_verify_certificates is false`
    );
  }),
  ...(['experimental_features.msc1767_enabled', 'experimental_features.msc4242_enabled'] as const).map((name) =>
    rule([name], ({ get }) =>
      get(name) ? 'the room version of this experiment does not exist here: leave it out' : undefined,
    ),
  ),
  rule(['redis.username', 'redis.password'], ({ get }) =>
    get('redis.username') !== undefined && get('redis.password') === undefined
      ? 'needs redis.password or redis.password_path'
      : undefined,
  ),
  rule(['experimental_features.msc3890_enabled', 'experimental_features.msc3391_enabled'], ({ get }) =>
    get('experimental_features.msc3890_enabled') && !get('experimental_features.msc3391_enabled')
      ? 'needs experimental_features.msc3391_enabled'
      : undefined,
  ),
];

/** The rules, in the order in which their problems are told. */
export const rules: readonly Rule[] = [
  ...generalRules,
  ...accountRules,
  ...authenticationServiceRules,
  ...noWorkersRules,
  ...workerRules,
];

/** Reports every rule that the settings break. `unreadable` says whether a setting's value could not be read. */
export function checkRules(draft: Draft, unreadable: (name: string) => boolean): void {
  const view: RuleView = {
    get: (name) => valueOf(draft, name),
    given: (name) => draft.given.has(name),
  };
  for (const { about, check } of rules) {
    if (about.some(unreadable)) continue;
    const message = check(view);
    if (message === undefined) continue;
    const name = about.find((one) => draft.given.has(one)) ?? about[0];
    draft.context.error((draft.writtenAs.get(name) ?? name).split('.'), message);
  }
  if (!unreadable('oidc_providers')) oidcProviders(draft);
  if (!unreadable('databases')) twoDatabases(draft);
}

/** A database of its own for state. */
function twoDatabases(draft: Draft): void {
  const stores = Object.entries(valueOf(draft, 'databases') ?? {});
  const holding = (store: 'main' | 'state'): (typeof stores)[number] | undefined =>
    stores.find(([, { data_stores: held }]) => held.includes(store));
  const [main, state] = [holding('main'), holding('state')];
  if (main === undefined || state === undefined || main === state) return;
  const [name, { name: engine, args }] = state;
  if (engine !== main[1].name) {
    draft.context.error(
      ['databases', name, 'name'],
      `is ${engine}, and that of ${main[0]} is ${main[1].name}: main and state must be of the same kind`,
    );
  } else if (placeIn(engine, args) === placeIn(engine, main[1].args)) {
    draft.context.error(
      ['databases', name, 'args'],
      `is the database of ${main[0]} as well: write one entry with data_stores: [main, state]`,
    );
  }
}

/** What tells a database from others, as the settings name it. */
function placeIn(engine: string, args: Readonly<Record<string, unknown>>): string {
  const { database, dbname = database, user, host = 'localhost', port = 5432, options } = args;
  return JSON.stringify(engine === 'sqlite3' ? database : [dbname ?? user, host, Number(port), options]);
}

function oidcProviders(draft: Draft): void {
  const seen = new Set<string>();
  valueOf(draft, 'oidc_providers').forEach((one, index) => {
    const wrong = (message: string): void => draft.context.error(['oidc_providers', index], message);
    if (seen.has(one.idp_id)) wrong(`two providers have the idp_id ${one.idp_id}`);
    seen.add(one.idp_id);
    if (
      one.client_secret === undefined &&
      one.client_secret_jwt_key === undefined &&
      one.client_auth_method !== 'none'
    ) {
      wrong('needs client_secret, client_secret_path or client_secret_jwt_key, unless client_auth_method is none');
    }
    const key = one.client_secret_jwt_key;
    if (key && (key.key === undefined || typeof key.jwt_header['alg'] !== 'string'))
      wrong('client_secret_jwt_key needs key or key_file, and jwt_header.alg');
    if (one.discover) return;
    const openid = one.scopes.includes('openid');
    const endpoints = ['authorization_endpoint', 'token_endpoint', openid ? 'jwks_uri' : 'userinfo_endpoint'] as const;
    const missing = endpoints.filter((name) => one[name] === undefined);
    if (missing.length > 0) wrong(`needs ${missing.join(', ')} when discover is false`);
  });
}
