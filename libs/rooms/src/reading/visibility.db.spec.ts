import { databaseMigrations, type Tx } from '@rookery/database';
import { MatrixError, parseEventFilter } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountDataService, UserHooks, usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { JoinService } from '../membership/join.service.js';
import { LeaveService } from '../membership/leave.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { HiddenSenders } from './hidden-senders.js';

const filter = parseEventFilter({ types: ['m.room.message'] });

/** Which of the four messages each reader sees: before the invite, invited, joined, after leaving. */
const expected: Record<string, Record<string, string[]>> = {
  world_readable: {
    left: ['before', 'invited', 'joined', 'after'],
    joinedLater: ['before', 'invited', 'joined', 'after'],
    never: ['before', 'invited', 'joined', 'after'],
    invitedOnly: ['before', 'invited', 'joined', 'after'],
  },
  shared: {
    left: ['before', 'invited', 'joined'],
    joinedLater: ['before', 'invited', 'joined', 'after'],
    never: [],
    invitedOnly: [],
  },
  invited: { left: ['invited', 'joined'], joinedLater: [], never: [], invitedOnly: ['invited', 'joined', 'after'] },
  joined: { left: ['joined'], joinedLater: [], never: [], invitedOnly: [] },
};

eachDatabase('history visibility', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let rooms: RoomsFixture;
  const alice = requesterOf('alice');
  const readers: Record<string, Requester> = {
    left: requesterOf('bob'),
    joinedLater: requesterOf('carol'),
    never: requesterOf('dave'),
    invitedOnly: requesterOf('erin'),
  };
  const bob = readers['left']!;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    rooms = await buildRooms({ database: test.database, clock });
  });
  afterAll(() => rooms.close());

  /** A room with that visibility in which everything has happened; ids of the messages by name. */
  async function history(visibility: string): Promise<{ roomId: string; ids: Map<string, string> }> {
    const { roomId } = await rooms.get(RoomCreation).create(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: visibility } }],
    });
    const ids = new Map<string, string>();
    const say = async (body: string): Promise<void> => {
      const content = { msgtype: 'm.text', body };
      ids.set(body, (await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content })).eventId);
    };
    await say('before');
    await rooms.get(MembershipService).invite(alice, roomId, bob.userId);
    await rooms.get(MembershipService).invite(alice, roomId, readers['invitedOnly']!.userId);
    await say('invited');
    await rooms.get(JoinService).join(bob, roomId);
    await say('joined');
    await rooms.get(LeaveService).leave(bob, roomId);
    await say('after');
    await rooms.get(JoinService).join(readers['joinedLater']!, roomId);
    return { roomId, ids };
  }

  const isRefused = (error: unknown): boolean => MatrixError.is(error) && [403, 404].includes(error.status);
  const orNothing = async <T>(promise: Promise<T>): Promise<T | undefined> => {
    try {
      return await promise;
    } catch (error) {
      if (!isRefused(error)) throw error;
      return undefined;
    }
  };

  it.each(Object.keys(expected))('%s is honored by every endpoint for every reader', async (visibility) => {
    const { roomId, ids } = await history(visibility);
    const reading = rooms.get(RoomReadingService);
    for (const [name, reader] of Object.entries(readers)) {
      const wanted = expected[visibility]![name]!;
      const byEvent: string[] = [];
      const byContext: string[] = [];
      for (const [body, eventId] of ids) {
        if (await orNothing(reading.event(reader, roomId, eventId))) byEvent.push(body);
        const context = await orNothing(reading.context(reader, roomId, eventId, 0, filter));
        if (context) byContext.push((context['event'] as { content: { body: string } }).content.body);
      }
      expect({ name, byEvent, byContext }).toEqual({ name, byEvent: wanted, byContext: wanted });
      const page = await orNothing(reading.messages(reader, roomId, { direction: 'f', limit: 50, filter }));
      const chunk = (page?.['chunk'] ?? []) as { content: { body: string } }[];
      const mayList = visibility === 'world_readable' || name === 'left' || name === 'joinedLater';
      expect({ name, messages: chunk.map((event) => event.content.body) }).toEqual({
        name,
        messages: mayList ? wanted : [],
      });
      const all = await orNothing(reading.context(reader, roomId, ids.get(wanted[0] ?? 'before')!, 50, filter));
      const around = [
        ...((all?.['events_before'] ?? []) as object[]),
        ...((all?.['events_after'] ?? []) as object[]),
      ].map((event) => (event as { content: { body: string } }).content.body);
      expect({ name, around }).toEqual({ name, around: wanted.slice(1) });
    }
  });

  it('hides what ignored users say, and what erased users said before the reader came', async () => {
    const { roomId, ids } = await history('shared');
    const reading = rooms.get(RoomReadingService);
    const carol = readers['joinedLater']!;
    const hooks = rooms.get(UserHooks);
    await reading.event(carol, roomId, ids.get('joined')!);
    await test.database.write(async (tx) => {
      await tx.run('INSERT INTO erased_users (user_id) VALUES (?)', [alice.userId]);
      await hooks.deactivated.inTransaction(tx, { userId: alice.userId, erase: true, byAdmin: true });
    });
    expect((await reading.event(carol, roomId, ids.get('joined')!)).content).toEqual({});
    expect((await reading.event(bob, roomId, ids.get('joined')!)).content).toMatchObject({ body: 'joined' });
    await test.database.write(async (tx) => {
      await tx.run('DELETE FROM erased_users');
      await hooks.reactivated.inTransaction(tx, { userId: alice.userId });
    });
    const ignoring = { ignored_users: { [alice.userId]: {} } };
    await rooms
      .get(AccountDataService)
      .set(carol.userId, undefined, 'm.ignored_user_list', ignoring, { requester: carol });
    const page = await reading.messages(carol, roomId, { direction: 'b', limit: 50, filter });
    expect(page['chunk']).toEqual([]);
  });

  it('forgets whom somebody ignores where nobody knows what became of the transaction, and before it wakes anybody', async () => {
    const dora = requesterOf('dora');
    const hooks = rooms.get(UserHooks);
    const hidden = rooms.get(HiddenSenders);
    const seen = async (): Promise<unknown> => [
      await hidden.ignoredBy(dora.userId),
      await hidden.erasedOf([bob.userId]),
    ];
    const [nobody, aliceOnly, bobOnly] = [[], [alice.userId], [bob.userId]].map((userIds) => new Set(userIds));
    expect(await seen()).toEqual([nobody, nobody]);
    const unclear: (() => void)[] = [];
    await test.database.write(async (tx) => {
      // As a connection that breaks while the commit is under way: it happened, and nobody is told that it did.
      const cut = Object.create(tx, {
        ...{ afterCommit: { value: () => undefined }, run: { value: tx.run.bind(tx) } },
        unlessRolledBack: { value: (fn: () => void) => void unclear.push(fn) },
      }) as Tx;
      const row = [dora.userId, alice.userId];
      await tx.run('INSERT INTO ignored_users (ignorer_user_id, ignored_user_id) VALUES (?, ?)', row);
      await tx.run('INSERT INTO erased_users (user_id) VALUES (?)', [bob.userId]);
      const changed = { userId: dora.userId, type: 'm.ignored_user_list', content: {}, streamId: 0 };
      await hooks.accountDataChanged.inTransaction(cut, changed);
      await hooks.deactivated.inTransaction(cut, { userId: bob.userId, erase: true, byAdmin: true });
    });
    expect(await seen()).toEqual([nobody, nobody]);
    for (const tell of unclear) tell();
    expect(await seen()).toEqual([aliceOnly, bobOnly]);

    const woken = rooms.notifier.wait(dora.userId, { timeoutMs: 30_000 }).then(() => hidden.ignoredBy(dora.userId));
    const ignoring = { ignored_users: { [bob.userId]: {} } };
    await rooms
      .get(AccountDataService)
      .set(dora.userId, undefined, 'm.ignored_user_list', ignoring, { requester: dora });
    expect(await woken).toEqual(bobOnly);
    await test.database.write(async (tx) => {
      await tx.run('DELETE FROM erased_users');
      await hooks.reactivated.inTransaction(tx, { userId: bob.userId });
    });
    expect(await seen()).toEqual([bobOnly, nobody]);
  });

  it('gives those who left the state of that moment', async () => {
    const { roomId } = await history('shared');
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.name', stateKey: '', content: { name: 'A new name' } });
    const reading = rooms.get(RoomReadingService);
    await expect(reading.stateEvent(bob, roomId, 'm.room.name', '')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect((await reading.stateEvent(readers['joinedLater']!, roomId, 'm.room.name', '')).event.content).toEqual({
      name: 'A new name',
    });
    await expect(reading.allState(readers['never']!, roomId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    expect(await reading.members(bob, roomId, { membership: 'join' })).toMatchObject([{ state_key: alice.userId }]);
  });
});
