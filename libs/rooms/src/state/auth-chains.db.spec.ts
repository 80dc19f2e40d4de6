import { databaseMigrations } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { eachDatabase, FakeClock, SeededIds, type TestDatabase } from '@rookery/testing';
import { roomsMigrations } from '../migrations/index.js';
import { authDifference, writeAuthChains } from './auth-chains.query.js';

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

eachDatabase('the chain cover of auth chains', (open) => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await open(new FakeClock());
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
  });

  it.each([1, 2, 3, 4])('gives the same auth differences as a walk (seed %s)', async (seed) => {
    const random = new SeededIds(seed);
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
      expect((await test.database.write((tx) => writeAuthChains(tx, batch, chainIds))).size).toBe(0);
    }
    const ids = [...events.keys()];
    for (let round = 0; round < 60; round++) {
      const pick = (): Set<string> =>
        new Set(Array.from({ length: 1 + random.integer(4) }, () => ids[random.integer(ids.length)]!));
      const sets = Array.from({ length: 2 + random.integer(2) }, pick);
      const common = round % 2 ? [ids[random.integer(ids.length)]!] : [];
      const chains = sets.map((set) => chainOf(events, [...set, ...common]));
      const expected = ids.filter((id) => {
        const holders = chains.filter((chain) => chain.has(id)).length;
        return holders > 0 && holders < chains.length;
      });
      const found = await authDifference(test.database, sets, common);
      expect([...found!].sort()).toEqual(expected.sort());
    }
  });

  it('says so when an event has no place in it', async () => {
    const lost = eventOf('$lost', '', ['$unknown']);
    const other = eventOf('$other', '', []);
    const unplaced = await test.database.write((tx) => writeAuthChains(tx, [lost, other], [9, 10]));
    expect([...unplaced]).toEqual(['$lost']);
    expect(await authDifference(test.database, [new Set(['$lost'])], [])).toBeUndefined();
  });
});
