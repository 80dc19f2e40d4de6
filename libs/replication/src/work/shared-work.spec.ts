import { Config, SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { eventually, MemoryProcesses } from '@rookery/testing';
import type { Database } from '@rookery/database';
import { Invalidations } from '../invalidations.js';
import { Notifier } from '../notifier.js';
import { LeasedRoles } from '../roles/leased-roles.js';
import { defineRole } from '../roles/roles.js';
import { StreamWriters } from '../streams/stream-writers.js';
import { Streams } from '../streams/streams.js';
import { type SharedWork } from './shared-work.js';
import { WorkSharing } from './work-sharing.js';

const role = defineRole('parcels', 4);
interface Item {
  readonly key: string;
  readonly n: number;
}

interface Member {
  readonly work: SharedWork<Item>;
  readonly roles: LeasedRoles;
  readonly invalidations: Invalidations;
  /** What it was told, and what it found. */
  readonly told: Item[];
  readonly found: Item[];
  let: { fail: boolean; wait?: Promise<void> };
  /** How often it looked into the database. */
  looks: () => number;
  die(): void;
}

const keys = Array.from({ length: 40 }, (_, n) => `key${n}`);

describe('SharedWork', () => {
  let network: MemoryProcesses;
  let members: Member[];
  /** What lies in the database. */
  let stored: Item[];
  let count: number;
  let isBusUp: boolean;

  beforeEach(() => {
    network = new MemoryProcesses();
    members = [];
    stored = [];
    count = 0;
    isBusUp = true;
  });
  afterEach(async () => {
    for (const { roles, work } of members) {
      await roles.stop();
      await work.stop();
    }
  });

  const join = async (wait?: Promise<void>): Promise<Member> => {
    const instance = members.length === 0 ? 'main' : `p${members.length}`;
    const { bus, rpc, leases } = network.connect(instance);
    Object.defineProperty(bus, 'isUp', { get: () => isBusUp });
    const mark = bus.heard.bind(bus);
    // Without the bus whoever asks what it would have told forgets everything.
    bus.heard = () => mark()?.then(() => (isBusUp || invalidations.forgetAll(), true));
    const [clock, logger] = [new SystemClock(), new SilentLogger()];
    const roles = new LeasedRoles({
      ...{ rpc, leases, instance, clock, logger, isWriter: members.length === 0 },
      eagernessOf: () => (members.length === 0 ? 'spare' : 'wanted'),
    });
    const notifier = new Notifier(clock, bus, { instance });
    const invalidations = new Invalidations(notifier);
    const config = Config.fromObject({ server_name: 'home.test' });
    const streams = new Streams({} as Database, notifier, {
      ...{ writers: new StreamWriters(instance, {}, 'main'), rpc, config },
    });
    const [told, found]: Item[][] = [[], []];
    let looks = 0;
    const may: Member['let'] = { fail: false, ...(wait && { wait }) };
    const sharing = new WorkSharing({ roles, rpc, bus, streams, invalidations, clock, logger, ids: new SystemIds() });
    const work: SharedWork<Item> = sharing.share<Item>({
      role,
      take: (items) => void told!.push(...items.filter(({ key }) => work.has(key))),
      catchUp: async (isWanted) => {
        looks++;
        if (may.fail) throw new Error('the database is away');
        await may.wait;
        found!.push(...stored.filter(({ key }) => isWanted(key)));
      },
      letGo: () => Promise.resolve(),
    });
    if (members.length === 0) work.open();
    const member = {
      ...{ work, roles, invalidations, told: told!, found: found!, let: may, looks: () => looks },
      die: () => leases.die(),
    };
    members.push(member);
    await roles.start();
    return member;
  };
  /** Stores something for every key, and tells whoever has it. */
  const tell = (): number => {
    count++;
    const [{ work }] = members as [Member];
    for (const key of keys) {
      stored.push({ key, n: count });
      const outlet = work.outletOf(key);
      if (outlet !== undefined) work.give(outlet, { key, n: count });
    }
    return count;
  };
  /** Whether somebody was told of everything, or found it. */
  const knows = (n: number): boolean =>
    keys.every((key) =>
      members.some(({ told, found }) => [...told, ...found].some((one) => one.key === key && one.n === n)),
    );
  const areAttached = (...expected: Member[]): Promise<unknown> =>
    eventually(() => keys.every((key) => expected.some(({ work }) => work.has(key) && work.isCaughtUp(key))));

  it('is all done by the one that writes while it is alone, and by none but the others then, each a share', async () => {
    const writer = await join();
    await areAttached(writer);
    expect(writer.work.isAllHere).toBe(true);
    const others = [await join(), await join()];
    await areAttached(...others);
    writer.told.length = 0;
    const n = tell();
    await eventually(() => others.reduce((sum, { told }) => sum + told.length, 0) === keys.length);
    expect([knows(n), writer.told, others.every(({ told }) => told.length > 0)]).toEqual([true, [], true]);
  });

  it('loses nothing when it moves, whenever that is', async () => {
    await join();
    const first = await join();
    await areAttached(first);
    for (let round = 0; round < 5; round++) tell();
    const joining = join();
    for (let round = 0; round < 20; round++) {
      tell();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await joining;
    first.die();
    for (let round = 0; round < 20; round++) {
      tell();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const last = tell();
    await eventually(() => knows(last));
    await areAttached(members[2]!);
    for (let n = 1; n <= last; n++) expect(knows(n)).toBe(true);
  });

  it('looks into the database again until that works', async () => {
    await join();
    const other = await join();
    await areAttached(other);
    other.found.length = 0;
    other.let.fail = true;
    other.invalidations.forgetAll();
    stored.push({ key: 'key1', n: 1_000 });
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(other.work.isCaughtUp('key1')).toBe(false);
    other.let.fail = false;
    await eventually(() => other.found.some(({ n }) => n === 1_000));
    await areAttached(other);
  });

  it('stops whoever does not answer what it asks', async () => {
    await join();
    const other = await join();
    await areAttached(other);
    const looks = other.looks();
    other.let.wait = new Promise(() => undefined);
    other.work.beginAnew();
    await eventually(() => other.looks() > looks);
    await other.work.stop();
    expect(other.work.isCaughtUp('key1')).toBe(false);
  });

  it('is looked for now and then while the bus is away, and where another process writes then', async () => {
    await join();
    const other = await join();
    await areAttached(other);
    isBusUp = false;
    const before = other.looks();
    for (let round = 0; round < 5; round++) {
      other.invalidations.forgetAll();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(other.looks() - before).toBeLessThan(3);
    await areAttached(other);
    stored.push({ key: 'key1', n: 1_000 });
    other.work.beginAnew();
    await eventually(() => other.found.some(({ n }) => n === 1_000));
    await areAttached(other);
  });

  it('is complete once whoever has it knows what was to be done before', async () => {
    const looked = Promise.withResolvers<void>();
    const { work } = await join(looked.promise);
    let isComplete = false;
    const complete = work.complete(new AbortController().signal).then(() => (isComplete = true));
    await eventually(() => work.isAllHere);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([isComplete, work.isCaughtUp('key1')]).toEqual([false, false]);
    looked.resolve();
    await complete;
    expect(keys.every((key) => work.isCaughtUp(key))).toBe(true);
  });

  it('takes nobody for its holder who has lost it and does not know', async () => {
    await join();
    const [one, two] = [await join(), await join()];
    await areAttached(one, two);
    one.die();
    await areAttached(two);
    // It was paused, and begins anew before it hears of that.
    one.invalidations.forgetAll();
    await new Promise((resolve) => setTimeout(resolve, 50));
    two.told.length = 0;
    tell();
    await eventually(() => two.told.length === keys.length);
    expect(keys.some((key) => one.work.mayAct(key))).toBe(false);
  });
});
