import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { registerWithSecret } from '../../support/shared-secret.js';
import { type databases, createRoom, join, ok, say } from '../rooms/rooms-client.js';
import type { Names } from './examples.js';

const wide = { per_second: 1_000_000, burst_count: 1_000_000 };

/** A server without rate limits, so that requests reach what lies behind them. */
export const startUnlimited = (database: (typeof databases)[number]): Promise<TestHomeserver> =>
  createTestHomeserver({
    database,
    settings: {
      allow_guest_access: true,
      login_via_existing_session: { enabled: true },
      room_list_publication_rules: [{ action: 'allow' }],
      public_baseurl: 'https://rookery.test/',
      // Nobody takes these mails.
      email: { smtp_host: '127.0.0.1', smtp_port: 1, notif_from: 'Rookery <rookery@rookery.test>' },
      max_event_delay_duration: '1h',
      experimental_features: {
        msc3814_enabled: true,
        msc2666_enabled: true,
        msc4143_enabled: true,
        msc1763_enabled: true,
        msc2815_enabled: true,
        msc3381_polls_enabled: true,
        msc3391_enabled: true,
        msc3664_enabled: true,
        msc3848_enabled: true,
        msc3881_enabled: true,
        msc3890_enabled: true,
        msc3912_enabled: true,
        msc4028_push_encrypted_events: true,
        msc4076_enabled: true,
        msc4155_enabled: true,
        msc4277_enabled: true,
        msc4306_enabled: true,
        msc4354_enabled: true,
        msc4388_mode: 'open',
        msc4491_enabled: true,
      },
      rc_registration_token_validity: wide,
      rc_admin_redaction: wide,
      rc_3pid_validation: wide,
      rc_third_party_invite: wide,
      rc_media_create: wide,
      rc_delayed_event_mgmt: wide,
      rc_reports: wide,
      rc_user_directory: wide,
      rc_key_requests: wide,
      rc_presence: { per_user: wide },
    },
  });

/** Who asks, by how much the server knows of them. */
export interface World {
  readonly names: Names;
  readonly user: TestUser;
  /** Tokens by kind of requester; `undefined`: none is sent. */
  readonly tokens: Readonly<Record<string, string | undefined>>;
}

let worlds = 0;

/** New users with a room that has a bit of everything: what earlier requests broke is left behind. */
export async function makeWorld(homeserver: TestHomeserver): Promise<World> {
  const number = (worlds += 1);
  const admin = await registerWithSecret(homeserver, `admin${number}`, true);
  const user = await registerWithSecret(homeserver, `user${number}`);
  const other = await registerWithSecret(homeserver, `other${number}`);
  const suspended = await registerWithSecret(homeserver, `suspended${number}`);
  const guest = await homeserver.request<{ access_token: string }>('POST', '/register?kind=guest', {});
  const options = { preset: 'public_chat', room_alias_name: `room${number}` };
  const roomId = await createRoom(user, options);
  for (const member of [other, suspended]) await join(member, roomId);
  const eventId = await say(user, roomId, 'Hello');
  await say(other, roomId, 'In a thread', { 'm.relates_to': { rel_type: 'm.thread', event_id: eventId } });
  await ok(admin, 'PUT', `/_matrix/client/v1/admin/suspend/${suspended.userId}`, { suspended: true });
  const page = await ok<{ end?: string }>(user, 'GET', `/rooms/${roomId}/messages?dir=b&limit=1`);
  const sync = await ok<{ next_batch: string }>(user, 'GET', '/sync?timeout=0');
  const filter = await ok<{ filter_id: string }>(user, 'POST', `/user/${user.userId}/filter`, {});
  const version = await ok<{ version: string }>(user, 'POST', '/room_keys/version', {
    algorithm: 'm.megolm_backup.v1.curve25519-aes-sha2',
    auth_data: {},
  });
  const delayed = await ok<{ delay_id: string }>(
    user,
    'PUT',
    `/rooms/${roomId}/send/m.room.message/delayed?org.matrix.msc4140.delay=600000`,
    { body: 'Not yet' },
  );
  return {
    user,
    names: {
      ...{ roomId, eventId },
      password: `password of user${number}`,
      userId: user.userId,
      otherUserId: other.userId,
      alias: `#room${number}:rookery.test`,
      deviceId: user.deviceId,
      serverName: 'rookery.test',
      filterId: filter.filter_id,
      syncToken: sync.next_batch,
      pageToken: page.end ?? 't1',
      delayId: delayed.delay_id,
      backupVersion: version.version,
    },
    tokens: {
      user: user.accessToken,
      other: other.accessToken,
      guest: guest.body.access_token,
      suspended: suspended.accessToken,
      admin: admin.accessToken,
      nobody: undefined,
      foreign: 'syt_Zm9yZWlnbg_AAAAAAAAAAAAAAAAAAAA_000000',
    },
  };
}
