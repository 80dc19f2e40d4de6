import { type PresenceState, type Receipt } from '@rookery/ephemeral';
import type { Destinations } from '@rookery/federation-client';
import { Lifecycle, Metrics, SilentLogger } from '@rookery/platform';
import type { WorkSharing } from '@rookery/replication';
import { FakeClock } from '@rookery/testing';
import type { DestinationQueues } from './destination-queues.js';
import type { FederationEventFeed } from './event-feed.js';
import type { EventTexts } from './event-texts.js';
import { FederationSender } from './federation-sender.js';
import type { Outgoing } from './outgoing.js';
import type { RemoteAudience } from './remote-audience.js';
import { SenderRouter } from './sender-router.js';

describe('What other processes are told to send', () => {
  const make = () => {
    const [clock, logger] = [new FakeClock(), new SilentLogger()];
    const given: Outgoing[] = [];
    let sizeOf: ((outgoing: Outgoing) => number) | undefined;
    const sharing = {
      share: (work: { readonly sizeOf: (outgoing: Outgoing) => number }) => {
        ({ sizeOf } = work);
        const outlet = {};
        return { isAllHere: false, outletOf: () => outlet, give: (_: object, item: Outgoing) => given.push(item) };
      },
    };
    let areAborted = false;
    const queues = { lookAfter: () => undefined, abort: () => (areAborted = true) } as unknown as DestinationQueues;
    const lifecycle = new Lifecycle(clock, logger);
    const router = new SenderRouter(
      ...([sharing as unknown as WorkSharing, clock, lifecycle, queues] as const),
      ...([{} as Destinations, { onForgotten: () => undefined } as unknown as EventTexts] as const),
    );
    const sender = new FederationSender(
      ...([
        lifecycle,
        {} as RemoteAudience,
        {} as FederationEventFeed,
        queues,
        router,
        new Metrics('home.test'),
      ] as const),
    );
    router.onModuleInit();
    return { sender, given, sizeOf: sizeOf!, lifecycle, areAborted: () => areAborted };
  };
  it('is not begun any more once the server begins to stop, whatever else takes its time to end', async () => {
    const { lifecycle, areAborted } = make();
    const ended = Promise.withResolvers<void>();
    lifecycle.on('listen', { name: 'slow', stop: () => ended.promise });
    const started = Promise.withResolvers<void>();
    lifecycle.on('modules', { name: 'ends before it has begun', start: () => started.promise });
    const starting = lifecycle.start();
    const stopped = lifecycle.stop();
    expect(areAborted()).toBe(true);
    started.resolve();
    ended.resolve();
    await Promise.all([starting, stopped]);
  });

  const longest = (n: number): string => `@${String(n)}:home.test`.padEnd(255, 'x');

  it('counts by what it holds, so that 20,000 of it are no more than a call takes, and comes in parts', () => {
    const { sender, given, sizeOf } = make();
    const states = Array.from({ length: 5_000 }, (_, n): PresenceState => {
      const times = { lastActiveMs: 1.7e12, lastSyncMs: 1.7e12, lastFederationMs: 1.7e12 };
      return { userId: longest(n), state: 'online', ...times, statusMsg: 'x'.repeat(1_024), currentlyActive: true };
    });
    const receipts = Array.from({ length: 5_000 }, (_, n): Receipt => {
      const [roomId, eventId, userId] = [longest(0), longest(1), longest(n)];
      return { roomId, eventId, userId, type: 'm.read', threadId: longest(2), ts: 1.7e12, eventStreamOrdering: 1e9 };
    });
    sender.sendPresence(['far.test'], states);
    sender.sendReceipts(['far.test'], receipts);
    sender.sendTyping(['far.test'], { roomId: longest(0), userId: longest(1), typing: true });
    const servers = Array.from({ length: 1_000 }, (_, n) => `${n}.test`.padStart(255, 'x'));
    const events = Array.from({ length: 200 }, (_, n) => {
      return { eventId: longest(n), roomId: longest(0), streamOrdering: 1e9 };
    });
    const items: Outgoing[] = [
      ...given,
      { kind: 'events', servers: servers.slice(0, 1), events },
      { kind: 'stored', servers, store: 'to_device' },
      { kind: 'forgotten', servers: [], eventIds: servers },
    ];
    for (const item of items) {
      const size = sizeOf(item);
      expect(size).toBeLessThan(5_000);
      expect((JSON.stringify(item).length / size) * 20_000).toBeLessThan(16 * 1024 * 1024);
    }
    const told = given.flatMap((one) => (one.kind === 'presence' ? one.states : []));
    expect(told).toEqual(states);
    expect(given.flatMap((one) => (one.kind === 'receipts' ? one.receipts : []))).toEqual(receipts);
  });
});
