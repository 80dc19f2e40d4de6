import { databaseMigrations, type Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { RoomHooks } from '../hooks.js';
import { JoinService } from '../membership/join.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from './event-creation.service.js';

const policy = { onError: 'deny' as const, timeLimitMs: undefined };

eachDatabase('modules and hooks', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const bob = requesterOf('bob');
  const asked: string[] = [];
  let hold: Promise<void> | undefined;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const registry = new ModuleRegistry(() => {});
    registry.addModule('test');
    registry.add('test', policy, 'spamChecker', {
      checkEventForSpam: async (event) => {
        asked.push(`spam ${event.type} ${event.eventId.length > 10}`);
        if (event.content['body'] === 'slow') await hold;
        return event.content['body'] === 'spam' ? { errcode: 'M_FORBIDDEN', message: 'No spam here' } : 'NOT_SPAM';
      },
      userMayJoinRoom: (userId) => (userId === '@unwanted:example.org' ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM'),
      userMayInvite: (_inviter, invitee) =>
        invitee === '@unwanted:example.org' ? { errcode: 'M_FORBIDDEN' } : 'NOT_SPAM',
    });
    registry.add('test', policy, 'thirdPartyRules', {
      checkEventAllowed: async (event, state) => {
        const name = await state.get('m.room.name');
        if (event.content['body'] === 'what is this?') {
          return { allowed: true, replacement: { content: { ...event.content, body: String(name?.content['name']) } } };
        }
        return event.content['body'] !== 'forbidden';
      },
    });
    const modules = new ModuleDispatcher();
    modules.install(registry.seal());
    rooms = await buildRooms({ database: test.database, clock, modules });
  });
  afterAll(() => rooms.close());

  const create = async (): Promise<string> =>
    (await rooms.get(RoomCreation).create(alice, { preset: 'public_chat', name: 'The room' })).roomId;
  const say = (roomId: string, body: string, requester = alice) =>
    rooms.get(EventCreation).send(requester, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } });
  const bodyOf = async (roomId: string, eventId: string): Promise<unknown> =>
    ((await rooms.get(RoomReadingService).event(alice, roomId, eventId)).content as JsonObject)['body'];

  it('let a spam checker see the finished event and refuse it', async () => {
    const roomId = await create();
    asked.length = 0;
    await expect(say(roomId, 'spam')).rejects.toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
      message: 'No spam here',
    });
    expect(asked).toEqual(['spam m.room.message true']);
    const fine = await say(roomId, 'fine');
    expect(await bodyOf(roomId, fine.eventId)).toBe('fine');
  });

  it('let third-party rules refuse and rewrite drafts, with the state before them', async () => {
    const roomId = await create();
    await expect(say(roomId, 'forbidden')).rejects.toMatchObject({ status: 403 });
    const rewritten = await say(roomId, 'what is this?');
    expect(await bodyOf(roomId, rewritten.eventId)).toBe('The room');
  });

  it('do not hold up others in the room while a module thinks', async () => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    let release = (): void => {};
    hold = new Promise((resolve) => (release = resolve));
    const slow = say(roomId, 'slow');
    const quick = await say(roomId, 'quick', bob);
    expect(await bodyOf(roomId, quick.eventId)).toBe('quick');
    release();
    expect(await bodyOf(roomId, (await slow).eventId)).toBe('slow');
    await say(roomId, 'merged');
    const heads = await test.database.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [
      roomId,
    ]);
    expect(heads.length).toBe(1);
  });

  it('refuses what was forbidden while a module thought', async () => {
    const roomId = await create();
    await rooms.get(JoinService).join(bob, roomId);
    let release = (): void => {};
    hold = new Promise((resolve) => (release = resolve));
    const slow = say(roomId, 'slow', bob);
    await rooms.get(MembershipService).ban(alice, roomId, bob.userId);
    release();
    await expect(slow).rejects.toMatchObject({ status: 403 });
  });

  it('ask before joins and invites', async () => {
    const roomId = await create();
    const unwanted = requesterOf('unwanted');
    await expect(rooms.get(JoinService).join(unwanted, roomId)).rejects.toMatchObject({ status: 403 });
    await expect(rooms.get(MembershipService).invite(alice, roomId, unwanted.userId)).rejects.toMatchObject({
      status: 403,
    });
  });

  it('fail the batch with a hook that must not be missed, and nothing else', async () => {
    const roomId = await create();
    let fails = false;
    const seen: string[] = [];
    rooms.get(RoomHooks).subscribe<number>({
      prepare: async (batch) => batch.events.length,
      inTransaction: async (tx: Tx, batch, prepared) => {
        expect(prepared).toBe(batch.events.length);
        if (fails && batch.events.some(({ event }) => event.content['body'] === 'poison')) throw new Error('hook');
        await tx.get('SELECT 1 AS one');
      },
      afterCommit: (batch) => {
        seen.push(...batch.events.map(({ event }) => String(event.content['body'])));
        if (batch.events.some(({ streamOrdering }) => streamOrdering > rooms.notifier.position('events'))) {
          throw new Error('told before it can be read');
        }
      },
    });
    fails = true;
    const results = await Promise.allSettled(['one', 'poison', 'two'].map((body) => say(roomId, body)));
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(seen.sort()).toEqual(['one', 'two']);
    fails = false;
    const after = await say(roomId, 'poison');
    expect(await bodyOf(roomId, after.eventId)).toBe('poison');
  });
});
