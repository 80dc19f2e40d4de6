import { eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import { Lifecycle } from '@rookery/platform';
import type { EventPersister, PartialRooms } from '@rookery/rooms';
import type { Candidates } from './candidates.js';
import { StateCompleter } from './state-completer.js';
import type { KnownState, StoredStates } from './stored-states.js';

const room = { roomId: '!a:b.test', joinEventId: '$join', via: 'b.test', servers: [] };
const given: KnownState = { state: new Map(), servers: new Set() };

/** Completes one room; `storing` is what fetching and storing its state comes to. */
function completing(storing: (signal: AbortSignal, stop: () => Promise<void>) => Promise<KnownState | undefined>): {
  readonly clock: FakeClock;
  readonly completed: string[];
} {
  const clock = new FakeClock();
  const lifecycle = new Lifecycle(clock, new RecordingLogger());
  const completed: string[] = [];
  const partial = { onBegan: () => undefined, all: [room], get: () => room, earlierJoins: async () => [] };
  const persister = {
    completeState: async (roomId: string) => completed.push(roomId) > 0,
    abandonState: async () => false,
  };
  const completer = new StateCompleter(
    partial as unknown as PartialRooms,
    {
      before: (_: string, __: string, signal: AbortSignal) => storing(signal, () => lifecycle.stop()),
      drop: async () => undefined,
    } as unknown as StoredStates,
    { usable: () => ['b.test'] } as unknown as Candidates,
    persister as unknown as EventPersister,
    clock,
    lifecycle,
    new RecordingLogger(),
  );
  completer.onModuleInit();
  void lifecycle.start();
  return { clock, completed };
}

describe('the state of a room that is fetched after the join', () => {
  it('is put in place once all of its events are stored', async () => {
    const { completed } = completing(async () => given);
    await eventually(() => (completed.length > 0 ? true : undefined));
    expect(completed).toEqual(['!a:b.test']);
  });

  it('is fetched again after whatever did not work here', async () => {
    let tries = 0;
    const { clock, completed } = completing(async () => {
      if (++tries === 1) throw new Error('No space is left');
      return given;
    });
    await eventually(() => tries > 0);
    expect(completed).toEqual([]);
    await eventually(async () => {
      await clock.advance(5_000);
      return completed.length > 0;
    });
    expect(tries).toBe(2);
  });

  it.each([
    ['before that', undefined],
    ['right then', given],
  ])('is left for the next start where the server stops %s', async (_, stored) => {
    let stopping: Promise<void> | undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    const { completed } = completing(async (signal, stop) => {
      stopping ??= stop();
      resolve();
      expect(signal.aborted).toBe(true);
      return stored;
    });
    await promise;
    await stopping;
    expect(completed).toEqual([]);
  });
});
