import { Database } from '@rookery/database';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { act, createRoom, databases, join, leave, ok, outcome, say, startHomeserver } from '../rooms/rooms-client.js';
import { type Operator, operatorOf } from './operator-world.js';

interface Deletion {
  readonly kicked_users: readonly string[];
  readonly failed_to_kick_users: readonly string[];
  readonly local_aliases: readonly string[];
  readonly new_room_id: string | null;
}

interface DeletionStatus {
  readonly delete_id: string;
  readonly room_id: string;
  readonly status: string;
  readonly shutdown_room: Deletion;
}

describe.each(databases)('deleting rooms by the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { room_list_publication_rules: [{ action: 'allow' }] });
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  const joined = async (user: TestUser): Promise<string[]> =>
    (await ok<{ joined_rooms: string[] }>(user, 'GET', '/joined_rooms')).joined_rooms;
  const finished = (deleteId: string): Promise<DeletionStatus> =>
    eventually(async () => {
      const task = await root.ok<DeletionStatus>('GET', `/v2/rooms/delete_status/${deleteId}`);
      return (task.status === 'complete' || task.status === 'failed') && task;
    });

  it('makes everybody leave and leaves nothing', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_alias_name: 'doomed', visibility: 'public' });
    await join(bob, roomId);
    const said = await say(bob, roomId, 'soon gone');
    const result = await root.ok<Deletion>('DELETE', `/v1/rooms/${roomId}`, {});
    expect({ ...result, kicked_users: [...result.kicked_users].sort() }).toEqual({
      kicked_users: [alice.userId, bob.userId],
      failed_to_kick_users: [],
      local_aliases: ['#doomed:rookery.test'],
      new_room_id: null,
    });
    expect(await joined(bob)).not.toContain(roomId);
    expect(outcome(await root.call('GET', `/v1/rooms/${roomId}`))).toBe('404 M_NOT_FOUND');
    expect(outcome(await root.call('GET', `/v1/fetch_event/${said}`))).toBe('404 M_NOT_FOUND');
    expect(outcome(await bob.request('GET', '/directory/room/%23doomed:rookery.test'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/join`, {}))).toBe('404 M_NOT_FOUND');
  });

  it('keeps everybody out of a room that is blocked with it', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await root.ok('DELETE', `/v1/rooms/${roomId}`, { block: true });
    expect(await root.ok('GET', `/v1/rooms/${roomId}/block`)).toEqual({ block: true, user_id: root.user.userId });
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/join`, {}))).toBe('403 M_FORBIDDEN');
  });

  it('brings everybody into a new room that only its maker speaks in', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_alias_name: 'moving' });
    await join(bob, roomId);
    const { new_room_id: next } = await root.ok<Deletion>('DELETE', `/v1/rooms/${roomId}`, {
      new_room_user_id: root.user.userId,
      room_name: 'The new place',
      message: 'Read the rules',
    });
    if (next === null) throw new Error('There is no new room');
    expect(await joined(bob)).toContain(next);
    expect(await ok(bob, 'GET', '/directory/room/%23moving:rookery.test')).toMatchObject({ room_id: next });
    expect(await ok(bob, 'GET', `/rooms/${next}/state/m.room.name`)).toEqual({ name: 'The new place' });
    const { chunk } = await ok<{ chunk: { content: { body?: string } }[] }>(
      bob,
      'GET',
      `/rooms/${next}/messages?dir=b&limit=10`,
    );
    expect(chunk.map((event) => event.content.body)).toContain('Read the rules');
    const refused = await bob.request('PUT', `/rooms/${next}/send/m.room.message/1`, {
      msgtype: 'm.text',
      body: 'But',
    });
    expect(outcome(refused)).toBe('403 M_FORBIDDEN');
  });

  it('takes invites back', async () => {
    const roomId = await createRoom(alice);
    await act(alice, 'invite', roomId, bob);
    const { kicked_users: kicked } = await root.ok<Deletion>('DELETE', `/v1/rooms/${roomId}`, {});
    expect([...kicked].sort()).toEqual([alice.userId, bob.userId]);
    const sync = await ok<{ rooms?: { invite?: object } }>(bob, 'GET', '/sync');
    expect(Object.keys(sync.rooms?.invite ?? {})).not.toContain(roomId);
  });

  it('can leave the room where it is, without anybody in it', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await root.ok('DELETE', `/v1/rooms/${roomId}`, { purge: false });
    expect(await root.ok('GET', `/v1/rooms/${roomId}`)).toMatchObject({ joined_members: 0, forgotten: true });
  });

  it('goes on in the background, and tells how far it has come', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const { delete_id: id } = await root.ok<{ delete_id: string }>('DELETE', `/v2/rooms/${roomId}`, {});
    const done = await finished(id);
    expect(done).toMatchObject({ delete_id: id, room_id: roomId, status: 'complete' });
    expect([...done.shutdown_room.kicked_users].sort()).toEqual([alice.userId, bob.userId]);
    expect(await root.ok('GET', `/v2/rooms/${roomId}/delete_status`)).toEqual({ results: [done] });
    expect(outcome(await root.call('GET', `/v1/rooms/${roomId}`))).toBe('404 M_NOT_FOUND');
    const { scheduled_tasks: tasks } = await root.ok<{ scheduled_tasks: object[] }>(
      'GET',
      `/v1/scheduled_tasks?resource_id=${encodeURIComponent(roomId)}`,
    );
    expect(tasks).toEqual([
      {
        id,
        action: 'shutdown_and_purge_room',
        status: 'complete',
        timestamp_ms: expect.any(Number) as number,
        resource_id: roomId,
        result: done.shutdown_room,
        error: null,
      },
    ]);
  });

  it('does not go on over somebody who cannot be removed, unless told', async () => {
    const roomId = await createRoom(alice);
    const ghost = '@ghost:rookery.test';
    const said = await say(alice, roomId, 'Who is there?');
    await homeserver.server
      .service(Database)
      .write((tx) =>
        tx.insertMany(
          'local_current_membership',
          ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering'],
          [[roomId, ghost, said, 'join', 1]],
        ),
      );
    expect(outcome(await root.call('DELETE', `/v1/rooms/${roomId}`, {}))).toBe('400 M_UNKNOWN');
    expect(await root.ok('GET', `/v1/rooms/${roomId}`)).toMatchObject({ joined_members: 0 });
    const { delete_id: id } = await root.ok<{ delete_id: string }>('DELETE', `/v2/rooms/${roomId}`, {});
    expect(await finished(id)).toMatchObject({ status: 'failed', shutdown_room: { failed_to_kick_users: [ghost] } });
    expect(await root.ok('DELETE', `/v1/rooms/${roomId}`, { force_purge: true })).toMatchObject({
      failed_to_kick_users: [ghost],
    });
    expect(outcome(await root.call('GET', `/v1/rooms/${roomId}`))).toBe('404 M_NOT_FOUND');
  });

  it('works on rooms that nobody is in or that nobody knows', async () => {
    const roomId = await createRoom(alice);
    await leave(alice, roomId);
    expect(await root.ok('DELETE', `/v1/rooms/${roomId}`, {})).toMatchObject({ kicked_users: [] });
    expect(await root.ok('DELETE', '/v1/rooms/!unknown:elsewhere.test', { block: true })).toMatchObject({
      kicked_users: [],
      new_room_id: null,
    });
  });

  it.each([
    ['v1', '!a:rookery.test', { block: 'yes' }, '400 M_BAD_JSON'],
    ['v2', '!a:rookery.test', { purge: 1 }, '400 M_BAD_JSON'],
    ['v2', '!a:rookery.test', { force_purge: 'no' }, '400 M_BAD_JSON'],
    ['v1', 'nonsense', {}, '400 M_UNKNOWN'],
    ['v2', 'nonsense', {}, '400 M_UNKNOWN'],
    ['v1', '!a:rookery.test', { new_room_user_id: '@x:elsewhere.test' }, '400 M_UNKNOWN'],
    ['v2', '!a:rookery.test', { new_room_user_id: 'x' }, '400 M_INVALID_PARAM'],
    ['v2', '!a:rookery.test', undefined, '400 M_NOT_JSON'],
  ])('%s of %s with %j: %s', async (version, roomId, body, expected) =>
    expect(outcome(await root.call('DELETE', `/${version}/rooms/${roomId}`, body))).toBe(expected),
  );

  it('has no status that was never begun', async () => {
    expect(outcome(await root.call('GET', '/v2/rooms/delete_status/unknown'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await root.call('GET', '/v2/rooms/!never:rookery.test/delete_status'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await root.call('GET', '/v2/rooms/nonsense/delete_status'))).toBe('400 M_UNKNOWN');
  });
});
