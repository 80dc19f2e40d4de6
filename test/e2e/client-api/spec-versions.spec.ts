import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { registerWithSecret } from '../../support/shared-secret.js';
import { createRoom, join, say } from '../rooms/rooms-client.js';

interface World {
  readonly homeserver: TestHomeserver;
  readonly root: TestUser;
  readonly alice: TestUser;
  readonly bob: TestUser;
  /** Alice's, and bob is in it. */
  readonly roomId: string;
}
type Demand = (world: World) => Promise<boolean>;

const v1 = '/_matrix/client/v1';
const is =
  (status: number, user: 'root' | 'alice' | 'bob', method: string, path: string, body?: object): Demand =>
  async (world) =>
    (await world[user].request(method, path, body)).status === status;
const capability =
  (name: string, of: 'root' | 'alice' = 'alice'): Demand =>
  async (world) =>
    name in (await world[of].request<{ capabilities: object }>('GET', '/capabilities')).body.capabilities;

/**
 * What each release demands of a server towards its clients beyond the one before, as far as it can be asked for from outside.
 * A release is named in `/versions` where all that stands here up to it is there, and no sooner.
 */
const demands: Readonly<Record<string, Readonly<Record<string, Demand>>>> = {
  'v1.13': {
    'reports of rooms': async (world) =>
      is(200, 'bob', 'POST', `/rooms/${world.roomId}/report`, { reason: 'noise' })(world),
    'no signs of accounts that are suspended': async (world) => {
      const suspend = (suspended: boolean): Promise<boolean> =>
        is(200, 'root', 'PUT', `/_synapse/admin/v1/suspend/${world.bob.userId}`, { suspend: suspended })(world);
      await suspend(true);
      const refused = await world.bob.request('PUT', `/rooms/${world.roomId}/send/m.room.message/suspended`, {});
      await suspend(false);
      return refused.status === 403 && refused.body['errcode'] === 'M_USER_SUSPENDED';
    },
  },
  'v1.14': {
    'reports of users': (world) =>
      is(200, 'bob', 'POST', `/users/${world.alice.userId}/report`, { reason: 'x' })(world),
    'via alone says where to join': (world) =>
      is(200, 'bob', 'POST', `/join/${world.roomId}?via=rookery.test`, {})(world),
  },
  'v1.15': {
    'an answer to the search for an authentication service': is(404, 'alice', 'GET', `${v1}/auth_metadata`),
    'summaries of rooms': (world) => is(200, 'bob', 'GET', `${v1}/room_summary/${world.roomId}`)(world),
    'topics in more than one form': async ({ alice, roomId }) =>
      'm.topic' in (await alice.request('GET', `/rooms/${roomId}/state/m.room.topic/`)).body,
  },
  'v1.16': {
    'room version 12 for new rooms': async ({ alice }) => {
      const { body } = await alice.request<{ capabilities: Record<string, { default?: string }> }>(
        'GET',
        '/capabilities',
      );
      return body.capabilities['m.room_versions']?.default === '12';
    },
    'state after the timeline': async ({ bob, roomId }) => {
      const { body } = await bob.request<{ rooms: { join: Record<string, object> } }>(
        'GET',
        '/sync?timeout=0&use_state_after=true',
      );
      return 'state_after' in body.rooms.join[roomId]!;
    },
    'profiles with any key': async ({ bob }) => {
      const path = `/profile/${bob.userId}/m.tz`;
      const written = await bob.request('PUT', path, { 'm.tz': 'Europe/Berlin' });
      const deleted = await bob.request('DELETE', path);
      return written.status === 200 && deleted.status === 200;
    },
    'm.profile_fields': capability('m.profile_fields'),
    'm.room.create among the state of invites': async ({ alice, bob }) => {
      const roomId = await createRoom(alice, { invite: [bob.userId] });
      type Invites = { rooms: { invite: Record<string, { invite_state: { events: { type: string }[] } }> } };
      const { body } = await bob.request<Invites>('GET', '/sync?timeout=0');
      return body.rooms.invite[roomId]!.invite_state.events.some(({ type }) => type === 'm.room.create');
    },
    'state as whole events': async ({ alice, roomId }) =>
      'event_id' in (await alice.request('GET', `/rooms/${roomId}/state/m.room.topic/?format=event`)).body,
  },
  'v1.17': {
    // The rules of before are kept for messages that do not list whom they mention, as clients of before write them.
    'no names looked for in messages that list their mentions': async ({ alice, bob }) => {
      const roomId = await createRoom(alice, { preset: 'public_chat' });
      await bob.request('POST', `/rooms/${roomId}/join`, {});
      const body = `alice, ${alice.userId} and @room`;
      const path = `/rooms/${roomId}/send/m.room.message/unlisted`;
      await bob.request('PUT', path, { msgtype: 'm.text', body, 'm.mentions': {} });
      type Counts = { rooms: { join: Record<string, { unread_notifications: { highlight_count: number } }> } };
      const { body: sync } = await alice.request<Counts>('GET', '/sync?timeout=0');
      return sync.rooms.join[roomId]!.unread_notifications.highlight_count === 0;
    },
  },
  'v1.18': {
    'locking accounts': (world) => is(200, 'root', 'GET', `${v1}/admin/lock/${world.bob.userId}`)(world),
    'suspending accounts': (world) => is(200, 'root', 'GET', `${v1}/admin/suspend/${world.bob.userId}`)(world),
    'm.account_moderation': capability('m.account_moderation', 'root'),
    'm.forget_forced_upon_leave': capability('m.forget_forced_upon_leave'),
    'invites blocked by account data': async ({ alice, bob }) => {
      const path = `/user/${bob.userId}/account_data/m.invite_permission_config`;
      await bob.request('PUT', path, { default_action: 'block' });
      const refused = await alice.request('POST', `/rooms/${await createRoom(alice)}/invite`, { user_id: bob.userId });
      await bob.request('PUT', path, {});
      return refused.status === 403 && refused.body['errcode'] === 'M_INVITE_BLOCKED';
    },
    'redactions by sending, in every room version': async ({ alice }) => {
      for (const room_version of ['10', '11']) {
        const roomId = await createRoom(alice, { room_version });
        const eventId = await say(alice, roomId, 'gone');
        const path = `/rooms/${roomId}/send/m.room.redaction/redacts-${room_version}`;
        if ((await alice.request('PUT', path, { redacts: eventId })).status !== 200) return false;
        const { body } = await alice.request<{ content: object }>('GET', `/rooms/${roomId}/event/${eventId}`);
        if (Object.keys(body.content).length > 0) return false;
      }
      return true;
    },
    'no answer where this is no policy server': async ({ homeserver }) =>
      (await fetch(`${homeserver.baseUrl}/.well-known/matrix/policy_server`)).status === 404,
    'sign-on that is told what it is for': is(
      404,
      'alice',
      'GET',
      '/login/sso/redirect?redirectUrl=https://a.example/&action=register',
    ),
  },
  'v1.19': {
    'mutual rooms': async (world) => is(200, 'bob', 'GET', `${v1}/mutual_rooms?user_id=${world.alice.userId}`)(world),
    'what a state event replaces': async ({ alice, roomId }) => {
      await alice.request('PUT', `/rooms/${roomId}/state/m.room.topic/`, { topic: 'another' });
      type Whole = { unsigned?: { replaces_state?: string } };
      const { body } = await alice.request<Whole>('GET', `/rooms/${roomId}/state/m.room.topic/?format=event`);
      return body.unsigned?.replaces_state !== undefined;
    },
  },
};

describe('the releases of the specification that the server names', () => {
  let homeserver: TestHomeserver;
  let world: World;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ fetch: validatedFetch });
    const [alice, bob] = [await homeserver.registerUser('alice'), await homeserver.registerUser('bob')];
    const root = await registerWithSecret(homeserver, 'root', true);
    const roomId = await createRoom(alice, { preset: 'public_chat', topic: 'releases' });
    await join(bob, roomId);
    world = { homeserver, root, alice, bob, roomId };
  });
  afterAll(() => homeserver?.stop());

  it('are those whose demands are met, and no others', async () => {
    const missing: string[] = [];
    const met: string[] = Array.from({ length: 12 }, (_, index) => `v1.${index + 1}`);
    for (const [release, wanted] of Object.entries(demands)) {
      for (const [name, isMet] of Object.entries(wanted))
        if (!(await isMet(world))) missing.push(`${release}: ${name}`);
      if (missing.length > 0) break;
      met.push(release);
    }
    const { body } = await homeserver.request<{ versions: string[]; unstable_features: Record<string, boolean> }>(
      'GET',
      '/_matrix/client/versions',
    );
    expect({ missing, versions: body.versions.filter((name) => name.startsWith('v')) }).toEqual({
      missing: [],
      versions: met,
    });
    expect(body.unstable_features).toMatchObject({ 'fi.mau.msc2659.stable': true, 'org.matrix.msc4222': true });
    // The timeline of a first sync is in the order of arrival here.
    expect(body.unstable_features).not.toHaveProperty([
      'org.matrix.msc4445.initial_sync_timeline_topological_ordering',
    ]);
  });
});
