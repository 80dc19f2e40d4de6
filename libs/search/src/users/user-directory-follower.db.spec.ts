import { type Database, databaseMigrations } from '@rookery/database';
import { Config, Lifecycle, SilentLogger, SystemClock } from '@rookery/platform';
import {
  FollowerSharing,
  InProcessBus,
  InProcessRpc,
  LocalRoles,
  Notifier,
  replicationMigrations,
} from '@rookery/replication';
import { roomsMigrations } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { searchMigrations } from '../migrations/index.js';
import { UserDirectoryFollower } from './user-directory-follower.js';

const roomId = '!room:remote.test';
const zoe = '@zoe:remote.test';

eachDatabase('members of other servers in the directory', (open) => {
  let database: Database;
  let notifier: Notifier;
  let follower: UserDirectoryFollower;
  let position: number;
  let stop: (() => Promise<void>) | undefined;
  const counting = new Map<string, string>();

  beforeEach(async () => {
    const test = await open();
    ({ database } = test);
    const before = [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations];
    await test.migrate([...before, ...searchMigrations]);
    position = 0;
    counting.clear();
    await start();
  });
  afterEach(() => stop?.());

  const start = async (): Promise<void> => {
    const [clock, logger, rpc] = [new SystemClock(), new SilentLogger(), new InProcessRpc()];
    const roles = new LocalRoles(rpc);
    const lifecycle = new Lifecycle(clock, logger);
    notifier = new Notifier(clock, new InProcessBus());
    notifier.announce('events', position);
    const sharing = new FollowerSharing({ roles, rpc, database, notifier, clock, logger });
    const config = Config.fromObject({ server_name: 'example.org' });
    follower = new UserDirectoryFollower(database, notifier, config, lifecycle, sharing);
    follower.onModuleInit();
    lifecycle.on('listen', { name: 'roles', start: () => roles.start(), stop: () => roles.stop() });
    stop = async () => {
      await lifecycle.stop();
      notifier.close();
    };
    await lifecycle.start();
  };
  /** Stores that a member's state is so; no membership: state resolution took it away. */
  const store = async (userId: string, membership?: string, name?: string, room = roomId): Promise<void> => {
    const eventId = membership && `$${++position} of ${userId}`;
    const place = eventId === undefined ? ++position : position;
    await database.write(async (tx) => {
      await tx.run('DELETE FROM current_state_events WHERE state_key = ? AND room_id = ?', [userId, room]);
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership', 'event_stream_ordering'],
        eventId ? [[eventId, room, 'm.room.member', userId, membership!, place]] : [],
      );
      await tx.insertMany(
        'room_memberships',
        ['event_id', 'user_id', 'sender', 'room_id', 'membership', 'display_name', 'event_stream_ordering'],
        eventId ? [[eventId, userId, userId, room, membership!, name ?? null, place]] : [],
      );
      await tx.insertMany(
        'current_state_delta_stream',
        ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
        [[place, room, 'm.room.member', userId, eventId ?? null, counting.get(userId + room) ?? null]],
      );
    });
    counting.set(userId + room, eventId ?? '');
  };
  const member = async (...given: Parameters<typeof store>): Promise<void> => {
    await store(...given);
    notifier.announce('events', position);
  };
  const listed = async (): Promise<unknown[]> => {
    await follower.caughtUp();
    const rows = await database.query<{ user_id: string; display_name: string | null }>(
      'SELECT user_id, display_name FROM user_directory ORDER BY user_id',
    );
    return rows.map((row) => [row.user_id, row.display_name]);
  };

  it('come with the state of a room, under the name that they took last', async () => {
    await member(zoe, 'join', 'Zoë');
    await member('@yan:remote.test', 'join');
    await member(zoe, 'join', 'Zoë the second');
    expect(await listed()).toEqual([
      ['@yan:remote.test', null],
      [zoe, 'Zoë the second'],
    ]);
    await member(zoe, 'join', 'Zoë elsewhere', '!other:remote.test');
    expect(await listed()).toContainEqual([zoe, 'Zoë elsewhere']);
    await member(zoe, 'leave', undefined, '!other:remote.test');
    expect(await listed()).toContainEqual([zoe, 'Zoë the second']);
  });

  it('come all, where thousands come at one position', async () => {
    const users = Array.from({ length: 1_050 }, (_, n) => `@user${String(n).padStart(4, '0')}:remote.test`);
    position++;
    const eventOf = (userId: string): string => `$of ${userId}`;
    await database.write(async (tx) => {
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership', 'event_stream_ordering'],
        users.map((userId) => [eventOf(userId), roomId, 'm.room.member', userId, 'join', position]),
      );
      await tx.insertMany(
        'room_memberships',
        ['event_id', 'user_id', 'sender', 'room_id', 'membership', 'display_name', 'event_stream_ordering'],
        users.map((userId) => [eventOf(userId), userId, userId, roomId, 'join', userId.slice(1, 9), position]),
      );
      await tx.insertMany(
        'current_state_delta_stream',
        ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
        users.map((userId) => [position, roomId, 'm.room.member', userId, eventOf(userId), null]),
      );
    });
    await member(zoe, 'join');
    expect(await listed()).toEqual([...users.map((userId) => [userId, userId.slice(1, 9)]), [zoe, null]]);
  });

  it('go when they have left the last room', async () => {
    await member(zoe, 'join');
    expect(await listed()).toEqual([[zoe, null]]);
    await member(zoe, 'leave');
    expect(await listed()).toEqual([]);
  });

  it('go when state resolution takes back that they joined the only room', async () => {
    await member(zoe, 'join');
    expect(await listed()).toEqual([[zoe, null]]);
    await member(zoe);
    expect(await listed()).toEqual([]);
  });

  it('are not taken from this server, nor from before there was a cursor', async () => {
    await member('@ours:example.org', 'join');
    await member(zoe, 'join');
    expect(await listed()).toEqual([[zoe, null]]);
    await stop?.();
    for (const table of ['stream_cursors', 'user_directory'])
      await database.write((tx) => tx.run(`DELETE FROM ${table}`));
    await start();
    await member('@yan:remote.test', 'join');
    expect(await listed()).toEqual([['@yan:remote.test', null]]);
  });

  it('are brought up to date, many at once, by whoever follows next', async () => {
    await member(zoe, 'join', 'Zoë');
    expect(await listed()).toHaveLength(1);
    await stop?.();
    for (let n = 0; n < 20; n++) await store(`@user${n}:remote.test`, 'join', `${n}`);
    await store(zoe, 'leave');
    await start();
    expect(await listed()).toHaveLength(20);
  });
});
