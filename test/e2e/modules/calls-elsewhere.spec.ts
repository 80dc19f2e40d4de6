import { rm } from 'node:fs/promises';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { installedModule } from './installed-module.js';

/** Its copies do what they are asked for, and look at once at what became of it; and answer what people say, if they are to. */
const source = `
  import { defineModule } from '@rookery/module-api';
  export default defineModule({
    name: 'calls',
    register(api) {
      const own = Math.random().toString(36);
      const failure = ({ name, status, errcode, message }) => ({ name, status, errcode, message });
      const does = {
        async people() {
          const userId = await api.registerUser('p' + own.slice(2), { displayName: 'One', emails: [own + '@example.org'] });
          await api.setDisplayname(userId, 'Two');
          await api.setUserAdmin(userId, true);
          await api.recordUserExternalId('idp', own, userId);
          await api.accountDataManager.putGlobal(userId, 'org.example.of', { own });
          const device = await api.registerDevice(userId, undefined, 'Made by a module');
          const token = await api.createLoginToken(userId);
          await api.setPresenceForUsers([{ userId, state: 'busy', statusMsg: 'here' }]);
          const seen = [
            (await api.getProfileForUser('p' + own.slice(2))).displayName, await api.isUserAdmin(userId),
            await api.getUserByExternalId('idp', own), await api.accountDataManager.getGlobal(userId, 'org.example.of'),
            (await api.getThreepidsForUser(userId)).map(({ address }) => address),
          ];
          return { userId, device, token, seen, own };
        },
        async gone({ userId, device }) {
          await api.invalidateAccessToken(device.accessToken);
          await api.forgetUserExternalId('idp', own, userId);
          await api.deactivateUser(userId);
          return [await api.getUserByExternalId('idp', own), (await api.getUserinfoById(userId)).isDeactivated];
        },
        async rooms({ alice, bob }) {
          const { roomId } = await api.createRoom(alice, { preset: 'public_chat', name: own });
          const invited = await api.updateRoomMembership(alice, bob, roomId, 'invite');
          const topic = await api.createAndSendEventIntoRoom({ roomId, sender: alice, type: 'm.room.topic', stateKey: '', content: { topic: own } });
          await api.publicRoomListManager.addRoomToPublicRoomList(roomId);
          const state = await api.getRoomState(roomId, [['m.room.topic', ''], ['m.room.member', bob]]);
          return { roomId, own, frozen: Object.isFrozen(topic.content), invited, topic, listed: await api.publicRoomListManager.roomIsInPublicRoomList(roomId),
            seen: state.map(({ type, content }) => [type, content.topic ?? content.membership]).sort() };
        },
        async ended(made) {
          const { roomId } = made.find((one) => one.own === own);
          await api.setRoomBlocked(roomId, true);
          await api.deleteRoom(roomId);
          return roomId;
        },
        async wrong({ alice }) {
          const failed = [];
          for (const call of [
            () => api.createRoom('@nobody:' + api.serverName, {}),
            () => api.createLoginToken(alice, -1),
            () => api.setDisplayname(alice, 'x'.repeat(1_000)),
            () => api.createRoom(alice, { big: 1n }),
          ]) failed.push(await call().then(() => 'taken', failure));
          return failed;
        },
        ring: () => api.messages.askCopies('ring'),
        async echo({ roomId, alice }) {
          const sent = api.createAndSendEventIntoRoom({ roomId, sender: alice, type: 'org.example.echo', content: {} });
          const result = await sent.then(() => 'sent', failure);
          await api.store.transaction(async (tx) => tx.put('echoes', [...((await tx.get('echoes')) ?? []), result]));
        },
      };
      // Whoever asks waits for a moment only: what comes of it is stored.
      api.messages.answer('do', ({ what, given }) => {
        api.runAsBackgroundProcess(what, async () => api.store.put('done/' + what + '/' + own, await does[what](given)));
        return own;
      });
      api.messages.answer('ring', () => api.messages.askCopies('ring'));
      api.registerWebResource('/_synapse/client/calls/:what', async (request, { params }) => {
        const { given } = await request.json();
        return Response.json(await api.messages.askCopies('do', { what: params.what, given }));
      });
      api.registerWebResource('/_synapse/client/called/:what', async (request, { params }) => {
        const found = [];
        for (const { value } of await api.store.list({ prefix: 'done/' + params.what + '/' })) found.push(value);
        return Response.json(found);
      });
      api.messages.answer('echo', ({ chosen, ...given }) => {
        if (chosen === own || chosen === undefined) api.runAsBackgroundProcess('echo', () => does.echo(given));
        return own;
      });
      let echo;
      api.registerThirdPartyRulesCallbacks({
        async onNewEvent(event) {
          if (event.type === 'org.example.start') echo = { chosen: event.content.chosen, roomId: event.roomId, alice: event.sender };
          // A copy elsewhere answers what this one was told of.
          if (event.roomId === echo?.roomId && event.type.startsWith('org.example.')) await api.messages.askCopies('echo', echo);
        },
      });
      api.registerWebResource('/_synapse/client/echoes', async () => Response.json((await api.store.get('echoes')) ?? []));
    },
  });`;

interface People {
  readonly userId: string;
  readonly device: { readonly deviceId: string; readonly accessToken: string };
  readonly token: string;
  readonly seen: readonly unknown[];
  readonly own: string;
}
interface Rooms {
  readonly roomId: string;
  readonly own: string;
  readonly frozen: boolean;
  readonly listed: boolean;
  readonly invited: { readonly stateKey: string };
  readonly topic: { readonly content: { readonly topic: string }; readonly eventId: string };
  readonly seen: readonly unknown[];
}

describe.each([
  ['with the server', {}],
  ['in threads', { isolate: 'thread' }],
] as const)('what modules do to accounts and rooms outside of the process that writes, %s', (_name, how) => {
  let homeserver: TestHomeserver;
  let folder: string;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    folder = await installedModule('rookery-calls', source);
    homeserver = await createTestHomeserver({
      ...{ database: 'postgres', processes: 3, configDir: folder },
      settings: { modules: [{ module: 'rookery-calls', ...how }] },
    });
    [alice, bob] = await Promise.all([homeserver.registerUser('alice'), homeserver.registerUser('bob')]);
  });
  afterAll(async () => {
    await homeserver?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** What the copies outside of the process that writes made of it. */
  const have = async <T>(what: string, given: object = {}): Promise<readonly T[]> => {
    const { body } = await alice.request<string[]>('POST', `/_synapse/client/calls/${what}`, { given });
    expect(new Set(body).size).toBe(2);
    return eventually(async () => {
      const done = (await alice.request<T[]>('GET', `/_synapse/client/called/${what}`)).body;
      return done.length === 2 && done;
    }, 60_000);
  };

  it('is done to accounts, and seen there at once', async () => {
    const people = await have<People>('people');
    for (const { userId, own, seen, device, token } of people) {
      expect(seen).toEqual(['Two', true, userId, { own }, [`${own}@example.org`]]);
      const headers = { authorization: `Bearer ${device.accessToken}` };
      for (const server of homeserver.servers) {
        const base = `http://127.0.0.1:${server.addresses[0]!.port}/_matrix/client/v3`;
        const who = (await (await fetch(`${base}/account/whoami`, { headers })).json()) as unknown;
        expect(who).toMatchObject({ user_id: userId, device_id: device.deviceId });
        const presence = await fetch(`${base}/presence/${encodeURIComponent(userId)}/status`, { headers });
        expect(await presence.json()).toMatchObject({ status_msg: 'here' });
      }
      const login = await alice.request<{ user_id: string }>('POST', '/_matrix/client/v3/login', {
        ...{ type: 'm.login.token', token },
      });
      expect(login.body.user_id).toBe(userId);
    }
    // Each is asked to end what one of them made.
    const [first] = people;
    for (const gone of await have<readonly unknown[]>('gone', { ...first })) expect(gone.at(-1)).toBe(true);
    const headers = { authorization: `Bearer ${first!.device.accessToken}` };
    for (const server of homeserver.servers) {
      const url = `http://127.0.0.1:${server.addresses[0]!.port}/_matrix/client/v3/account/whoami`;
      expect((await fetch(url, { headers })).status).toBe(401);
    }
  });

  it('is done to rooms, and seen there at once', async () => {
    const rooms = await have<Rooms>('rooms', { alice: alice.userId, bob: bob.userId });
    for (const { own, roomId, frozen, invited, topic, listed, seen } of rooms) {
      // In a thread it is the thread's.
      expect(frozen).toBe(!('isolate' in how));
      expect([listed, invited.stateKey, topic.content.topic]).toEqual([true, bob.userId, own]);
      expect(seen).toEqual([
        ['m.room.member', 'invite'],
        ['m.room.topic', own],
      ]);
      const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}`;
      expect((await alice.request('GET', `${path}/event/${encodeURIComponent(topic.eventId)}`)).status).toBe(200);
    }
    await have('ended', rooms);
    for (const { roomId } of rooms) {
      const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}`;
      await eventually(async () => (await alice.request('GET', `${path}/state`)).status === 403, 30_000);
      expect((await bob.request('POST', `${path}/join`, {})).status).toBe(403);
    }
  });

  it('fails as it would there', async () => {
    for (const result of await have<readonly unknown[]>('wrong', { alice: alice.userId }))
      expect(result).toEqual([
        expect.objectContaining({ status: 404, errcode: 'M_NOT_FOUND' }),
        expect.objectContaining({ name: 'RangeError', message: 'A login token lasts 1 to 86400000 milliseconds' }),
        expect.objectContaining({ status: 400, errcode: 'M_INVALID_PARAM' }),
        expect.objectContaining({ status: 400, errcode: 'M_BAD_JSON' }),
      ]);
  });

  it('comes to an end where copies answer each other', async () => {
    const { room_id } = (await alice.request<{ room_id: string }>('POST', '/createRoom', {})).body;
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(room_id)}/send/org.example.start/1`;
    const chosen = (await alice.request<string[]>('POST', '/_synapse/client/calls/ring', { given: {} })).body[0];
    await alice.request('PUT', path, { chosen });
    const echoes = async (): Promise<unknown[]> =>
      (await alice.request<unknown[]>('GET', '/_synapse/client/echoes')).body;
    // Each notes what came of its answer in its own time: the last one's refusal may be noted before what was sent last.
    await eventually(async () => (await echoes()).length > 20, 60_000);
    const results = await echoes();
    expect(results.filter((one) => one === 'sent')).toHaveLength(20);
    expect(results.filter((one) => one !== 'sent')).toEqual([
      expect.objectContaining({ status: 429, errcode: 'M_LIMIT_EXCEEDED' }),
    ]);
  });

  it('comes to an end where copies ask each other in a ring', async () => {
    expect(await have('ring')).toHaveLength(2);
  });
});
