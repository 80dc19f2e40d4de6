import type { TestHomeserver, TestUser } from '@rookery/testing';
import { eventually } from '@rookery/testing';
import { databases, ok } from '../rooms/rooms-client.js';
import { ElsewhereRoom, pduOf } from './elsewhere-room.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { sendTransaction } from './visiting-server.js';

describe.each(databases)('rooms that are upgraded elsewhere (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let far: PlayedServer;
  let next: PlayedServer;
  let alice: TestUser;
  let aliases = 0;

  beforeAll(async () => {
    world = await FederationWorld.create();
    home = await world.homeserver('home.test', {
      database,
      settings: { room_list_publication_rules: [{ action: 'allow' }], require_membership_for_aliases: false },
    });
    [far, next] = [await world.played('far.test'), await world.played('next.test')];
    alice = await home.registerUser('alice');
  });
  afterAll(() => world?.stop());

  const join = (room: ElsewhereRoom): Promise<unknown> =>
    ok(alice, 'POST', `/join/${room.roomId}?via=${room.server.name}`, {});
  const roomOf = async (alias: string): Promise<unknown> =>
    (await ok(alice, 'GET', `/directory/room/${encodeURIComponent(alias)}`))['room_id'];

  /** A room elsewhere with an alias of this server. */
  const named = async (): Promise<{ readonly old: ElsewhereRoom; readonly alias: string }> => {
    const old = new ElsewhereRoom(far, '10');
    // Who may name it may say that it is listed here.
    const content = { users: { [old.creator]: 100, [alice.userId]: 100 }, invite: 0 };
    old.add({ type: 'm.room.power_levels', stateKey: '', content });
    await join(old);
    const alias = `#moving-${(aliases += 1)}:home.test`;
    await ok(alice, 'PUT', `/directory/room/${encodeURIComponent(alias)}`, { room_id: old.roomId });
    return { old, alias };
  };
  const visibilityOf = async (room: ElsewhereRoom): Promise<unknown> =>
    (await ok(alice, 'GET', `/directory/list/room/${encodeURIComponent(room.roomId)}`))['visibility'];
  const publish = (room: ElsewhereRoom): Promise<unknown> =>
    ok(alice, 'PUT', `/directory/list/room/${encodeURIComponent(room.roomId)}`, { visibility: 'public' });
  const close = async (old: ElsewhereRoom, replacement: string): Promise<void> => {
    const content = { body: 'replaced', replacement_room: replacement };
    const tombstone = old.add({ type: 'm.room.tombstone', stateKey: '', content });
    expect((await sendTransaction(far, home, [pduOf(tombstone)])).status).toBe(200);
    const state = `/rooms/${old.roomId}/state/m.room.tombstone`;
    await eventually(async () => (await alice.request('GET', state)).status === 200);
  };

  it('take the aliases of this server along, and their place in the directory, when somebody follows', async () => {
    const { old, alias } = await named();
    await publish(old);
    const successor = new ElsewhereRoom(next, '10', { join_rule: 'public' }, old.roomId);
    await close(old, successor.roomId);
    expect(await roomOf(alias)).toBe(old.roomId);
    expect(await visibilityOf(old)).toBe('public');
    await join(successor);
    await eventually(async () => (await roomOf(alias)) === successor.roomId);
    expect([await visibilityOf(old), await visibilityOf(successor)]).toEqual(['private', 'public']);
  });

  it('take them along as well where the old room is closed last', async () => {
    const { old, alias } = await named();
    await publish(old);
    const successor = new ElsewhereRoom(next, '10', { join_rule: 'public' }, old.roomId);
    await join(successor);
    expect(await roomOf(alias)).toBe(old.roomId);
    await close(old, successor.roomId);
    await eventually(async () => (await roomOf(alias)) === successor.roomId);
    expect([await visibilityOf(old), await visibilityOf(successor)]).toEqual(['private', 'public']);
  });

  it('lose nothing to a room that only claims to follow', async () => {
    const { old, alias } = await named();
    await publish(old);
    const successor = new ElsewhereRoom(next, '10', { join_rule: 'public' }, old.roomId);
    await close(old, successor.roomId);
    const pretender = new ElsewhereRoom(next, '10', { join_rule: 'public' }, old.roomId);
    await join(pretender);
    next.answer = (asked, response) => void successor.answer(asked, response);
    await join(successor);
    await eventually(async () => (await roomOf(alias)) === successor.roomId);
    const rooms = [old, pretender, successor];
    expect(await Promise.all(rooms.map(visibilityOf))).toEqual(['private', 'private', 'public']);
  });
});
