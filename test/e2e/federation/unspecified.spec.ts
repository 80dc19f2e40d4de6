import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases, say, setState } from '../rooms/rooms-client.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { Visit } from './visiting-server.js';

const part = encodeURIComponent;

/** What only servers and clients know of that are ahead of the specification. */
describe.each(databases)('towards other servers beyond the specification (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let plain: TestHomeserver;
  let visitor: PlayedServer;
  let alice: TestUser;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const flags = { msc4235_enabled: true, msc4370_enabled: true };
    home = await world.homeserver('home.test', { database, settings: { experimental_features: flags } });
    plain = await world.homeserver('plain.test', { database });
    visitor = await world.played('visitor.test');
    alice = await home.registerUser('alice');
  });
  afterAll(() => world.stop());

  it('the heads of a room are told to servers in it (MSC4370)', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: '12' });
    const uri = (room: string): string => `/_matrix/federation/unstable/org.matrix.msc4370/extremities/${part(room)}`;
    expect(await visitor.request(home, 'GET', uri(roomId))).toMatchObject({ status: 403 });
    await Visit.join(visitor, home, roomId, '@bob:visitor.test');
    const last = await say(alice, roomId, 'the end of it');
    expect(await visitor.request(home, 'GET', uri(roomId))).toEqual({ status: 200, body: { prev_events: [last] } });
    expect(await visitor.request(home, 'GET', uri('!unknown:home.test'))).toMatchObject({ status: 404 });
    expect(await visitor.request(plain, 'GET', uri(roomId))).toMatchObject({
      status: 404,
      body: { errcode: 'M_UNRECOGNIZED' },
    });
  });

  it('a space is looked for at the servers that a client names (MSC4235)', async () => {
    const zoe = await plain.registerUser('zoe');
    const space = await createRoom(zoe, {
      ...{ preset: 'public_chat', room_version: '12', name: 'Far away' },
      creation_content: { type: 'm.space' },
    });
    const child = await createRoom(zoe, { preset: 'public_chat', name: 'Child' });
    await setState(zoe, space, 'm.space.child', { via: ['plain.test'] }, child);
    const walk = (user: TestUser, room: string, query: string): ReturnType<TestUser['request']> =>
      user.request('GET', `/_matrix/client/v1/rooms/${part(room)}/hierarchy${query}`);
    expect((await walk(alice, space, '')).status).toBe(403);
    for (const query of ['?via=visitor.test&via=plain.test', '?org.matrix.msc4235.via=plain.test']) {
      const { body } = await alice.request('GET', `/_matrix/client/v1/rooms/${part(space)}/hierarchy${query}`);
      const rooms = body['rooms'] as { room_id: string }[];
      expect(rooms.map((room) => room.room_id)).toEqual([space, child]);
    }
    const ours = await createRoom(alice, {
      ...{ preset: 'public_chat', room_version: '12' },
      creation_content: { type: 'm.space' },
    });
    expect((await walk(zoe, ours, '?via=home.test')).status).toBe(403);
  });
});
