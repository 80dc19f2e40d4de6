import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';

const features = {
  msc1763_enabled: 'Endpoint that tells the retention policy.',
  msc1767_enabled: 'Room version with extensible events; there is none here, so that true is refused.',
  msc2409_to_device_messages_enabled: 'To-device messages for application services.',
  msc2654_enabled: 'Unread counts.',
  msc2666_enabled: 'Unstable form of mutual rooms.',
  msc2815_enabled: 'Moderators see redacted content.',
  msc3026_enabled: 'Presence `busy`.',
  msc3202_transaction_extensions: 'Device lists and key counts for application services.',
  msc3381_polls_enabled: 'Push rules for polls.',
  msc3391_enabled: 'Deleting account data.',
  msc3664_enabled: 'Push rules that look at related events.',
  msc3720_enabled: 'Endpoint that tells the status of an account.',
  msc3773_enabled: 'Telling clients of notification counts by thread, which are there anyway.',
  msc3814_enabled: 'Dehydrated devices.',
  msc3848_enabled: 'More exact error codes.',
  msc3874_enabled: 'Telling clients of filters by relation, which are there anyway.',
  msc3881_enabled: 'Switching pushers of other devices on and off.',
  msc3890_enabled: 'Silencing notifications of other devices; needs `experimental_features.msc3391_enabled`.',
  msc3912_enabled: 'Redacting related events.',
  msc3983_appservice_otk_claims: 'Claiming one-time keys from application services.',
  msc3984_appservice_key_query: 'Asking application services for keys.',
  msc4028_push_encrypted_events: 'Push for all encrypted events.',
  msc4069_profile_inhibit_propagation: 'Changing the profile without telling rooms.',
  msc4075_enabled: 'Push rules by which calls ring.',
  msc4076_enabled: 'Badge without counts.',
  msc4108_enabled: 'Sign-in by QR code; needs `matrix_authentication_service.enabled`.',
  msc4133_enabled: 'Telling clients of unstable names of profile fields, which are there anyway.',
  msc4143_enabled: 'Endpoint that tells the backends of group calls.',
  msc4155_enabled: 'Filtering invites.',
  msc4169_enabled: 'Telling clients of redacting through the send endpoint, which is there anyway.',
  msc4210_enabled:
    'Push rules without mentions by a name in the text: `m.mentions` alone counts, as since Matrix 1.17.',
  msc4235_enabled: 'Parameter `via` of the space hierarchy.',
  msc4242_enabled: 'Room version with a graph of state; there is none here, so that true is refused.',
  msc4263_limit_key_queries_to_users_who_share_rooms: 'Keys are shown only to users in a common room.',
  msc4267_enabled: 'Capability that tells that leaving forgets.',
  msc4277_enabled: 'Reports are answered alike, whether or not there is what they are about.',
  msc4293_enabled: 'Redacting when banning.',
  msc4306_enabled: 'Subscribing to threads.',
  msc4354_enabled: 'Sticky events.',
  msc4370_enabled: 'Endpoint that tells forward extremities.',
  msc4446_enabled: 'Moving the read marker back.',
  msc4450_enabled: 'Choosing the provider when confirming by single sign-on.',
  msc4452_enabled: 'Capability that tells about link previews.',
  msc4491_enabled: 'Reasons in invites.',
  msc4502_enabled: 'Application services with leave to ask may ask who is in a room.',
  msc4512_enabled:
    'Application services answer requests of clients and of other servers under paths that their files name.',
} as const;

type Flags = { readonly [K in keyof typeof features as `experimental_features.${K}`]: ReturnType<typeof off> };
const off = (doc: string) => setting(k.flag, false, doc);

/** What is not stable yet. */
export const experimentalSettings = {
  ...(Object.fromEntries(
    Object.entries(features).map(([name, doc]) => [`experimental_features.${name}`, off(doc)]),
  ) as Flags),
  'experimental_features.msc4222_enabled': setting(k.flag, false, 'State after the timeline in a sync.', {
    meaningless: 'clients that ask for it get it, as specified since Matrix 1.16',
  }),
  'experimental_features.msc3575_enabled': setting(k.flag, true, 'Simplified sliding sync.', { since: '1.114' }),
  'experimental_features.msc3866': setting(
    k.object({
      enabled: k.field(k.flag, false, 'Know approval.'),
      require_approval_for_new_accounts: k.field(k.flag, false, 'New accounts wait for an administrator.'),
    }),
    { enabled: false, require_approval_for_new_accounts: false },
    'Approval of new accounts.',
  ),
  'experimental_features.msc4108_delegation_endpoint': optional(k.httpUrl, 'Where QR sign-in is delegated to.'),
  'experimental_features.msc4140_max_delayed_events_per_user': setting(
    k.whole(),
    100,
    'Most delayed events of a user.',
    { since: '1.157' },
  ),
  'experimental_features.msc4388_mode': setting(
    k.mapped(k.oneOf('off', 'open', 'authenticated', false), (value) => value || 'off'),
    'off',
    'Second form of the QR channel.',
  ),
};
