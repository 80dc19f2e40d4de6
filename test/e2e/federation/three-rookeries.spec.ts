import { eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, ok, say, type WireEvent } from '../rooms/rooms-client.js';
import { FederationWorld } from './federation-world.js';
import { Visit } from './visiting-server.js';

describe.each(databases)('a room on three servers (%s)', (database) => {
  let world: FederationWorld;
  let one: TestHomeserver;
  let three: TestHomeserver;
  let users: TestUser[];
  let roomId: string;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const metrics_flags = { known_servers: true };
    one = await world.homeserver('one.test', { database, settings: { metrics_flags } });
    const two = await world.homeserver('two.test', { database });
    three = await world.homeserver('three.test', { database });
    users = [await one.registerUser('alice'), await two.registerUser('bob'), await three.registerUser('carol')];
    const [alice, bob, carol] = users as [TestUser, TestUser, TestUser];
    roomId = await createRoom(alice, { preset: 'public_chat' });
    await ok(bob, 'POST', `/join/${encodeURIComponent(roomId)}?via=one.test`, {});
    // The server that lets her in tells the other one.
    await ok(carol, 'POST', `/join/${encodeURIComponent(roomId)}?via=two.test`, {});
    for (const user of users) await eventually(async () => (await members(user)).length === 3);
  });
  afterAll(() => world?.stop());

  const members = async (user: TestUser): Promise<string[]> =>
    Object.keys((await ok<{ joined: object }>(user, 'GET', `/rooms/${roomId}/joined_members`)).joined);
  /** Texts that a user sees, oldest first. */
  const texts = async (user: TestUser): Promise<string[]> => {
    const { chunk } = await ok<{ chunk: WireEvent[] }>(user, 'GET', `/rooms/${roomId}/messages?dir=b&limit=200`);
    return chunk
      .flatMap(({ type, content }) => (type === 'm.room.message' ? [String(content['body'])] : []))
      .toReversed();
  };
  const seesAll = (user: TestUser, wanted: readonly string[]): Promise<true> =>
    eventually(async () => {
      const seen = new Set(await texts(user));
      return wanted.every((text) => seen.has(text)) || undefined;
    });

  it('has a join told to the others by the server that helped with it, and by nobody else', async () => {
    const [alice, bob] = users as [TestUser, TestUser];
    const watch = await world.played('watch.test');
    watch.answer = (_, response) => void response.end('{"pdus":{}}');
    const shared = await createRoom(alice, { preset: 'public_chat' });
    await Visit.join(watch, one, shared, '@w:watch.test');
    await ok(bob, 'POST', `/join/${encodeURIComponent(shared)}?via=one.test`, {});
    await say(bob, shared, 'inside');
    const told = (): string[] =>
      watch.asked
        .filter(({ url }) => url.includes('/v1/send/'))
        .map(({ body }) => JSON.parse(body) as { origin: string; pdus: { type: string; sender: string }[] })
        .flatMap(({ origin, pdus }) => pdus.map(({ type, sender }) => `${origin} ${type} ${sender}`));
    await eventually(() => told().includes(`two.test m.room.message ${bob.userId}`));
    await eventually(() => told().includes(`one.test m.room.member ${bob.userId}`));
    expect(told()).not.toContain(`two.test m.room.member ${bob.userId}`);
  });

  it('shows everybody everything once, and what each said in its order', async () => {
    const said = users.map((_, i) => Array.from({ length: 15 }, (_, n) => `${i}-${n}`));
    await Promise.all(
      users.map(async (user, i) => {
        for (const text of said[i] ?? []) await say(user, roomId, text);
      }),
    );
    for (const user of users) {
      await seesAll(user, said.flat());
      const seen = await texts(user);
      expect(seen).toHaveLength(45);
      for (const [i, own] of said.entries()) expect(seen.filter((text) => text.startsWith(`${i}-`))).toEqual(own);
    }
  });

  it('shows after an outage what was said meanwhile', async () => {
    const [alice, bob, carol] = users as [TestUser, TestUser, TestUser];
    const { port } = (await world.names.endpoints('three.test', 8448))[0] ?? { port: 0 };
    world.names.host('three.test:8448', { address: '127.0.0.1', port: await freePort() });
    // Nobody keeps a connection.
    await three.restart();
    const said = Array.from({ length: 10 }, (_, n) => `meanwhile ${n}`);
    for (const [n, text] of said.entries()) await say(n % 2 === 0 ? alice : bob, roomId, text);
    for (const user of [alice, bob]) await seesAll(user, said);
    expect((await texts(carol)).some((text) => text.startsWith('meanwhile'))).toBe(false);
    world.names.host('three.test:8448', { address: '127.0.0.1', port });
    await say(carol, roomId, 'back');
    for (const user of users) await seesAll(user, [...said, 'back']);
  });
});
