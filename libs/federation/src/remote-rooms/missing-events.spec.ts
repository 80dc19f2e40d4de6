import type { RoomEvent } from '@rookery/events';
import { type FederationClient, FederationRequestError } from '@rookery/federation-client';
import type { Config } from '@rookery/platform';
import { SilentLogger } from '@rookery/platform';
import type { EventStore, RoomStateReader } from '@rookery/rooms';
import { FakeClock } from '@rookery/testing';
import { MissingEvents } from './missing-events.js';
import type { PduChecker } from './pdu-checker.js';
import type { RoomHosts } from './room-hosts.js';

describe('what is missing before events', () => {
  const asked: string[] = [];
  const make = (answer: (server: string) => object): MissingEvents => {
    asked.length = 0;
    const client = {
      requestExactJson: ({ destination, path }: { destination: string; path: string }) => {
        asked.push(`${destination} ${path.split('/')[4] ?? ''}`);
        return Promise.resolve().then(() => answer(destination));
      },
    } as unknown as FederationClient;
    const checker = { sound: (pdus: unknown) => Promise.resolve(pdus) } as unknown as PduChecker;
    const hosts = {
      likely: () => Promise.resolve(['origin.test', 'third.test', 'fourth.test']),
    } as unknown as RoomHosts;
    const stored = {
      many: () => Promise.resolve(new Map()),
    } as unknown as EventStore;
    const state = { versions: () => Promise.resolve(new Map([['!r', '11']])) } as unknown as RoomStateReader;
    const config = { get: () => 10_000 } as unknown as Config;
    return new MissingEvents(
      ...([client, checker, hosts, stored, state, config, new FakeClock(), new SilentLogger()] as const),
    );
  };
  const event = { eventId: '$e', prevEventIds: [], roomId: '!r' } as unknown as RoomEvent;
  const onlyThird = (server: string): object => {
    if (server === 'origin.test') throw new FederationRequestError(server, 'unreachable', 'gone');
    return { events: [event] };
  };

  it('is asked of others in the room, where who sent the event cannot be reached', async () => {
    const missing = make(onlyThird);
    expect(await missing.missingEvents('origin.test', '!r', [], ['$late'])).toEqual([event]);
    expect(asked).toEqual(['origin.test get_missing_events', 'third.test get_missing_events']);
  });

  it('is asked of nobody else, where that server answers', async () => {
    const missing = make(() => ({ events: [] }));
    expect(await missing.missingEvents('origin.test', '!r', [], ['$late'])).toEqual([]);
    expect(asked).toEqual(['origin.test get_missing_events']);
  });
});
