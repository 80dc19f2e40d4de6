import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { plansOf } from '@rookery/testing/internal';
import { buildEphemeral, type EphemeralFixture, fixtureMigrations, requesterOf } from '../ephemeral.fixture.js';
import { PresenceReader } from '../presence/presence-reader.js';
import { PresenceService } from '../presence/presence.service.js';
import { ReceiptService } from '../receipts/receipt.service.js';
import { TypingService } from '../typing/typing.service.js';
import { InboundEphemeral } from './inbound-edus.service.js';
import { joinedAmong } from './joined-users.query.js';

const alice = requesterOf('alice');
const dora = '@dora:far.org';
const emil = '@emil:far.org';

eachDatabase('typing, receipts and presence of other servers', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: EphemeralFixture;
  let inbound: InboundEphemeral;
  let roomId: string;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildEphemeral({ database: test.database, clock });
    inbound = fixture.get(InboundEphemeral);
  });
  beforeEach(async () => {
    roomId = await fixture.room(alice);
    await test.database.write((tx) =>
      tx.run(
        `INSERT INTO current_state_events (event_id, room_id, type, state_key, membership) VALUES (?, ?, 'm.room.member', ?, 'join')`,
        [`$dora-in-${roomId}`, roomId, dora],
      ),
    );
  });
  afterAll(() => fixture.close());

  it('types where the user is, as the own server says', async () => {
    const typing = (userId: string, room = roomId) => ({ room_id: room, user_id: userId, typing: true });
    await inbound.receiveTyping('far.org', typing(emil));
    await inbound.receiveTyping('other.org', typing(dora));
    await inbound.receiveTyping('far.org', typing(dora, '!unknown:far.org'));
    await inbound.receiveTyping('far.org', { ...typing(dora), typing: 'yes' });
    expect(fixture.get(TypingService).typists(roomId)).toEqual([]);
    await inbound.receiveTyping('far.org', typing(dora));
    expect(fixture.get(TypingService).typists(roomId)).toEqual([dora]);
    await inbound.receiveTyping('far.org', { ...typing(dora), typing: false });
    expect(fixture.get(TypingService).typists(roomId)).toEqual([]);
  });

  it('reads what is there, where the user is', async () => {
    const receipts = fixture.get(ReceiptService);
    const eventId = await fixture.say(alice, roomId);
    const since = receipts.stream.current();
    const receipt = (more = {}) => ({ event_ids: [eventId], data: { ts: 7 }, ...more });
    await inbound.receiveReceipts('far.org', {
      [roomId]: {
        'm.read': {
          [dora]: receipt({ data: { ts: 7, thread_id: 'main' } }),
          [emil]: receipt(),
          [alice.userId]: receipt(),
        },
        'm.read.private': { [dora]: receipt() },
      },
      nonsense: { 'm.read': { [dora]: receipt() } },
      '!unknown:far.org': { 'm.read': { [dora]: receipt() } },
    });
    await inbound.receiveReceipts('far.org', { [roomId]: { 'm.read': { [dora]: receipt({ event_ids: ['$none'] }) } } });
    await inbound.receiveReceipts('far.org', { [roomId]: { 'm.read': { [dora]: receipt({ event_ids: 5 }) } } });
    await inbound.receiveReceipts('far.org', {
      [roomId]: { 'm.read': { [dora]: receipt({ data: { thread_id: 5 } }) } },
    });
    const found = await receipts.changes(alice.userId, new Set([roomId]), since, receipts.stream.current());
    expect(found.get(roomId)).toMatchObject([{ userId: dora, eventId, ts: 7, threadId: 'main', type: 'm.read' }]);
    expect(found.get(roomId)).toHaveLength(1);
  });

  it('looks for each user in the room that they are named with', async () => {
    const { database } = test;
    const rooms = [roomId, await fixture.room(alice), '!partial:far.org'];
    await database.write((tx) =>
      tx.insertMany('partial_state_rooms_servers', ['room_id', 'server_name'], [[rooms[2]!, 'far.org']]),
    );
    const places = [
      ...[dora, dora, emil].map((userId) => ({ roomId: rooms[0]!, userId })),
      { roomId: rooms[1]!, userId: alice.userId },
      ...[dora, emil, '@fay:other.org'].map((userId) => ({ roomId: rooms[2]!, userId })),
    ];
    const found = await joinedAmong(database, places);
    const texts = found.map((one) => `${rooms.indexOf(one.roomId)} ${one.userId} ${one.isPartial}`);
    expect([...new Set(texts)].toSorted()).toEqual([
      `0 ${dora} false`,
      `1 ${alice.userId} false`,
      `2 ${dora} true`,
      `2 ${emil} true`,
    ]);
    const steps = (await plansOf(database, (db) => joinedAmong(db, places))).flat();
    expect(steps.filter((step) => step.includes('LIST SUBQUERY'))).toEqual([]);
  });

  it('reads no threads that were made up', async () => {
    const receipts = fixture.get(ReceiptService);
    const [root, eventId] = [await fixture.say(alice, roomId), await fixture.say(alice, roomId)];
    const elsewhere = await fixture.say(alice, await fixture.room(alice));
    const since = receipts.stream.current();
    for (const thread_id of ['$nothing', elsewhere, root])
      await inbound.receiveReceipts('far.org', {
        [roomId]: { 'm.read': { [dora]: { event_ids: [eventId], data: { ts: 7, thread_id } } } },
      });
    const found = await receipts.changes(alice.userId, new Set([roomId]), since, receipts.stream.current());
    expect(found.get(roomId)?.map(({ threadId }) => threadId)).toEqual([root]);
  });

  it('is there, if this server knows the user', async () => {
    const presence = fixture.get(PresenceService);
    const since = presence.stream.current();
    const push = (userId: string, more = {}) => ({
      user_id: userId,
      presence: 'online',
      last_active_ago: 5_000,
      ...more,
    });
    await inbound.receivePresence('far.org', {
      push: [
        push(dora, { status_msg: 'hi', currently_active: true }),
        push(emil),
        push(alice.userId),
        push('@x:other.org'),
        push(dora, { presence: 'asleep' }),
        'text',
      ],
    });
    await inbound.receivePresence('far.org', { push: 5 });
    await presence.flush();
    const upTo = presence.stream.current();
    const joinedRooms = new Set([roomId]);
    expect(
      await fixture.get(PresenceReader).changes({ userId: alice.userId, joinedRooms, freshRooms: [], since, upTo }),
    ).toMatchObject([
      { userId: dora, state: 'online', statusMsg: 'hi', lastActiveMs: clock.nowMs() - 5_000, currentlyActive: true },
    ]);
  });

  it.each([true, false])('is busy, or online where that is not known here (known: %s)', async (isKnown) => {
    const settings = { experimental_features: { msc3026_enabled: isKnown } };
    const other = await buildEphemeral({ database: test.database, clock, settings });
    const push = [{ user_id: dora, presence: 'busy', last_active_ago: 5_000 }];
    await other.get(InboundEphemeral).receivePresence('far.org', { push });
    await other.get(PresenceService).setForUsers([{ userId: alice.userId, state: 'busy' }]);
    const reader = other.get(PresenceReader);
    for (const userId of [dora, alice.userId])
      expect(await reader.visibleTo(alice.userId, userId)).toMatchObject({ state: isKnown ? 'busy' : 'online' });
    await other.close();
  });
});
