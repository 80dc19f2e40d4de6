import * as k from '../kinds.js';
import { ignored, optional, refused, required, setting } from '../setting.js';
import { localRanges } from './ranges.js';
import { listener, moduleEntry, serverName } from './shapes.js';

const runtime = 'the runtime manages its memory by itself';
const serviceManager = 'leave it to the service manager, such as systemd';

/** The server itself: its name, its addresses, what it shows to whom. */
export const serverSettings = {
  server_name: required(serverName, 'The domain part of user, room and alias ids. It can never change.'),
  public_baseurl: optional(k.baseUrl, 'The address at which clients reach this server.', {
    rule: 'When unset, `https://<server_name>/` is assumed and no client .well-known is served.',
  }),
  serve_server_wellknown: setting(
    k.flag,
    false,
    'Serve `/.well-known/matrix/server`, which tells other servers to use port 443.',
  ),
  extra_well_known_client_content: setting(
    k.checked(k.mapOf(k.anything), (keys) => {
      const taken = ['m.homeserver', 'm.identity_server'].find((key) => key in keys);
      return taken && `${taken} follows from public_baseurl and default_identity_server and cannot be set here`;
    }),
    {},
    'More keys for `/.well-known/matrix/client`.',
  ),
  web_client_location: optional(k.httpUrl, 'Where `/` redirects people to.'),
  protocol_prefix: setting(
    k.text({
      pattern: /^[A-Za-z0-9._-]+$/,
      expected: 'one path segment of letters, digits, dots, underscores and hyphens',
    }),
    '_matrix',
    'First path segment of the protocol. Other servers and clients expect the default.',
  ),
  service_prefix: setting(
    k.text({
      pattern: /^[A-Za-z0-9._-]+$/,
      expected: 'one path segment of letters, digits, dots, underscores and hyphens',
    }),
    '_synapse',
    'First path segment of the admin API and of pages of this server. Admin tools and bridges expect the default.',
  ),
  listeners: setting(k.list(listener), [], 'Where the server listens, and for what.', {
    rule: 'Without any, the main process listens on 127.0.0.1:8008 for `client` and `federation`.',
  }),
  manhole: optional(
    k.port,
    'Port of a debug shell on the loopback address, for the user who runs the server and root only: `nc localhost PORT`. A listener of type `manhole` may name a path instead.',
  ),
  manhole_settings: setting(
    k.object({
      username: k.field(k.text(), 'matrix', 'User name of the debug shell.'),
      password: k.field(k.text(), 'rabbithole', 'Password of the debug shell.'),
      ssh_priv_key_path: k.maybe(k.path, 'Without meaning: the shell is no SSH, and does not leave the machine.'),
      ssh_pub_key_path: k.maybe(k.path, 'The same.'),
    }),
    { username: 'matrix', password: 'rabbithole', ssh_priv_key_path: undefined, ssh_pub_key_path: undefined },
    'Credentials of the debug shell.',
  ),
  pid_file: optional(k.path, 'File that holds the process id while the server runs.'),
  daemonize: setting(k.flag, false, 'Run in the background.', { meaningless: serviceManager }),
  print_pidfile: setting(k.flag, false, 'Print the path of `pid_file` at start.'),
  user_agent_suffix: optional(k.text(), 'Appended to the User-Agent of outgoing requests.'),
  use_frozen_dicts: setting(k.flag, false, 'Hand out events that cannot be changed.', {
    meaningless: 'modules never get events that they could change',
  }),
  soft_file_limit: setting(k.whole(), 0, 'Limit of open files.', {
    meaningless: 'the runtime raises it to the hard limit by itself',
  }),
  gc_thresholds: optional(k.list(k.whole()), 'Thresholds of the garbage collector.', { meaningless: runtime }),
  gc_min_interval: optional(k.list(k.duration), 'Shortest intervals of the garbage collector.', {
    meaningless: runtime,
  }),

  'presence.enabled': setting(
    k.oneOf(true, false, 'untracked'),
    true,
    'Show who is online. `untracked`: only modules set presence.',
  ),
  'presence.include_offline_users_on_sync': setting(
    k.flag,
    false,
    'Tell about offline users in initial and full-state syncs.',
  ),
  'presence.last_active_granularity': setting(
    k.duration,
    60_000,
    'How long after an action somebody counts as currently active.',
    {
      since: '1.156',
    },
  ),
  'presence.sync_online_timeout': setting(k.duration, 30_000, 'How long after the last sync somebody goes offline.', {
    since: '1.156',
  }),
  'presence.idle_timeout': setting(
    k.duration,
    300_000,
    'How long after the last action somebody becomes unavailable.',
    {
      since: '1.156',
      rule: 'Must be longer than `presence.last_active_granularity`.',
    },
  ),
  'presence.presence_router': optional(moduleEntry, 'A module that routes presence.', {
    deprecated: 'list it under modules',
  }),
  use_presence: optional(k.flag, 'Old form of `presence.enabled`.', { deprecated: 'write presence.enabled' }),

  require_auth_for_profile_requests: setting(k.flag, false, 'Profiles are shown to logged-in users only.'),
  limit_profile_requests_to_users_who_share_rooms: setting(
    k.flag,
    false,
    'Profiles are shown only to users in a common room (client API).',
  ),
  include_profile_updates_in_sync: setting(
    k.flag,
    false,
    'Clients that ask for it are told of changed profiles of users of this server in their syncs (MSC4429, MSC4262).',
    { since: '1.163' },
  ),
  include_profile_data_on_invite: setting(k.flag, true, "Show the inviter's name and avatar in invites."),
  allow_public_rooms_without_auth: setting(k.flag, false, 'Show the public room directory without a login.', {
    since: '1.7',
  }),
  allow_public_rooms_over_federation: setting(k.flag, false, 'Show the public room directory to other servers.', {
    since: '1.7',
  }),
  restrict_public_rooms_to_local_users: optional(k.flag, 'Old form of the two settings above, inverted.', {
    deprecated: 'write allow_public_rooms_without_auth and allow_public_rooms_over_federation',
    rule: 'Not together with either of them.',
  }),
  default_room_version: setting(
    k.text({
      numbers: true,
      pattern: /^(1[0-2]?|[2-9])$/,
      expected: 'a known room version: "1" to "12"',
    }),
    '12',
    'Version of new rooms.',
  ),
  filter_timeline_limit: setting(k.whole(-1), 100, 'Most timeline events of one room in a sync; -1 for no limit.'),
  block_non_admin_invites: setting(k.flag, false, 'Only server administrators may invite.'),
  enable_search: setting(k.flag, true, 'Index messages and answer searches.', {
    rule: 'What was said while it was off is found once it is on again.',
  }),
  ip_range_blacklist: setting(k.list(k.ipRange), localRanges, 'Addresses that outgoing requests never reach.', {
    since: '1.25',
    rule: '`0.0.0.0` and `::` are always blocked.',
  }),
  ip_range_whitelist: setting(k.list(k.ipRange), [], 'Exceptions from `ip_range_blacklist`.', { since: '1.25' }),
  federation_ip_range_blacklist: optional(
    k.list(k.ipRange),
    'Old form of `ip_range_blacklist` for other servers and identity servers; where both are set, both hold for these.',
    { deprecated: 'write ip_range_blacklist' },
  ),
  http_proxy: optional(k.text({ empty: false }), 'Proxy for outgoing http requests.', {
    rule: 'Else the environment variable `http_proxy`.',
  }),
  https_proxy: optional(k.text({ empty: false }), 'Proxy for outgoing https requests.', {
    rule: 'Else the environment variable `https_proxy`.',
  }),
  no_proxy_hosts: optional(k.list(k.text({ empty: false })), 'Hosts and ranges reached without the proxy.', {
    rule: 'Else the environment variable `no_proxy`.',
  }),
  dummy_events_threshold: setting(
    k.whole(1),
    10,
    'Forward extremities of a room after which a dummy event joins them.',
  ),
  cleanup_extremities_with_dummy_events: setting(k.flag, true, 'Join forward extremities with dummy events.'),
  delete_stale_devices_after: optional(k.duration, 'Delete devices not seen for so long; checked hourly.'),
  max_event_delay_duration: optional(
    k.duration,
    'Longest delay of a delayed event; unset switches delayed events off.',
    {
      rule: 'Must be more than 0.',
    },
  ),
  'user_types.default_user_type': optional(k.text({ empty: false }), 'Type of new users.'),
  'user_types.extra_user_types': setting(
    k.list(k.text({ empty: false })),
    [],
    'Types of users beyond `bot` and `support`.',
  ),
  enable_ephemeral_messages: setting(
    k.flag,
    false,
    'Take the content of a message out of the database at the time that its field `org.matrix.self_destruct_after` names, milliseconds since 1970.',
  ),
  use_account_validity_in_account_status: setting(
    k.flag,
    false,
    'Tell in the account status endpoint whether an account has expired.',
  ),
  replication_torture_level: optional(k.whole(), 'Delays replication.', {
    meaningless: 'a tool of the tests of another server',
  }),
  'auto_accept_invites.enabled': setting(k.flag, false, 'Join rooms when invited, without asking.'),
  'auto_accept_invites.only_for_direct_messages': setting(k.flag, false, 'Only for direct chats.'),
  'auto_accept_invites.only_from_local_users': setting(k.flag, false, "Only for this server's users' invites."),
  'auto_accept_invites.worker_to_run_on': optional(
    k.text({ empty: false }),
    'Instance that notices them; the main process when unset. Whoever writes events joins.',
  ),

  modules: setting(k.list(moduleEntry), [], 'Modules to load, in order of priority.', { since: '1.37', reload: true }),
  'experimental.faster_joins': setting(
    k.flag,
    true,
    'Join rooms of other servers before all of their members are known: the rest is fetched in the background.',
    { since: '1.76' },
  ),
  invite_3pid_guest: ignored(k.anything, '1.55', 'Leave it out.'),
  trust_identity_server_for_password_resets: ignored(
    k.flag,
    '1.4',
    'Name an identity server in account_threepid_delegates.msisdn for phone numbers; emails are verified by this server itself.',
  ),
  trusted_third_party_id_servers: optional(
    k.list(k.text()),
    'Identity servers of the past; only looked at by the rule below.',
    {
      deprecated: 'write account_threepid_delegates.msisdn',
      rule: '`trust_identity_server_for_password_resets: true` without any of these is refused.',
    },
  ),
  log_file: refused(k.anything, '1.8', 'Name a logging setup in log_config, or set log_level.'),
};
