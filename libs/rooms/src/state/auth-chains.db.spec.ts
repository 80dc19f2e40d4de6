import { databaseMigrations } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { eachDatabase, FakeClock, SeededIds, type TestDatabase } from '@rookery/testing';
import { roomsMigrations } from '../migrations/index.js';
import { authChainOf, authDifference, type CommonEvents, writeAuthChains } from './auth-chains.query.js';
import { ChainMemory } from './chain-memory.js';

/** As much of an event as the chain cover looks at. */
const eventOf = (eventId: string, stateKey: string, authEventIds: string[]): RoomEvent =>
  ({ eventId, type: 'm.room.member', stateKey, authEventIds }) as unknown as RoomEvent;

function chainOf(events: ReadonlyMap<string, RoomEvent>, start: Iterable<string>): Set<string> {
  const reached = new Set<string>();
  const pending = [...start];
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    if (reached.has(id)) continue;
    reached.add(id);
    pending.push(...events.get(id)!.authEventIds);
  }
  return reached;
}

/** Events on which sets agree, some of which are likely to matter. */
const commonOf = (eventIds: readonly string[], random: SeededIds): CommonEvents => ({
  likely: () => Promise.resolve(eventIds.filter(() => random.integer(2) === 0)),
  all: () => eventIds,
});

eachDatabase('the chain cover of auth chains', (open) => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await open(new FakeClock());
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
  });

  it.each([
    [1, 'from the database'],
    [2, 'from the database'],
    [3, 'from memory'],
    [4, 'from memory'],
    [5, 'from memory'],
  ])('gives the same auth differences as a walk (seed %s, places %s)', async (seed, source) => {
    const random = new SeededIds(seed);
    const memory = source === 'from memory' ? new ChainMemory() : undefined;
    const events = new Map<string, RoomEvent>();
    let chainId = seed * 100_000;
    for (let count = 0; count < 120;) {
      const batch: RoomEvent[] = [];
      for (let size = 1 + random.integer(6); size > 0; size--, count++) {
        const known = [...events.keys()];
        const auth = new Set<string>();
        // Mostly recent events, as in a room, with forks now and then.
        for (let n = known.length === 0 ? 0 : 1 + random.integer(3); n > 0; n--) {
          const back =
            random.integer(4) === 0 ? random.integer(known.length) : random.integer(Math.min(8, known.length));
          auth.add(known[known.length - 1 - back]!);
        }
        const event = eventOf(`$${seed}-${count}`, `@user${random.integer(5)}:x`, [...auth]);
        events.set(event.eventId, event);
        batch.push(event);
      }
      const chainIds = batch.map(() => ++chainId);
      if (memory && random.integer(4) === 0) {
        // What came to nothing must not be remembered.
        const failed = test.database.write(async (tx) => {
          await writeAuthChains(tx, batch, chainIds, memory);
          throw new Error('no');
        });
        await expect(failed).rejects.toThrow('no');
      }
      expect((await test.database.write((tx) => writeAuthChains(tx, batch, chainIds, memory))).size).toBe(0);
    }
    const ids = [...events.keys()];
    for (let round = 0; round < 60; round++) {
      const pick = (): Set<string> =>
        new Set(Array.from({ length: 1 + random.integer(4) }, () => ids[random.integer(ids.length)]!));
      const sets = Array.from({ length: 2 + random.integer(2) }, pick);
      const common = round % 2 ? [...pick()] : [];
      const chains = sets.map((set) => chainOf(events, [...set, ...common]));
      const expected = ids.filter((id) => {
        const holders = chains.filter((chain) => chain.has(id)).length;
        return holders > 0 && holders < chains.length;
      });
      const found = await authDifference(test.database, sets, commonOf(common, random), async () => undefined);
      // Whether those of the sets themselves are among them is open.
      const own = new Set(sets.flatMap((set) => [...set]));
      const others = (some: Iterable<string>): string[] => [...some].filter((id) => !own.has(id)).sort();
      expect(others(found!)).toEqual(others(expected));
    }
  });

  it('places the same whether it remembers or reads, also after what came to nothing', async () => {
    const placesOf = async (name: string, memory: ChainMemory | undefined): Promise<string[]> => {
      const random = new SeededIds(7);
      const first = memory ? 2_000_000 : 1_000_000;
      let chainId = first;
      const known: string[] = [];
      for (let count = 0; count < 60; count++) {
        const auth = new Set<string>();
        for (let n = known.length === 0 ? 0 : 1 + random.integer(3); n > 0; n--)
          auth.add(known[known.length - 1 - random.integer(Math.min(8, known.length))]!);
        const event = eventOf(`$${name}-${count}`, `@user${random.integer(5)}:x`, [...auth]);
        const fails = random.integer(3) === 0;
        chainId++;
        if (memory && fails) {
          const failed = test.database.write(async (tx) => {
            await writeAuthChains(tx, [event], [chainId], memory);
            throw new Error('no');
          });
          await expect(failed).rejects.toThrow('no');
        }
        await test.database.write((tx) => writeAuthChains(tx, [event], [chainId], memory));
        known.push(event.eventId);
      }
      const places = await test.database.query<{ event_id: string; chain: number; sequence_number: number }>(
        `SELECT event_id, chain_id - ${first} AS chain, sequence_number FROM event_auth_chains
         WHERE chain_id > ${first} AND chain_id <= ${chainId} ORDER BY chain_id, sequence_number`,
      );
      return places.map((place) => `${place.event_id.split('-')[1]} ${place.chain} ${place.sequence_number}`);
    };
    const read = await placesOf('read', undefined);
    expect(read).toHaveLength(60);
    expect(await placesOf('remembered', new ChainMemory())).toEqual(read);
  });

  it('gives the chain of many events a part at a time', async () => {
    const chainIds = Array.from({ length: 2_500 }, (_, n) => 3_000_000 + n);
    const events = chainIds.map((id) =>
      eventOf(`$${id}`, `@user${id}:x`, id === chainIds[0] ? [] : [`$${chainIds[0]}`]),
    );
    await test.database.write((tx) => writeAuthChains(tx, events, chainIds));
    let turns = 0;
    const turn = async (): Promise<void> => void turns++;
    const ids = events.map(({ eventId }) => eventId);
    const chain = await authChainOf(test.database, ids, async () => [], turn);
    expect([...chain]).toEqual(ids.slice(0, 1));
    // Places, links and how far they lead: of a thousand events at a time at most.
    expect(turns).toBeGreaterThanOrEqual(6);
  });

  it('says so when an event has no place in it', async () => {
    const lost = eventOf('$lost', '', ['$unknown']);
    const other = eventOf('$other', '', []);
    const unplaced = await test.database.write((tx) => writeAuthChains(tx, [lost, other], [9, 10]));
    expect([...unplaced]).toEqual(['$lost']);
    const none = { likely: () => Promise.resolve([]), all: () => [] };
    expect(await authDifference(test.database, [new Set(['$lost'])], none, async () => undefined)).toBeUndefined();
  });
});
