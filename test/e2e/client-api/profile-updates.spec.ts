import { Database } from '@rookery/database';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, join, leave, ok, say } from '../rooms/rooms-client.js';

const extension = 'org.matrix.msc4262.profiles';
const legacy = 'org.matrix.msc4429.users';

type Fields = Readonly<Record<string, unknown>>;
interface Sync {
  readonly next_batch: string;
  readonly [legacy]?: Readonly<Record<string, { readonly profile_updates: Fields | null }>>;
}
interface Told {
  readonly updated?: Fields;
  readonly removed?: readonly string[];
}
interface Sliding {
  readonly pos: string;
  readonly extensions: { readonly [extension]?: { readonly users: Readonly<Record<string, Told | null>> } };
}

describe.each(databases)('profiles of others in syncs (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, settings: { include_profile_updates_in_sync: true } });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
  });
  afterAll(() => homeserver?.stop());

  const set = (user: TestUser, field: string, value: unknown): Promise<unknown> =>
    ok(user, 'PUT', `/profile/${encodeURIComponent(user.userId)}/${field}`, { [field]: value });
  const remove = (user: TestUser, field: string): Promise<unknown> =>
    ok(user, 'DELETE', `/profile/${encodeURIComponent(user.userId)}/${field}`);
  const sync = (user: TestUser, since?: string, filter: object = {}, timeoutMs = 0): Promise<Sync> => {
    const wanted = { 'org.matrix.msc4429.profile_fields': { ids: ['displayname', 'm.status', 'org.example.mood'] } };
    const query = new URLSearchParams({
      timeout: String(timeoutMs),
      filter: JSON.stringify({ ...wanted, ...filter }),
      ...(since !== undefined && { since }),
    });
    return ok<Sync>(user, 'GET', `/sync?${query.toString()}`);
  };
  const slide = (user: TestUser, pos?: string, more: object = {}, lazy = true): Promise<Sliding> =>
    ok<Sliding>(
      user,
      'POST',
      `/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0${pos === undefined ? '' : `&pos=${pos}`}`,
      {
        lists: {
          all: { ranges: [[0, 9]], timeline_limit: 1, required_state: lazy ? [['m.room.member', '$LAZY']] : [] },
        },
        extensions: { [extension]: { enabled: true, ...more } },
      },
    );

  it('whole at first, then what changes, and what is gone', async () => {
    await set(alice, 'org.example.mood', 'calm');
    await set(alice, 'org.example.secret', 'not asked for');
    const first = await sync(bob);
    expect(first[legacy]?.[alice.userId]).toEqual({
      profile_updates: { displayname: 'alice', 'org.example.mood': 'calm' },
    });
    expect(first[legacy]?.[bob.userId]).toEqual({ profile_updates: { displayname: 'bob' } });
    await set(alice, 'org.example.secret', 'still not');
    expect(await sync(bob, first.next_batch)).not.toHaveProperty([legacy]);
    await set(alice, 'org.example.mood', { at: 'sea' });
    const second = await sync(bob, first.next_batch);
    expect(second[legacy]).toEqual({ [alice.userId]: { profile_updates: { 'org.example.mood': { at: 'sea' } } } });
    await remove(alice, 'org.example.mood');
    const third = await sync(bob, second.next_batch);
    expect(third[legacy]).toEqual({ [alice.userId]: { profile_updates: { 'org.example.mood': null } } });
    // Nobody who does not ask is told.
    const silent = await ok(bob, 'GET', `/sync?timeout=0&since=${first.next_batch}`);
    expect(silent).not.toHaveProperty([legacy]);
  });

  it('at a cost that does not grow with what strangers changed', async () => {
    const { next_batch: since } = await sync(bob);
    await set(alice, 'org.example.mood', 'before');
    const strangers = Array.from({ length: 2_500 }, (_, i) => `@stranger${i}:rookery.test`);
    await homeserver.server.service(Database).write(async (tx) => {
      const place = await tx.get<{ at: number }>('SELECT MAX(stream_id) AS at FROM profile_updates');
      const rows = strangers.map((userId) => [userId, 'displayname', place?.at ?? 0]);
      await tx.insertMany('profile_updates', ['user_id', 'field', 'stream_id'], rows);
    });
    let most = 0;
    // Whichever process answers.
    const restore = homeserver.servers.map((server) => {
      const database = server.service(Database);
      const { query } = database;
      const noted = async (sql: string, ...args: unknown[]): Promise<unknown[]> => {
        const rows = (await Reflect.apply(query, database, [sql, ...args])) as unknown[];
        if (sql.includes('profile_updates')) most = Math.max(most, rows.length);
        return rows;
      };
      Object.assign(database, { query: noted });
      return () => Object.assign(database, { query });
    });
    const told = await sync(bob, since);
    for (const undo of restore) undo();
    expect(told[legacy]).toEqual({ [alice.userId]: { profile_updates: { 'org.example.mood': 'before' } } });
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(strangers.length);
    await homeserver.server
      .service(Database)
      .write((tx) => tx.run(`DELETE FROM profile_updates WHERE user_id LIKE '@stranger%'`));
  });

  it('at once, to a client that waits', async () => {
    const { next_batch: since } = await sync(bob);
    const waiting = sync(bob, since, {}, 20_000);
    await set(alice, 'm.status', { text: 'away' });
    expect((await waiting)[legacy]?.[alice.userId]).toEqual({ profile_updates: { 'm.status': { text: 'away' } } });
  });

  it('of who shares a room, from when on they do and as long as they do', async () => {
    const carol = await homeserver.registerUser('carol');
    const before = await sync(carol);
    expect(Object.keys(before[legacy] ?? {})).toEqual([carol.userId]);
    await set(alice, 'org.example.mood', 'unseen');
    expect(await sync(carol, before.next_batch)).not.toHaveProperty([legacy]);
    await join(carol, roomId);
    const joined = await sync(carol, before.next_batch);
    expect(joined[legacy]?.[alice.userId]?.profile_updates).toMatchObject({ 'org.example.mood': 'unseen' });
    const ofBob = await sync(bob);
    await leave(carol, roomId);
    expect((await sync(bob, ofBob.next_batch))[legacy]).toEqual({ [carol.userId]: { profile_updates: null } });
    expect((await sync(carol, joined.next_batch))[legacy]?.[alice.userId]).toEqual({ profile_updates: null });
  });

  it('of the senders in sight alone, once, where members are loaded as they are needed', async () => {
    const filter = { room: { state: { lazy_load_members: true }, timeline: { limit: 1 } } };
    await say(bob, roomId, 'hello');
    const first = await sync(bob, undefined, filter);
    expect(Object.keys(first[legacy] ?? {})).toEqual([bob.userId]);
    await say(alice, roomId, 'one');
    const second = await sync(bob, first.next_batch, filter);
    expect(second[legacy]?.[alice.userId]?.profile_updates).toMatchObject({ displayname: 'alice' });
    await say(alice, roomId, 'two');
    expect(await sync(bob, second.next_batch, filter)).not.toHaveProperty([legacy]);
    // Whatever the client wants of the events.
    const bare = await sync(bob, undefined, { ...filter, event_fields: ['content'] });
    expect(Object.keys(bare[legacy] ?? {}).sort()).toEqual([alice.userId, bob.userId]);
  });

  it('in sliding sync', async () => {
    const dan = await homeserver.registerUser('dan');
    await join(dan, roomId);
    await set(alice, 'org.example.mood', 'glad');
    const whole = await slide(dan, undefined, { fields: ['displayname', 'org.example.mood'] }, false);
    expect(whole.extensions[extension]?.users).toMatchObject({
      [alice.userId]: { updated: { displayname: 'alice', 'org.example.mood': 'glad' } },
      [bob.userId]: { updated: { displayname: 'bob' } },
    });
    const first = await slide(dan);
    // Heard in the room is dan alone, who joined last.
    expect(Object.keys(first.extensions[extension]?.users ?? {})).toEqual([dan.userId]);
    await set(alice, 'org.example.mood', 'sad');
    await remove(alice, 'org.example.secret');
    const second = await slide(dan, first.pos);
    expect(second.extensions[extension]?.users).toEqual({
      [alice.userId]: { updated: { 'org.example.mood': 'sad' }, removed: ['org.example.secret'] },
    });
    const third = await slide(dan, second.pos, { fields: ['displayname'] });
    expect(third.extensions).not.toHaveProperty([extension]);
    await leave(dan, roomId);
    const last = await slide(dan, third.pos);
    expect(last.extensions[extension]?.users).toMatchObject({ [alice.userId]: null, [bob.userId]: null });
  });
});
