import type { Database } from '@rookery/database';
import type { Destinations, FederationClient } from '@rookery/federation-client';
import { Config, Metrics, SilentLogger } from '@rookery/platform';
import { FakeClock, SeededIds } from '@rookery/testing';
import type { BacklogReader } from './backlog-reader.js';
import { DestinationQueues } from './destination-queues.js';
import type { EventTexts } from './event-texts.js';

it('takes nothing up for servers that another process looks after by the time that it knows them', async () => {
  const ours = new Set(['a.test', 'b.test']);
  const prepared = Promise.withResolvers<void>();
  const asked: string[] = [];
  const queues = new DestinationQueues(
    { query: async () => [...ours].map((destination) => ({ destination, top: 2, done: 1 })) } as unknown as Database,
    ...([new FakeClock(), new SeededIds(), Config.fromObject({ server_name: 'home.test' })] as const),
    ...([new SilentLogger(), new Metrics('home.test'), {} as FederationClient, {} as BacklogReader] as const),
    { forgetAll: () => undefined } as unknown as EventTexts,
    {
      prepare: () => prepared.promise,
      state: async (server: string) => (asked.push(server), { retryAtTs: 1 }),
    } as unknown as Destinations,
  );
  const isOurs = (server: string): boolean => ours.has(server);
  queues.lookAfter({ isOurs, maySend: isOurs, isCaughtUp: () => true });
  const caughtUp = queues.catchUp(isOurs);
  await new Promise(setImmediate);
  ours.delete('a.test');
  await queues.letGo();
  prepared.resolve();
  await caughtUp;
  await new Promise(setImmediate);
  expect(asked).toEqual(['b.test']);
});
