import type { Database, Tx } from '@rookery/database';
import { type Config, Lifecycle, Metrics, SilentLogger } from '@rookery/platform';
import type { Notifier } from '@rookery/replication';
import type { EventBatch, RoomHooks } from '@rookery/rooms';
import { eventually, FakeClock } from '@rookery/testing';
import type { DestinationQueues } from './destination-queues.js';
import { FederationEventFeed } from './event-feed.js';
import type { EventTexts } from './event-texts.js';
import { FederationSender } from './federation-sender.js';
import type { Outgoing } from './outgoing.js';
import type { RemoteAudience } from './remote-audience.js';
import type { SenderRouter } from './sender-router.js';

/** A message of a user of this server, in a room with another server, as it was stored. */
const message = (n: number): EventBatch =>
  ({
    roomId: '!r',
    room: { remoteServers: ['far.test'], stateId: () => undefined },
    ...{ backfilled: false, moves: [] },
    events: [
      {
        event: { eventId: `$${n}`, roomId: '!r', sender: '@a:home.test', type: 'm.room.message', content: {} },
        ...{ streamOrdering: n, outlier: false, softFailed: false },
      },
    ],
  }) as unknown as EventBatch;

/** A feed over a database that is made up; what it does, in order. */
function make(): {
  feed: FederationEventFeed;
  clock: FakeClock;
  done: string[];
  store(batch: EventBatch): void;
  /** The database answers nothing, or is there again. */
  setAway(isAway: boolean): void;
  advance(to: number): void;
} {
  const clock = new FakeClock();
  let store = (_: EventBatch): void => undefined;
  const done: string[] = [];
  let [position, wake] = [1, (): void => undefined];
  let isAway = false;
  const answer = async <T>(work: () => T): Promise<T> => {
    if (isAway) throw new Error('the database is away');
    return work();
  };
  const database = {
    get: () => answer(() => ({ position: 1 })),
    write: (_: (tx: Tx) => Promise<void>, { name }: { name: string }) => answer(() => void done.push(name)),
  } as unknown as Database;
  const notifier = {
    position: () => position,
    onAdvance: (_: string, listener: () => void) => ((wake = listener), () => undefined),
  } as unknown as Notifier;
  const audience = { allowed: async () => ['far.test'], mayReach: () => true } as unknown as RemoteAudience;
  const feed = new FederationEventFeed(
    ...([database, notifier, clock] as const),
    { serverName: 'home.test' } as Config,
    new SilentLogger(),
    {
      subscribe: ({ afterCommit }: { afterCommit: typeof store }) => (store = afterCommit),
    } as unknown as RoomHooks,
    audience,
    {} as EventTexts,
    new Metrics('home.test'),
  );
  const advance = (to: number): void => {
    position = to;
    wake();
  };
  feed.onModuleInit();
  return { feed, clock, done, advance, store, setAway: (is) => void (isAway = is) };
}

describe('FederationEventFeed', () => {
  it('has everything looked up before the database says that servers are to get an event', async () => {
    const { feed, clock, done, advance, store } = make();
    let failures = 1;
    await feed.start({
      ready: Promise.resolve(),
      prepare: async () => {
        done.push('prepare');
        if (failures-- > 0) throw new Error('the database is away');
      },
      take: () => void done.push('take'),
    });
    store(message(2));
    advance(2);
    await eventually(async () => (await clock.advance(1_000), done.includes('take')));
    await feed.stop();
    // Whoever reads what is written would send it, and get it once more from the second try.
    expect(done.filter((name) => name !== 'save_cursor')).toEqual(['prepare', 'prepare', 'federation_queue', 'take']);
  });

  it('sends what comes after an outage of the database, also one in which others say what they look after', async () => {
    const { feed, clock, done, advance, store, setAway } = make();
    const complete = Promise.withResolvers<void>();
    const lifecycle = new Lifecycle(clock, new SilentLogger());
    const router = {
      open: () => undefined,
      complete: () => complete.promise,
      prepare: async () => void done.push('prepare'),
      send: (outgoing: Outgoing) => void done.push(outgoing.kind),
    } as unknown as SenderRouter;
    const sender = new FederationSender(
      ...([lifecycle, {} as RemoteAudience, feed, {} as DestinationQueues, router, new Metrics('home.test')] as const),
    );
    sender.onModuleInit();
    await lifecycle.start();
    store(message(2));
    advance(2);
    setAway(true);
    await new Promise(setImmediate);
    // Who gets it is not known to anybody before.
    expect(done).toEqual([]);
    complete.resolve();
    await new Promise(setImmediate);
    setAway(false);
    await eventually(async () => (await clock.advance(1_000), done.includes('events')));
    await lifecycle.stop();
  });

  it('looks at nothing any more where it stops before somebody looks after the servers', async () => {
    const { feed, done, advance, store } = make();
    const ready = Promise.withResolvers<void>();
    await feed.start({ ready: ready.promise, prepare: async () => undefined, take: () => void done.push('take') });
    store(message(2));
    advance(2);
    await new Promise(setImmediate);
    const stopped = feed.stop();
    ready.resolve();
    await stopped;
    expect(done).toEqual([]);
  });
});
