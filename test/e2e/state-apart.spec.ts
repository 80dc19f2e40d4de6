import { DataStores, type Database } from '@rookery/database';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, join, leave, ok, say, setState, type WireEvent } from './rooms/rooms-client.js';

const numberOf = async (database: Database, table: string): Promise<number> =>
  Number((await database.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n);

describe.each(databases)('a server whose state has a database of its own (%s)', (database) => {
  let home: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  beforeAll(async () => {
    home = await createTestHomeserver({ database, stateApart: true, settings: { enable_metrics: true } });
    alice = await home.registerUser('alice');
    bob = await home.registerUser('bob');
  });
  afterAll(() => home?.stop());
  const stores = (): DataStores => home.server.service(DataStores);
  const stateAt = async (roomId: string, eventId: string): Promise<string[]> => {
    const { state } = await ok<{ state: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/context/${eventId}?limit=0`);
    return state.filter(({ type }) => type === 'm.room.topic').map(({ content }) => String(content['topic']));
  };

  it('stores what makes state there, and nothing of it in the main one, and finds it after a restart', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const said: string[] = [];
    for (const topic of ['one', 'two', 'three']) {
      await setState(alice, roomId, 'm.room.topic', { topic });
      said.push(await say(bob, roomId, `about ${topic}`));
    }
    for (const table of ['state_groups', 'state_groups_state', 'state_group_edges']) {
      expect(await numberOf(stores().state, table)).toBeGreaterThan(0);
      expect(await numberOf(stores().main, table)).toBe(0);
    }
    await home.restart();
    for (const [index, topic] of ['one', 'two', 'three'].entries())
      expect(await stateAt(roomId, said[index]!)).toEqual([topic]);
    await setState(alice, roomId, 'm.room.topic', { topic: 'four' });
    expect(await stateAt(roomId, await say(bob, roomId, 'more'))).toEqual(['four']);
    // Who was not in the room when something was said is decided by the state then.
    await leave(bob, roomId);
    await say(alice, roomId, 'without bob');
    const { chunk } = await ok<{ chunk: WireEvent[] }>(bob, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    const bodies = chunk.map(({ content }) => content['body']);
    expect(bodies).toContain('more');
    expect(bodies).not.toContain('without bob');
  });

  it('deletes rooms from both', async () => {
    const admin = await home.registerAdministrator('admin');
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const rows = async (): Promise<number> =>
      (await stores().state.query('SELECT 1 FROM state_groups WHERE room_id = ?', [roomId])).length;
    expect(await rows()).toBeGreaterThan(0);
    const path = `/_synapse/admin/v2/rooms/${roomId}`;
    const { delete_id: id } = await ok<{ delete_id: string }>(admin, 'DELETE', path, { purge: true, block: false });
    await eventually(async () => {
      const { status } = await ok<{ status: string }>(admin, 'GET', `/_synapse/admin/v2/rooms/delete_status/${id}`);
      return status === 'complete';
    });
    expect(await rows()).toBe(0);
    if (database === 'postgres') {
      await stores().state.write((tx) => tx.run('ANALYZE state_groups_state'));
      const sizes = await ok<{ rooms: { room_id: string }[] }>(
        admin,
        'GET',
        '/_synapse/admin/v1/statistics/database/rooms',
      );
      expect(sizes.rooms.length).toBeGreaterThan(0);
    }
  });

  it('is told by its transactions in the metrics, and is not well without it', async () => {
    const { status } = await home.request('GET', '/health');
    expect(status).toBe(200);
    await stores().state.close();
    expect((await home.request('GET', '/health')).status).toBe(503);
    await home.restart();
    await createRoom(alice, { preset: 'public_chat' });
  });
});

describe.each(databases)('databases that do not belong together (%s)', (database) => {
  it('are not taken from a server that runs', async () => {
    const home = await createTestHomeserver({ database, stateApart: true });
    // As its own would be, if it were a copy of that server.
    const other = await createTestHomeserver({ database, stateApart: true, settings: { server_name: 'copy.test' } });
    const own = other.server.config.get('databases')!;
    const { state } = home.server.config.get('databases')!;
    await expect(other.restart({ databases: { ...own, state } })).rejects.toThrow(
      /Another server runs on the database/,
    );
    const alice = await home.registerUser('alice');
    await createRoom(alice, {});
    await home.stop();
    await other.restart({ databases: own });
    await other.stop();
  });

  it('are refused, with what to do', async () => {
    const home = await createTestHomeserver({ database, stateApart: true });
    const alice = await home.registerUser('alice');
    await createRoom(alice, { preset: 'public_chat' });
    const { databases: both } = { databases: home.server.config.get('databases')! };
    const { data_stores: _, ...main } = both['main']!;
    // Without the one for state.
    await expect(home.restart({ databases: undefined, database: main })).rejects.toThrow(
      /database.*: the state lies in a database of its own, by which these settings do not know|the state lies in a database/,
    );
    // Another server with the same one.
    const other = await createTestHomeserver({ database, settings: { server_name: 'other.test' } });
    await other.registerUser('bob');
    const own = other.server.config.get('database.args');
    const name = other.server.config.get('database.name');
    await expect(
      other.restart({
        database: undefined,
        databases: {
          main: { name, args: own, data_stores: ['main'] },
          state: { ...both['state'], data_stores: ['state'] },
        },
      }),
    ).rejects.toThrow(
      /databases: .*belongs to another main database, of rookery\.test: two servers must not share one/,
    );
    // A main one in place of one for state.
    await expect(
      home.restart({
        database: undefined,
        databases: { main: both['main'], state: { name, args: own, data_stores: ['state'] } },
      }),
    ).rejects.toThrow(/is a main database/);
    await home.restart({ databases: both });
    await home.stop();
    await other.restart({ databases: undefined, database: { name, args: own } });
    await other.stop();
  });
});
