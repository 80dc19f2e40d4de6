import { type Database, databaseMigrations } from '@rookery/database';
import { Config } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { type EventBatch, type RoomHooks, roomsMigrations } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { type UserHooks, usersMigrations } from '@rookery/users';
import { searchMigrations } from '../migrations/index.js';
import { UserDirectoryIndex } from './user-directory-index.js';

const roomId = '!room:remote.test';

eachDatabase('members of other servers in the directory', (open) => {
  let database: Database;
  type RoomHook = RoomHooks['all'][number];
  let hook: RoomHook;

  beforeEach(async () => {
    const test = await open();
    ({ database } = test);
    const before = [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations];
    await test.migrate([...before, ...searchMigrations]);
    const point = { subscribe: () => {} };
    const userHooks = { registered: point, profileChanged: point, reactivated: point, deactivated: point };
    const roomHooks = { subscribe: (given: RoomHook) => (hook = given) };
    const config = Config.fromObject({ server_name: 'example.org' });
    new UserDirectoryIndex(userHooks as unknown as UserHooks, roomHooks as unknown as RoomHooks, config).onModuleInit();
  });

  const counting = new Map<string, string>();
  beforeEach(() => counting.clear());

  /** Stores that a member's state is so, and tells the hook; no membership: state resolution took it away. */
  const member = async (
    userId: string,
    membership: string | undefined,
    more: { readonly content?: object; readonly backfilled?: boolean } = {},
  ): Promise<void> => {
    const eventId = membership && `$${userId} ${membership}`;
    const move = { userId, eventId, membership, prevEventId: counting.get(userId) };
    const event = membership && { type: 'm.room.member', content: { membership, ...more.content } };
    const batch = { roomId, backfilled: more.backfilled ?? false, moves: [{ ...move, event }] };
    await database.write(async (tx) => {
      await tx.run('DELETE FROM current_state_events WHERE state_key = ?', [userId]);
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        eventId ? [[eventId, roomId, 'm.room.member', userId, membership]] : [],
      );
      await hook.inTransaction?.(tx, batch as unknown as EventBatch, undefined);
    });
    counting.set(userId, eventId ?? '');
  };
  const listed = async (): Promise<unknown[]> =>
    (
      await database.query<{ user_id: string; display_name: string | null }>(
        'SELECT user_id, display_name FROM user_directory ORDER BY user_id',
      )
    ).map((row) => [row.user_id, row.display_name]);

  it('come with the state of a room, under the name they have there', async () => {
    await member('@zoe:remote.test', 'join', { content: { displayname: 'Zoë' } });
    await member('@yan:remote.test', 'join', { content: { displayname: 7 } });
    await member('@zoe:remote.test', 'join', { content: { displayname: 'Zoë the second' } });
    expect(await listed()).toEqual([
      ['@yan:remote.test', null],
      ['@zoe:remote.test', 'Zoë the second'],
    ]);
  });

  it('go when they have left the last room', async () => {
    await member('@zoe:remote.test', 'join');
    await member('@zoe:remote.test', 'leave');
    expect(await listed()).toEqual([]);
  });

  it('go when state resolution takes back that they joined the only room', async () => {
    await member('@zoe:remote.test', 'join');
    await member('@zoe:remote.test', undefined);
    expect(await listed()).toEqual([]);
  });

  it('are not taken from the past, nor from this server', async () => {
    await member('@past:remote.test', 'join', { backfilled: true });
    await member('@ours:example.org', 'join');
    expect(await listed()).toEqual([]);
  });
});
