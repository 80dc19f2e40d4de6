import { setImmediate as nextTurn } from 'node:timers/promises';
import { eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import type { RoomEvent } from '@rookery/events';
import { Lifecycle } from '@rookery/platform';
import type { EventPersister, PartialRooms } from '@rookery/rooms';
import type { Candidates } from './candidates.js';
import type { MissingEvents } from './missing-events.js';
import { StateCompleter } from './state-completer.js';

const room = { roomId: '!a:b.test', joinEventId: '$join', via: 'b.test', servers: [] };
const state = Array.from(
  { length: 600 },
  (_, at) => ({ eventId: `$${at}`, rules: {}, authEventIds: [] }) as unknown as RoomEvent,
);

/** Completes one room; `storing` is called before some of its events are stored. */
function completing(storing: (stop: () => Promise<void>) => void): {
  readonly stored: string[];
  readonly completed: string[];
} {
  const clock = new FakeClock();
  const lifecycle = new Lifecycle(clock, new RecordingLogger());
  const stored: string[] = [];
  const completed: string[] = [];
  const partial = { onBegan: () => undefined, all: [room], get: () => room, earlierJoins: async () => [] };
  const persister = {
    receiveOutliers: async (_: string, __: string, events: readonly RoomEvent[]) => {
      storing(() => lifecycle.stop());
      // As long as storing takes, at least.
      await nextTurn();
      stored.push(...events.map(({ eventId }) => eventId));
    },
    completeState: async (roomId: string) => completed.push(roomId) > 0,
    abandonState: async () => false,
  };
  const completer = new StateCompleter(
    partial as unknown as PartialRooms,
    { stateBeforeKnown: async () => ({ version: '11', given: { state, authChain: [] } }) } as unknown as MissingEvents,
    { usable: () => ['b.test'] } as unknown as Candidates,
    persister as unknown as EventPersister,
    clock,
    lifecycle,
    new RecordingLogger(),
  );
  completer.onModuleInit();
  void lifecycle.start();
  return { stored, completed };
}

describe('the state of a room that is fetched after the join', () => {
  it('is put in place once all of its events are stored', async () => {
    const { stored, completed } = completing(() => undefined);
    await eventually(() => (completed.length > 0 ? true : undefined));
    expect([stored.length, completed]).toEqual([600, ['!a:b.test']]);
  });

  it('is left for the next start where the server stops before that', async () => {
    let stopping: Promise<void> | undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    const { stored, completed } = completing((stop) => {
      stopping ??= stop();
      resolve();
    });
    await promise;
    await stopping;
    expect([stored.length, completed]).toEqual([250, []]);
  });
});
