import { BackgroundUpdates, Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { OwnKeys } from '@rookery/federation-client';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, join, ok, outcome, say, setState, startHomeserver } from '../rooms/rooms-client.js';
import { type EndpointRow, notRefused, type Operator, operatorOf } from './operator-world.js';

const jobs = '/v1/background_updates/start_job';

describe.each(databases)('the server’s own work in the admin API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: Operator;
  let alice: TestUser;

  beforeAll(async () => {
    const settings = { background_updates: { sleep_enabled: false } };
    homeserver = await startHomeserver(database, { ...settings, room_list_publication_rules: [{ action: 'allow' }] });
    root = await operatorOf(homeserver);
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  const allDone = (): Promise<true> =>
    eventually(async () => !(await homeserver.server.service(BackgroundUpdates).isQueued()));
  const run = async (body: object): Promise<void> => {
    expect(await root.ok('POST', jobs, body)).toEqual({});
    await allDone();
  };
  const stored = (): Database => homeserver.server.service(Database);

  it('is paused and goes on', async () => {
    await allDone();
    expect(await root.ok('GET', '/v1/background_updates/status')).toEqual({ enabled: true, current_updates: {} });
    expect(await root.ok('GET', '/v1/background_updates/enabled')).toEqual({ enabled: true });
    expect(await root.ok('POST', '/v1/background_updates/enabled', { enabled: false })).toEqual({ enabled: false });
    expect(await root.ok('GET', '/v1/background_updates/status')).toMatchObject({ enabled: false });
    const job = { job_name: 'regenerate_directory' };
    expect(await root.ok('POST', jobs, job)).toEqual({});
    expect(outcome(await root.call('POST', jobs, job))).toBe('400 M_UNKNOWN');
    expect(await root.ok('POST', '/v1/background_updates/enabled', {})).toEqual({ enabled: true });
    await allDone();
  });

  it('counts rooms anew', async () => {
    const bob = await homeserver.registerUser('bob');
    const roomId = await createRoom(alice, { preset: 'public_chat', name: 'Counted', topic: 'Numbers' });
    await join(bob, roomId);
    await setState(alice, roomId, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' });
    const before = await root.ok('GET', `/v1/rooms/${roomId}`);
    await stored().write(async (tx) => {
      await tx.run('UPDATE room_stats_current SET joined_members = 99, local_users_in_room = 98 WHERE room_id = ?', [
        roomId,
      ]);
      await tx.run('DELETE FROM room_stats_state WHERE room_id = ?', [roomId]);
    });
    expect(await root.ok('GET', `/v1/rooms/${roomId}`)).toMatchObject({ joined_members: 99, name: null });
    await run({ job_name: 'populate_stats_process_rooms' });
    expect(await root.ok('GET', `/v1/rooms/${roomId}`)).toEqual(before);
  });

  it('leaves nothing queued of the repair of statistics that operators know', async () => {
    await stored().write((tx) =>
      tx.run(
        `INSERT INTO background_updates (update_name, progress_json, depends_on)
         VALUES ('populate_stats_process_rooms', '{}', NULL),
                ('populate_stats_process_users', '{}', 'populate_stats_process_rooms')`,
      ),
    );
    await homeserver.restart();
    await allDone();
    expect(await stored().query('SELECT update_name FROM background_updates')).toEqual([]);
  });

  it('fills the directory of users anew', async () => {
    const search = async (): Promise<string[]> => {
      const found = await ok<{ results: { user_id: string }[] }>(alice, 'POST', '/user_directory/search', {
        search_term: 'alice',
      });
      return found.results.map((user) => user.user_id);
    };
    await homeserver.server.service(Database).write((tx) => tx.run('DELETE FROM user_directory'));
    await run({ job_name: 'regenerate_directory' });
    const { total } = (await stored().get<{ total: number }>('SELECT COUNT(*) AS total FROM user_directory'))!;
    expect(Number(total)).toBeGreaterThan(0);
    expect(await search()).toEqual(expect.any(Array) as string[]);
  });

  it('signs events anew that an old key has signed', async () => {
    const roomId = await createRoom(alice, { room_version: '11' });
    const [old, recent] = [await say(alice, roomId, 'old'), await say(alice, roomId, 'recent')];
    const current = homeserver.server.service(OwnKeys).current;
    const stranger = SigningKey.generate('stranger');
    type Signed = { event: { signatures: Record<string, Record<string, string>>; origin_server_ts: number } };
    const keysOf = async (eventId: string): Promise<string[]> => {
      const { event } = await root.ok<Signed>('GET', `/v1/fetch_event/${eventId}`);
      return Object.keys(event.signatures['rookery.test'] ?? {});
    };
    // As if another key had signed what the present one did: only the name is different.
    const formerId = 'ed25519:former';
    await stored().write(async (tx) => {
      for (const eventId of [old, recent]) {
        const row = (await tx.get<{ stream_ordering: number; json: string }>(
          'SELECT stream_ordering, json FROM event_json WHERE event_id = ?',
          [eventId],
        ))!;
        await tx.run('UPDATE event_json SET json = ? WHERE stream_ordering = ?', [
          row.json.replace(`"${current.keyId}"`, `"${formerId}"`),
          row.stream_ordering,
        ]);
      }
    });
    expect(await keysOf(old)).toEqual([formerId]);
    await run({ job_name: 'event_resign', old_key: `${formerId} ${stranger.publicKey}` });
    expect(await keysOf(old)).toEqual([formerId]);
    await run({ job_name: 'event_resign', old_key: `${formerId} ${current.publicKey}`, before_ts: 1000 });
    expect(await keysOf(old)).toEqual([formerId]);
    await run({ job_name: 'event_resign', old_key: `${formerId} ${current.publicKey}` });
    expect([await keysOf(old), await keysOf(recent)]).toEqual([[current.keyId], [current.keyId]]);
  });

  it.each([
    [jobs, {}, '400 M_MISSING_PARAM'],
    [jobs, { job_name: 'tidy_up' }, '400 M_UNKNOWN'],
    [jobs, { job_name: 'constructor' }, '400 M_UNKNOWN'],
    [jobs, { job_name: 'event_resign' }, '400 M_MISSING_PARAM'],
    [jobs, { job_name: 'event_resign', old_key: 'ed25519:x' }, '400 M_INVALID_PARAM'],
    [jobs, { job_name: 'event_resign', old_key: 'ed25519:x short' }, '400 M_INVALID_PARAM'],
    ['/v1/background_updates/enabled', { enabled: 'yes' }, '400 M_BAD_JSON'],
  ])('refuses %s with %j', async (path, body, expected) =>
    expect(outcome(await root.call('POST', path, body))).toBe(expected),
  );

  describe('tasks', () => {
    interface Tasks {
      readonly scheduled_tasks: readonly { readonly id: string; readonly action: string; readonly status: string }[];
    }
    const list = async (query: string): Promise<string[]> =>
      (await root.ok<Tasks>('GET', `/v1/scheduled_tasks${query}`)).scheduled_tasks.map((task) => task.id);

    it('are found by what they do, on what, how they stand and since when', async () => {
      const roomId = await createRoom(alice);
      await root.ok('DELETE', `/v1/rooms/${roomId}`, {});
      const other = await createRoom(alice);
      await say(alice, other, 'first');
      const purge = { purge_up_to_event_id: await say(alice, other, 'second') };
      const { purge_id: purgeId } = await root.ok<{ purge_id: string }>('POST', `/v1/purge_history/${other}`, purge);
      await eventually(async () => {
        const { status } = await root.ok<{ status: string }>('GET', `/v1/purge_history_status/${purgeId}`);
        return status === 'complete';
      });
      const all = await list('');
      expect(all).toHaveLength(2);
      // The oldest first.
      expect(all[1]).toBe(purgeId);
      expect(await list('?action_name=purge_history')).toEqual([purgeId]);
      expect(await list(`?resource_id=${encodeURIComponent(other)}`)).toEqual([purgeId]);
      expect([...(await list('?status=complete'))].sort()).toEqual([...all].sort());
      expect(await list('?job_status=failed')).toEqual([]);
      expect(await list('?job_status=failed&status=complete')).toHaveLength(2);
      expect(await list('?action_name=purge_history&action_name=shutdown_and_purge_room')).toEqual(all);
      expect(await list('?max_timestamp=1000')).toEqual([]);
      expect(outcome(await root.call('GET', '/v1/scheduled_tasks?status=lost'))).toBe('400 M_INVALID_PARAM');
      expect(outcome(await root.call('GET', '/v1/scheduled_tasks?max_timestamp=now'))).toBe('400 M_INVALID_PARAM');
    });
  });

  const roomsOf = async (user: TestUser): Promise<number | undefined> => {
    const sql = 'SELECT joined_rooms FROM user_stats_current WHERE user_id = ?';
    const row = await stored().get<{ joined_rooms: number }>(sql, [user.userId]);
    return row && Number(row.joined_rooms);
  };

  it('counts the rooms of users, anew when told, and no more when switched off', async () => {
    const carol = await homeserver.registerUser('carol');
    const roomId = await createRoom(carol, {});
    const purged = await createRoom(carol, {});
    await eventually(async () => (await roomsOf(carol)) === 2);
    await root.ok('DELETE', `/v1/rooms/${purged}`, { force_purge: true, purge: true });
    await eventually(async () => (await roomsOf(carol)) === 1);
    const wrong = 'UPDATE user_stats_current SET joined_rooms = 77';
    await stored().write((tx) => tx.run(wrong));
    await homeserver.server.service(BackgroundUpdates).queue('populate_stats_process_users');
    await allDone();
    expect(await roomsOf(carol)).toBe(1);

    await homeserver.restart({ stats: { enabled: false } });
    await createRoom(carol, {});
    expect(await stored().query('SELECT user_id FROM user_stats_current')).toEqual([]);
    await homeserver.server.service(BackgroundUpdates).queue('populate_stats_process_users');
    await allDone();
    expect(await stored().query('SELECT user_id FROM user_stats_current')).toEqual([]);

    await homeserver.restart({ stats: { enabled: true } });
    await ok(carol, 'POST', `/rooms/${roomId}/leave`, {});
    await eventually(async () => (await roomsOf(carol)) === 1);
    await allDone();
    expect(await roomsOf(carol)).toBe(1);
  });

  it('tells what is done again and again in the background, and when it was last', async () => {
    interface Tasks {
      readonly background_tasks: readonly Readonly<Record<string, unknown>>[];
    }
    const list = async (): Promise<Tasks['background_tasks']> =>
      (await root.ok<Tasks>('GET', '/v1/background_tasks')).background_tasks;
    const names = (await list()).map(({ name }) => name);
    expect(names).toEqual(names.toSorted());
    const waiting = (await list()).find(({ name }) => name === 'purge_expired_rows');
    expect(waiting).toEqual({
      ...{ name: 'purge_expired_rows', role: 'background', process: expect.any(String) },
      ...{ interval_ms: expect.any(Number), running: false },
      ...{ runs: 0, failures: 0, last_started_ts: null, last_duration_ms: null, last_error: null },
    });
    await eventually(async () => {
      const swept = (await list()).find(({ name }) => name === 'sweep_presence');
      return Number(swept?.['runs']) > 0 && Number(swept?.['last_started_ts']) > 0;
    });
  });

  it('tells which rooms take the most space, where the database knows', async () => {
    const path = '/v1/statistics/database/rooms';
    if (database === 'sqlite') return expect(outcome(await root.call('GET', path))).toBe('400 M_UNKNOWN');
    const roomId = await createRoom(alice);
    for (let i = 0; i < 20; i++) await say(alice, roomId, 'x'.repeat(20_000));
    interface Sizes {
      readonly rooms: readonly { readonly room_id: string; readonly estimated_size: number }[];
    }
    const read = async (): Promise<string[]> => {
      const { rooms } = await root.ok<Sizes>('GET', path);
      expect(rooms.length).toBeGreaterThan(0);
      expect(rooms.length).toBeLessThanOrEqual(10);
      expect(rooms[0]?.estimated_size).toBeGreaterThan(1000);
      const sizes = rooms.map((room) => room.estimated_size);
      expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
      return rooms.map((room) => room.room_id);
    };
    // What the database knows by itself may be from before.
    await read();
    await stored().write((tx) => tx.run('ANALYZE'));
    expect(await read()).toContain(roomId);
  });

  it('is for administrators only', async () => {
    const endpoints: EndpointRow[] = [
      ['GET', '/v1/background_updates/status'],
      ['GET', '/v1/background_updates/enabled'],
      ['POST', '/v1/background_updates/enabled', { enabled: true }],
      ['POST', jobs, { job_name: 'regenerate_directory' }],
      ['GET', '/v1/scheduled_tasks'],
      ['GET', '/v1/statistics/database/rooms'],
    ];
    expect(await notRefused(homeserver, alice, endpoints)).toEqual([]);
  });
});
