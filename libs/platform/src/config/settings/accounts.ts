import * as k from '../kinds.js';
import { optional, refused, secretFile, setting } from '../setting.js';
import { localpart, regex, roomAlias } from './shapes.js';

/** Registration, passwords, sessions, captcha, calls. */
export const accountSettings = {
  enable_registration: setting(k.flag, false, 'Anybody may make an account.', {
    rule: 'Needs verification by email, captcha or token, or `enable_registration_without_verification`.',
  }),
  disable_registration: optional(k.flag, 'Old form of `enable_registration`, inverted.', {
    deprecated: 'write enable_registration',
  }),
  enable_registration_without_verification: setting(
    k.flag,
    false,
    'Allow registration without any verification. Draws spammers.',
    { since: '1.56' },
  ),
  registrations_require_3pid: setting(
    k.list(k.oneOf('email', 'msisdn')),
    [],
    'Addresses that a registration must verify.',
  ),
  disable_msisdn_registration: setting(k.flag, false, 'Do not ask for phone numbers.'),
  allowed_local_3pids: optional(
    k.list(
      k.object({
        medium: k.need(k.oneOf('email', 'msisdn'), 'Kind of address.'),
        pattern: k.need(
          regex,
          'Regular expression that the address must begin with; `$` at its end for all of the address.',
        ),
      }),
    ),
    'Addresses that may be used; all when unset.',
  ),
  enable_3pid_lookup: setting(k.flag, true, 'Users may look up others by address at an identity server.'),
  registration_requires_token: setting(k.flag, false, 'A registration needs a token made by an administrator.'),
  enable_registration_token_3pid_bypass: setting(k.flag, false, 'A token replaces the required addresses.'),
  registration_shared_secret: optional(
    k.secretText,
    'Whoever knows it may register any account, also without `enable_registration`.',
    { secret: true },
  ),
  registration_shared_secret_path: secretFile(k.path, 'registration_shared_secret', {
    rule: 'Made with a random secret when it does not exist.',
  }),
  bcrypt_rounds: setting(k.whole(4, 31), 12, 'Work per password: each step doubles it.'),
  allow_guest_access: setting(k.flag, false, 'Guests may look around without an account.'),
  default_identity_server: optional(k.httpUrl, 'Identity server suggested to clients.', {
    rule: 'Used together with `public_baseurl`.',
  }),
  'account_threepid_delegates.msisdn': optional(k.httpUrl, 'Identity server that verifies phone numbers.'),
  'account_threepid_delegates.email': refused(
    k.anything,
    '1.66',
    'This server verifies emails itself: set up the email section.',
  ),
  enable_set_displayname: setting(k.flag, true, 'Users may change their name.'),
  enable_set_avatar_url: setting(k.flag, true, 'Users may change their avatar.'),
  enable_3pid_changes: setting(k.flag, true, 'Users may add and remove addresses.', {
    rule: 'Default false with `matrix_authentication_service`.',
  }),
  auto_join_rooms: setting(k.list(roomAlias), [], 'Rooms that new users join.'),
  autocreate_auto_join_rooms: setting(k.flag, true, 'Create those rooms when they do not exist.'),
  autocreate_auto_join_rooms_federated: setting(k.flag, true, 'Other servers may join them.'),
  autocreate_auto_join_room_preset: setting(
    k.oneOf('public_chat', 'private_chat', 'trusted_private_chat'),
    'public_chat',
    'Preset they are created with.',
    {
      rule: 'The private presets need `auto_join_mxid_localpart`.',
    },
  ),
  auto_join_mxid_localpart: optional(localpart, 'Localpart of the user who creates those rooms and invites into them.'),
  auto_join_rooms_for_guests: setting(k.flag, true, 'Guests join them, too.'),
  inhibit_user_in_use_error: setting(k.flag, false, 'Do not tell whether a name is taken.'),
  allow_underscore_prefixed_localpart: setting(k.flag, false, 'Names may begin with an underscore.'),
  allow_underscore_prefixed_registration: optional(k.flag, 'The same under its documented name.', {
    deprecated: 'write allow_underscore_prefixed_localpart',
  }),

  session_lifetime: optional(k.duration, 'How long a login lasts.'),
  refreshable_access_token_lifetime: optional(k.duration, 'How long an access token lasts that can be refreshed.', {
    default: 300_000,
    rule: 'Not longer than `session_lifetime`.',
  }),
  refresh_token_lifetime: optional(k.duration, 'How long a refresh token lasts.', {
    rule: 'Not longer than `session_lifetime`.',
  }),
  nonrefreshable_access_token_lifetime: optional(k.duration, 'How long other access tokens last.', {
    rule: 'Not longer than `session_lifetime`.',
  }),
  'ui_auth.session_timeout': setting(k.duration, 0, 'How long one confirmation of a password serves further requests.'),
  'login_via_existing_session.enabled': setting(
    k.flag,
    false,
    'A logged-in client may make a login token for another one.',
  ),
  'login_via_existing_session.require_ui_auth': setting(k.flag, true, 'It must confirm the password.'),
  'login_via_existing_session.token_timeout': setting(k.duration, 300_000, 'How long that token lasts.'),
  'password_config.enabled': setting(
    k.oneOf(true, false, 'only_for_reauth'),
    true,
    'Users may log in with a password.',
    {
      rule: 'Default false with `matrix_authentication_service`.',
    },
  ),
  'password_config.localdb_enabled': setting(
    k.flag,
    true,
    "Check passwords against this server's own; false leaves them to modules.",
  ),
  'password_config.pepper': setting(k.text(), '', 'Added to every password before it is hashed. Never change it.', {
    secret: true,
  }),
  'password_config.policy.enabled': setting(k.flag, false, 'Check new passwords against the rules below.'),
  'password_config.policy.minimum_length': setting(k.whole(0, 512), 0, 'Least characters.'),
  'password_config.policy.require_digit': setting(k.flag, false, 'A digit is needed.'),
  'password_config.policy.require_symbol': setting(k.flag, false, 'A symbol is needed.'),
  'password_config.policy.require_lowercase': setting(k.flag, false, 'A lower-case letter is needed.'),
  'password_config.policy.require_uppercase': setting(k.flag, false, 'An upper-case letter is needed.'),

  recaptcha_public_key: optional(k.text({ empty: false }), 'Public key of the captcha.'),
  recaptcha_public_key_path: secretFile(k.path, 'recaptcha_public_key'),
  recaptcha_private_key: optional(k.secretText, 'Private key of the captcha.', { secret: true }),
  recaptcha_private_key_path: secretFile(k.path, 'recaptcha_private_key'),
  enable_registration_captcha: setting(k.flag, false, 'A registration must solve a captcha.', {
    rule: 'Needs `recaptcha_public_key` and `recaptcha_private_key`.',
  }),
  recaptcha_siteverify_api: setting(
    k.httpUrl,
    'https://www.recaptcha.net/recaptcha/api/siteverify',
    'Where solved captchas are checked.',
  ),

  turn_uris: setting(
    k.list(k.text({ pattern: /^(?:turn|stun)s?:/, expected: 'a turn:, turns:, stun: or stuns: URI' })),
    [],
    'TURN servers for calls.',
  ),
  turn_shared_secret: optional(k.secretText, 'Secret shared with them.', { secret: true }),
  turn_shared_secret_path: secretFile(k.path, 'turn_shared_secret'),
  turn_username: optional(k.text(), 'Fixed user name, without a shared secret.'),
  turn_password: optional(k.secretText, 'Fixed password, without a shared secret.', { secret: true }),
  turn_user_lifetime: setting(k.duration, 3_600_000, 'How long credentials last.'),
  turn_allow_guests: setting(k.flag, true, 'Guests may use them.'),
  'matrix_rtc.transports': setting(
    k.list(
      k.checked(
        k.object({
          type: k.need(k.text({ empty: false }), 'For example `livekit`.'),
          url: k.maybe(
            k.text({ pattern: /^wss?:\/\/[^\s/]/, expected: 'a URL that begins with wss:// or ws://' }),
            'Address of the WebSocket; `livekit` needs it or the next one.',
          ),
          livekit_service_url: k.maybe(k.httpUrl, 'The older form of `url`.'),
        }),
        (one) =>
          one.type === 'livekit' && !one.url && !one.livekit_service_url
            ? 'url or livekit_service_url is missing (type livekit needs one of them)'
            : undefined,
      ),
    ),
    [],
    'Backends of group calls.',
    { since: '1.140' },
  ),
};
