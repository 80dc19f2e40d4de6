import { buildEvent, type RoomEvent, roomVersionRules, signEvent, SigningKey } from '@rookery/events';
import { EventPersister } from '@rookery/rooms';
import { eachDatabase, FakeClock } from '@rookery/testing';
import type { Requester } from '@rookery/platform';
import { buildPush, fixtureMigrations, type PushFixture } from '../push.fixture.js';
import { NotificationHistory } from './notification-history.js';
import { PushCounts } from './push-counts.js';

const zoe = '@zoe:remote.test';
const bob = '@bob:example.org';
const roomId = '!far:remote.test';

function invite(target: string, depth: number): RoomEvent {
  return signEvent(
    buildEvent(
      {
        type: 'm.room.member',
        stateKey: target,
        sender: zoe,
        content: { membership: 'invite' },
        roomId,
        originServerTs: depth,
        depth,
        prevEventIds: [],
        authEventIds: [],
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

  const notified = async (): Promise<unknown[]> => {
    const requester = { userId: bob } as Requester;
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
    const before = await notified();
    await push.get(EventPersister).receiveOutliers(roomId, '10', [invite(bob, 2)]);
    expect(await notified()).toEqual(before);
  });
});
