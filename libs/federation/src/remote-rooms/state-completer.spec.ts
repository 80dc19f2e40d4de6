import { eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import { Lifecycle } from '@rookery/platform';
import type { EventPersister, PartialRooms } from '@rookery/rooms';
import type { Candidates } from './candidates.js';
import { StateCompleter } from './state-completer.js';
import type { KnownState, StoredStates } from './stored-states.js';

const given: KnownState = { state: new Map(), servers: new Set() };

/** Completes one room, of which other servers know too; `storing` is what fetching its state from one and storing it comes to. */
function completing(
  storing: (signal: AbortSignal, stop: () => Promise<void>, server: string) => Promise<KnownState | undefined>,
  servers: string[] = [],
): {
  readonly clock: FakeClock;
  readonly completed: string[];
  /** Joins of which nothing is done any more. */
  readonly left: string[];
  /** Told that nobody waits for it. */
  readonly end: () => void;
} {
  const ending = new AbortController();
  const others = new Set(servers);
  const room = { roomId: '!a:b.test', joinEventId: '$join', via: 'b.test', servers: others, over: ending.signal };
  const clock = new FakeClock();
  const lifecycle = new Lifecycle(clock, new RecordingLogger());
  const completed: string[] = [];
  const left: string[] = [];
  const partial = { onBegan: () => undefined, all: [room], earlierJoins: async () => [] };
  const persister = {
    completeState: async (roomId: string) => completed.push(roomId) > 0,
    abandonState: async () => false,
  };
  const completer = new StateCompleter(
    partial as unknown as PartialRooms,
    {
      before: (server: string, _: string, signal: AbortSignal) => storing(signal, () => lifecycle.stop(), server),
      drop: async (joinEventId: string) => void left.push(joinEventId),
    } as unknown as StoredStates,
    { usable: (names: string[]) => names.slice(0, 100) } as unknown as Candidates,
    persister as unknown as EventPersister,
    clock,
    lifecycle,
    new RecordingLogger(),
  );
  completer.onModuleInit();
  void lifecycle.start();
  return { clock, completed, left, end: () => ending.abort() };
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

  it('is asked of every server in time, and in each round of the one that let the user in', async () => {
    const asked: string[] = [];
    const others = Array.from({ length: 150 }, (_, n) => `${n}.test`);
    const { clock, completed } = completing(async (_, __, server) => {
      asked.push(server);
      return server === '149.test' ? given : undefined;
    }, others);
    await eventually(async () => {
      await clock.advance(3_600_000);
      return completed.length > 0;
    });
    expect(new Set(asked)).toEqual(new Set(['b.test', ...others]));
    expect(asked.flatMap((server, index) => (server === 'b.test' ? [index] : [])).slice(0, 3)).toEqual([0, 20, 40]);
  });

  it('is asked of nobody any more once the room is gone', async () => {
    const asked: string[] = [];
    const { completed, left, end } = completing(
      async (signal, _, server) => {
        asked.push(server);
        end();
        expect(signal.aborted).toBe(true);
        return undefined;
      },
      ['c.test', 'd.test'],
    );
    await eventually(() => left.length > 0);
    expect(asked).toEqual(['b.test']);
    expect(completed).toEqual([]);
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
