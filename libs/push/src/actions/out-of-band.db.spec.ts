import { buildEvent, type RoomEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { EventPersister } from '@rookery/rooms';
import { eachDatabase, FakeClock } from '@rookery/testing';
import type { Requester } from '@rookery/platform';
import { buildPush, fixtureMigrations, type PushFixture } from '../push.fixture.js';
import { NotificationHistory } from './notification-history.js';
import { PushCounts } from './push-counts.js';

const zoe = '@zoe:remote.test';
const bob = '@bob:example.org';
const roomId = '!far:remote.test';

const invite = (target: string, depth: number): RoomEvent => made([], depth, target, zoe, { membership: 'invite' });

/** A piece of state that rests upon others, and follows upon the last of them. */
function made(
  before: readonly RoomEvent[],
  depth: number,
  stateKey: string,
  sender: string,
  content: JsonObject,
  type = 'm.room.member',
  prev = before.at(-1),
): RoomEvent {
  return signEvent(
    buildEvent(
      {
        ...{ type, stateKey, sender, content, roomId, originServerTs: depth, depth },
        prevEventIds: prev ? [prev.eventId] : [],
        authEventIds: before.map(({ eventId }) => eventId),
      },
      roomVersionRules('10')!,
    ),
    'remote.test',
    SigningKey.fromSeed('remote', new Uint8Array(32).fill(9)),
  );
}

eachDatabase('invites of other servers', (open) => {
  let push: PushFixture;

  beforeAll(async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate(fixtureMigrations);
    push = await buildPush({ database: test.database, clock });
  });
  afterAll(() => push.close());

  const notified = async (userId = bob): Promise<unknown[]> => {
    const requester = { userId } as Requester;
    const page = await push.get(NotificationHistory).page(requester, { limit: 10, onlyHighlights: false });
    return page.notifications.map((one) => (one['event'] as { event_id: string }).event_id);
  };

  it('notify whom they invite, and count nothing in a room that the user is not in', async () => {
    const event = invite(bob, 1);
    await push.get(EventPersister).receiveOutOfBand('10', event);
    expect(await notified()).toEqual([event.eventId]);
    expect((await push.get(PushCounts).read(bob, [roomId])).get(roomId)).toEqual(new Map());
    // The invite itself waits for an answer: badges tell of it.
    expect(await push.get(PushCounts).badge(bob)).toEqual({ messages: 1, rooms: 1 });
  });

  it('but not when they are only part of what another server tells about a room', async () => {
    await push.get(EventPersister).receiveOutOfBand('10', invite(bob, 1));
    const before = await notified();
    await push.get(EventPersister).receiveOutliers(roomId, [invite(bob, 2)]);
    expect(await notified()).toEqual(before);
  });

  it('once, also where the room comes to be known and the invite has its place in it', async () => {
    const [carol, dan] = ['@carol:example.org', '@dan:example.org'];
    const create = made([], 1, '', zoe, { room_version: '10', creator: zoe }, 'm.room.create');
    const first = made([create], 2, zoe, zoe, { membership: 'join' });
    const rules = made([create, first], 3, '', zoe, { join_rule: 'public' }, 'm.room.join_rules');
    const join = made([create, rules], 4, carol, carol, { membership: 'join' });
    const event = made([create, first, rules], 5, dan, zoe, { membership: 'invite' }, 'm.room.member', join);
    const persister = push.get(EventPersister);
    await persister.receiveOutOfBand('10', event);
    const given = { state: [create, first, rules], authChain: [] };
    expect(await persister.receiveWithState('10', { event: join }, given)).toMatchObject({ kind: 'accepted' });
    expect(await persister.receive(roomId, [{ event }])).toMatchObject([{ kind: 'accepted' }]);
    expect(await notified(dan)).toEqual([event.eventId]);
    expect(await push.get(PushCounts).badge(dan)).toEqual({ messages: 1, rooms: 1 });
  });
});
