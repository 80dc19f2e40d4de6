import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';
import { rateLimit, type RateLimitSetting } from './shapes.js';

const bucket = (perSecond: number, burst: number, doc: string) =>
  setting<RateLimitSetting>(rateLimit(perSecond, burst), { per_second: perSecond, burst_count: burst }, doc, {
    reload: true,
  });

/** What the server refuses when there is too much of it, and how long it keeps things. */
export const limitSettings = {
  admin_contact: optional(k.text(), 'Address shown when a limit is reached, such as `mailto:admin@example.org`.'),
  hs_disabled: setting(k.flag, false, 'Answer everybody but administrators with 403.'),
  hs_disabled_message: setting(k.text(), '', 'Why, for people.'),
  limit_usage_by_mau: setting(k.flag, false, 'Limit the monthly active users.'),
  max_mau_value: setting(k.whole(), 0, 'Most monthly active users.'),
  mau_trial_days: setting(k.whole(), 0, 'Days after registration before a user counts.'),
  mau_appservice_trial_days: setting(k.mapOf(k.whole()), {}, 'The same by application service id.'),
  mau_limit_alerting: setting(k.flag, true, 'Tell users when the limit is reached.'),
  mau_stats_only: setting(k.flag, false, 'Count monthly active users without limiting them.'),
  mau_limit_reserved_threepids: setting(
    k.list(
      k.object({
        medium: k.need(k.oneOf('email', 'msisdn'), 'Kind of address.'),
        address: k.need(k.text({ empty: false }), 'The address.'),
      }),
    ),
    [],
    'Users who always fit within the limit.',
  ),
  server_context: optional(k.text(), 'Groups servers in usage reports.'),
  'limit_remote_rooms.enabled': setting(k.flag, false, 'Refuse to join complex remote rooms.'),
  'limit_remote_rooms.complexity': setting(k.decimal(), 1, 'Complexity allowed: state events divided by 500.'),
  'limit_remote_rooms.complexity_error': setting(
    k.text(),
    'Your homeserver is unable to join rooms this large or complex. Please speak to your server administrator, or upgrade your instance to join this room.',
    'What the user reads.',
  ),
  'limit_remote_rooms.admins_can_join': setting(k.flag, false, 'Server administrators may join anyway.'),
  require_membership_for_aliases: setting(k.flag, true, 'Only members may make aliases of a room.'),
  allow_per_room_profiles: setting(k.flag, true, 'Users may have another name in one room.'),
  max_avatar_size: optional(k.size, 'Largest avatar, bytes.'),
  max_account_data_size: setting(
    k.size,
    32 * 1024 ** 2,
    'Most account data of one user, of the account and of rooms, bytes; each piece counts 512 bytes beside its content.',
  ),
  allowed_avatar_mimetypes: optional(
    k.list(k.text({ empty: false })),
    'Content types that avatars may have; all when unset.',
  ),
  redaction_retention_period: optional(
    k.duration,
    'How long the content of redacted events is kept; `null` for ever.',
    {
      default: 7 * 86_400_000,
    },
  ),
  redaction_allowed_period: optional(
    k.duration,
    'How long after it was sent a message may be redacted by users of this server; without end when unset. An edit counts with what it edits.',
  ),
  forgotten_room_retention_period: optional(
    k.duration,
    'How long after the last local user forgot a room it is deleted.',
  ),
  user_ips_max_age: optional(k.duration, "How long users' addresses are kept; `null` for ever.", {
    default: 28 * 86_400_000,
  }),
  request_token_inhibit_3pid_errors: setting(k.flag, false, 'Do not tell whether an address is in use.'),
  next_link_domain_whitelist: optional(
    k.list(k.text({ empty: false })),
    'Domains that `next_link` may lead to; `[]` forbids all.',
  ),
  'templates.custom_template_directory': optional(
    k.path,
    'Folder with own pages and mails; files that are missing there are ours.',
    {
      since: '1.41',
    },
  ),
  'retention.enabled': setting(k.flag, false, 'Honour the retention policies of rooms.'),
  'retention.default_policy.min_lifetime': optional(
    k.duration,
    'Shortest time messages are kept, where the room has no policy.',
    { reload: true },
  ),
  'retention.default_policy.max_lifetime': optional(
    k.duration,
    'Longest time messages are kept, where the room has no policy.',
    {
      rule: 'Not shorter than `retention.default_policy.min_lifetime`.',
      reload: true,
    },
  ),
  'retention.allowed_lifetime_min': optional(k.duration, "Bounds the rooms' policies from below.", { reload: true }),
  'retention.allowed_lifetime_max': optional(k.duration, "Bounds the rooms' policies from above.", {
    rule: 'Not shorter than `retention.allowed_lifetime_min`.',
    reload: true,
  }),
  'retention.purge_jobs': setting(
    k.list(
      k.object({
        shortest_max_lifetime: k.maybe(k.duration, 'Rooms whose messages live at least so long (exclusive).'),
        longest_max_lifetime: k.maybe(k.duration, 'Rooms whose messages live at most so long (inclusive).'),
        interval: k.field(k.duration, 86_400_000, 'How often.'),
      }),
    ),
    [{ shortest_max_lifetime: undefined, longest_max_lifetime: undefined, interval: 86_400_000 }],
    'When old messages are deleted; one daily job for all rooms by default.',
  ),

  rc_message: bucket(0.2, 10, 'Sending events, by user.'),
  rc_registration: bucket(0.17, 3, 'Registration and asking for free names, by address.'),
  rc_registration_token_validity: bucket(
    0.1,
    5,
    'Asking whether a registration token is valid, and registering with one that is not, by address.',
  ),
  rc_ui_auth: bucket(
    0.5,
    300,
    'Operations that begin interactive auth, by user, or by address where nobody is logged in; captchas that are not solved, phone numbers that are not proved, and codes sent to them, by address; never less than `rc_registration`.',
  ),
  'rc_login.address': bucket(0.003, 5, 'Logins, by address.'),
  'rc_login.account': bucket(0.003, 5, 'Logins, by account.'),
  'rc_login.failed_attempts': bucket(0.17, 3, 'Wrong passwords, by account.'),
  rc_admin_redaction: optional(rateLimit(0.17, 3), 'Redactions by moderators, by user; `rc_message` when unset.', {
    reload: true,
  }),
  'rc_joins.local': bucket(0.1, 10, 'Joining rooms this server is in, by user.'),
  'rc_joins.remote': bucket(0.01, 10, 'Joining other rooms, by user.'),
  rc_joins_per_room: bucket(1, 10, 'Joins, by room.'),
  rc_3pid_validation: bucket(
    0.003,
    5,
    'Validation mails and messages, by user or address, and codes that are tried for one message.',
  ),
  'rc_invites.per_room': bucket(0.3, 10, 'Invites, by room.'),
  'rc_invites.per_user': bucket(0.003, 5, 'Invites, by invited user.'),
  'rc_invites.per_issuer': bucket(0.3, 10, 'Invites, by inviter.'),
  rc_third_party_invite: bucket(0.0025, 5, 'Invites by mail address or phone number, by user.'),
  rc_media_create: bucket(10, 50, 'Reserving media ids, by user.'),
  'rc_presence.per_user': bucket(
    0.1,
    1,
    'Presence changes through sync, where more are skipped silently, and those that are set, each by user.',
  ),
  rc_delayed_event_mgmt: bucket(1, 5, 'Managing delayed events, by user.'),
  rc_room_creation: bucket(0.016, 10, 'Creating and upgrading rooms, by user.'),
  rc_reports: bucket(1, 5, 'Reporting events, rooms and users, by user.'),
  rc_user_directory: bucket(0.016, 200, 'Searching the user directory, by user.'),
  rc_key_requests: bucket(20, 100, 'Room key requests, by device.'),
  rc_profile: bucket(
    1,
    500,
    'Looking at profiles, and at aliases, directories, rooms and accounts of other servers, by user, or by address where nobody is logged in.',
  ),
  'push_rules.limits.rule_count': setting(k.whole(), 10_000, 'Most push rules of their own that a user may have.'),
  'push_rules.limits.rule_id_length': setting(k.whole(1), 300, 'Longest id of a push rule, bytes.'),
  'push_rules.limits.rule_size': setting(
    k.checked(k.size, (bytes) => (bytes < 1 ? 'expected a size of at least 1 byte' : undefined)),
    1024,
    'Largest conditions and actions of a push rule together, bytes of JSON.',
  ),
  'rc_federation.window_size': setting(k.duration, 1000, 'Window in which requests of another server are counted.'),
  'rc_federation.sleep_limit': setting(k.whole(), 10, 'Requests in a window before answers are delayed.'),
  'rc_federation.sleep_delay': setting(k.duration, 500, 'The delay.'),
  'rc_federation.reject_limit': setting(k.whole(1), 50, 'Requests waiting before more are refused.'),
  'rc_federation.concurrent': setting(k.whole(1), 3, 'Requests of another server served at once.'),
  federation_rr_transactions_per_room_per_second: setting(
    k.whole(1),
    50,
    'Transactions per second that receipts of one room may cause.',
  ),
  rc_messages_per_second: optional(k.decimal(), 'Old form of `rc_message.per_second`.', {
    deprecated: 'write rc_message.per_second',
  }),
  rc_message_burst_count: optional(k.whole(), 'Old form of `rc_message.burst_count`.', {
    deprecated: 'write rc_message.burst_count',
  }),
  federation_rc_window_size: optional(k.duration, 'Old form.', { deprecated: 'write rc_federation.window_size' }),
  federation_rc_sleep_limit: optional(k.whole(), 'Old form.', { deprecated: 'write rc_federation.sleep_limit' }),
  federation_rc_sleep_delay: optional(k.duration, 'Old form.', { deprecated: 'write rc_federation.sleep_delay' }),
  federation_rc_reject_limit: optional(k.whole(1), 'Old form.', { deprecated: 'write rc_federation.reject_limit' }),
  federation_rc_concurrent: optional(k.whole(1), 'Old form.', { deprecated: 'write rc_federation.concurrent' }),
};
