import { databaseMigrations, type Database } from '@rookery/database';
import { SilentLogger, SystemClock } from '@rookery/platform';
import { eachDatabase, eventually, MemoryProcesses, type TestDatabase } from '@rookery/testing';
import { cursorOf, saveCursor } from '../cursor.query.js';
import { replicationMigrations } from '../migrations.js';
import { Notifier } from '../notifier.js';
import { LeasedRoles } from '../roles/leased-roles.js';
import { defineRole } from '../roles/roles.js';
import { FollowerSharing } from './follower-sharing.js';
import { type SharedFollower, type SharedFollowing } from './shared-follower.js';

const role = defineRole('notes');

interface Member {
  readonly follower: SharedFollower;
  readonly notifier: Notifier;
  readonly roles: LeasedRoles;
}

eachDatabase('SharedFollower', (open) => {
  let test: TestDatabase;
  let database: Database;
  let network: MemoryProcesses;
  let members: Member[];
  /** What was worked on: by whom, behind which position and up to which. */
  let done: [by: number, after: number, upTo: number][];
  let position: number;
  /** Batches that have begun, and what they wait for. */
  let begun: number;
  let gate: PromiseWithResolvers<void> | undefined;

  beforeAll(async () => {
    test = await open();
    ({ database } = test);
    await test.migrate([...databaseMigrations, ...replicationMigrations]);
  });
  beforeEach(async () => {
    await database.write((tx) => tx.run('DELETE FROM stream_cursors'));
    network = new MemoryProcesses();
    [members, done, position, begun, gate] = [[], [], 0, 0, undefined];
  });
  afterEach(async () => {
    gate?.resolve();
    for (const { roles, notifier } of members) {
      await roles.stop();
      notifier.close();
    }
  });

  const join = async (more: Partial<SharedFollowing> = {}): Promise<Member> => {
    const by = members.length;
    const instance = by === 0 ? 'main' : `p${by}`;
    const { bus, rpc, leases } = network.connect(instance);
    const [clock, logger] = [new SystemClock(), new SilentLogger()];
    const roles = new LeasedRoles({
      ...{ rpc, leases, instance, clock, logger, isWriter: by === 0 },
      eagernessOf: () => (by === 0 ? 'spare' : 'wanted'),
    });
    const notifier = new Notifier(clock, bus, { instance });
    const sharing = new FollowerSharing({ roles, rpc, database, notifier, clock, logger });
    const advance = async (after: number, upTo: number): Promise<number> => {
      begun++;
      await gate?.promise;
      done.push([by, after, upTo]);
      return upTo;
    };
    const following = { name: 'reader', stream: 'notes', role, pauseMs: 60_000, saveEveryMs: 60_000, advance };
    const member = { follower: sharing.share({ ...following, ...more }), notifier, roles };
    members.push(member);
    await roles.start();
    return member;
  };
  /** In the process that writes. */
  const write = (): void => members[0]!.notifier.announce('notes', ++position);
  const isWith = (index: number): Promise<unknown> => eventually(() => members[index]!.roles.holds(role));
  /** That everything was worked on once, in order. */
  const expectWhole = (): void => {
    let reached = 0;
    for (const [, after, upTo] of done) {
      expect(after).toBe(reached);
      reached = upTo;
    }
    expect(reached).toBe(position);
  };

  it('follows in one process, and every one can wait for it', async () => {
    const main = await join();
    const one = await join();
    await join();
    await isWith(1);
    done = [];
    position = 0;
    for (let n = 0; n < 3; n++) {
      write();
      await main.follower.caughtUp();
      // The pause of a minute is cut short by whoever waits.
      expect(done.at(-1)?.[2]).toBe(position);
    }
    await eventually(() => members[2]!.notifier.position('notes') === position);
    await members[2]!.follower.caughtUp();
    expect(new Set(done.map(([by]) => by))).toEqual(new Set([1]));
    expectWhole();
    expect(one.roles.holds(role)).toBe(true);
  });

  it('goes on elsewhere from where it was, only once the one before has come to its end', async () => {
    const main = await join();
    await join();
    await join();
    await isWith(1);
    write();
    await main.follower.caughtUp();
    gate = Promise.withResolvers();
    write();
    const waiting = main.follower.caughtUp();
    await eventually(() => begun === 2);
    const leaving = members[1]!.roles.stop();
    await new Promise((elapsed) => setTimeout(elapsed, 30));
    expect([members[2]!.roles.holds(role), done.length]).toEqual([false, 1]);
    gate.resolve();
    await leaving;
    await waiting;
    expect(await cursorOf(database, 'reader')).toBe(position);
    await isWith(2);
    write();
    await main.follower.caughtUp();
    expect(done.map(([by]) => by)).toEqual([1, 1, 2]);
    expectWhole();
  });

  it('comes back to a process that had it before', async () => {
    const main = await join();
    write();
    await main.follower.caughtUp();
    await join();
    await isWith(1);
    write();
    await main.follower.caughtUp();
    await members[1]!.roles.stop();
    await isWith(0);
    write();
    await main.follower.caughtUp();
    expect(done.map(([by]) => by)).toEqual([0, 1, 0]);
    expectWhole();
  });

  it('does not begin before a cursor is stored, where somebody else says from where on', async () => {
    const main = await join({ startAt: 'once stored' });
    write();
    write();
    await new Promise((elapsed) => setTimeout(elapsed, 30));
    expect(done).toEqual([]);
    await database.write((tx) => saveCursor(tx, 'reader', 1));
    write();
    await main.follower.caughtUp();
    expect(done.map(([, after, upTo]) => [after, upTo])).toEqual([[1, 3]]);
  });
});
