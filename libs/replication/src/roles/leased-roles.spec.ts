import { SilentLogger, SystemClock } from '@rookery/platform';
import { eventually, MemoryProcesses } from '@rookery/testing';
import { type Eagerness, LeasedRoles } from './leased-roles.js';
import { defineRole } from './roles.js';
import { defineRpc } from '../rpc/rpc.js';

const role = defineRole('letters', 8);
const who = defineRpc<null, string>('who');

interface Member {
  readonly roles: LeasedRoles;
  /** Shards that it works on. */
  readonly working: Set<number>;
  /** What it did, in order. */
  readonly done: string[];
  die(): void;
}

describe('LeasedRoles', () => {
  let network: MemoryProcesses;
  /** Each shard with those who work on it. */
  let members: Member[];

  beforeEach(() => {
    network = new MemoryProcesses();
    members = [];
  });
  afterEach(async () => {
    for (const { roles } of members) await roles.stop();
  });

  const join = async (eagerness: Eagerness = 'wanted', fails = false): Promise<Member> => {
    const instance = `p${members.length + 1}`;
    const { rpc, leases } = network.connect(instance);
    rpc.handle(who, async () => instance);
    const roles = new LeasedRoles({
      ...{ rpc, leases, instance, clock: new SystemClock(), logger: new SilentLogger() },
      ...{ isWriter: members.length === 0, eagernessOf: () => eagerness },
    });
    const working = new Set<number>();
    const done: string[] = [];
    roles.take(role, {
      start: (shard) => {
        if (fails) throw new Error('it does not work here');
        working.add(shard);
        done.push(`+${shard}`);
      },
      stop: (shard) => {
        working.delete(shard);
        done.push(`-${shard}`);
      },
    });
    const member = { roles, working, done, die: () => leases.die() };
    members.push(member);
    await roles.start();
    return member;
  };
  const counts = (): number[] => members.map(({ working }) => working.size);
  const shared = (...expected: number[]): Promise<unknown> =>
    eventually(
      () => counts().join() === expected.join() && new Set(members.flatMap((one) => [...one.working])).size === 8,
    );

  it('gives all to the only one, and a share to each of several, moving no more than must', async () => {
    const one = await join();
    await shared(8);
    await join();
    await shared(4, 4);
    await join();
    await eventually(() => counts().reduce((sum, count) => sum + count, 0) === 8 && counts()[2]! > 0);
    expect(Math.max(...counts())).toBeLessThanOrEqual(3);
    expect(one.done.filter((step) => step.startsWith('-')).length).toBeLessThanOrEqual(5);
    for (let shard = 0; shard < role.shards; shard++)
      expect(members.filter(({ roles }) => roles.holds(role, shard))).toHaveLength(1);
  });

  it('takes over what a lost one had, which does not hold it any more', async () => {
    const [one] = [await join(), await join()];
    await shared(4, 4);
    one.die();
    expect(Array.from({ length: 8 }, (_, shard) => one.roles.holds(role, shard))).toEqual(Array(8).fill(false));
    await eventually(() => members[1]!.working.size === 8);
  });

  it('gives up in order: another one begins when it has ended', async () => {
    const order: string[] = [];
    const [one, two] = [await join(), await join()];
    await shared(4, 4);
    for (const [name, { done }] of [
      ['one', one],
      ['two', two],
    ] as const)
      done.push = (step) => order.push(`${name}${step}`);
    const was = [...one.working];
    await one.roles.stop();
    await eventually(() => two.working.size === 8);
    for (const shard of was) expect(order.indexOf(`one-${shard}`)).toBeLessThan(order.indexOf(`two+${shard}`));
  });

  it('gives up shards at the same time, however long each takes to end', async () => {
    const { rpc, leases } = network.connect('slow');
    const roles = new LeasedRoles({
      ...{ rpc, leases, instance: 'slow', clock: new SystemClock(), logger: new SilentLogger() },
      ...{ isWriter: true, eagernessOf: () => 'wanted' as const },
    });
    let ending = 0;
    const ended = Promise.withResolvers<void>();
    roles.take(role, { stop: () => (ending++, ended.promise) });
    await roles.start();
    await eventually(() => roles.holds(role, 7));
    const stopped = roles.stop();
    await eventually(() => ending === role.shards);
    expect([...leases.view.leases.keys()]).toContain('letters:0');
    ended.resolve();
    await stopped;
    expect([...leases.view.leases.keys()]).not.toContain('letters:0');
  });

  it('leaves it to those who want it, and to the one that writes last of all', async () => {
    const writer = await join('spare');
    await shared(8);
    const spare = await join('spare');
    await shared(0, 8);
    const wanting = await join('wanted');
    await shared(0, 0, 8);
    await wanting.roles.stop();
    await shared(0, 8, 0);
    await spare.roles.stop();
    await shared(8, 0, 0);
    expect(writer.roles.holdsAny('letters')).toBe(true);
    expect((await join('never')).roles.holdsAny('letters')).toBe(false);
  });

  it('says who has whatever is no role of its own: the one that writes', async () => {
    const [writer, other] = [await join(), await join()];
    expect([writer.roles.holdsAny('background'), other.roles.holdsAny('background')]).toEqual([true, false]);
  });

  it('asks the one that has it, also where it moves meanwhile', async () => {
    const [one, two] = [await join(), await join()];
    await shared(4, 4);
    const [ofOne = 0] = one.working;
    expect(await two.roles.ask(role, ofOne, who, null)).toBe('p1');
    one.die();
    expect(await two.roles.ask(role, ofOne, who, null)).toBe('p2');
  });

  it('does not keep what cannot be begun', async () => {
    await join('wanted', true);
    await join();
    await eventually(() => members[1]!.working.size > 0);
    expect(members[0]!.roles.holdsAny('letters')).toBe(false);
  });

  it('begins the parts of a role in order and ends them in reverse, all of them where one does not begin', async () => {
    const single = defineRole('several_parts');
    const done: string[] = [];
    let fails = true;
    const { rpc, leases } = network.connect('p1');
    const [clock, logger] = [new SystemClock(), new SilentLogger()];
    const parts = { rpc, leases, instance: 'p1', clock, logger, isWriter: true, eagernessOf: () => 'wanted' as const };
    const roles = new LeasedRoles(parts);
    for (const part of ['a', 'b', 'c'])
      roles.take(single, {
        start: () => {
          if (part === 'b' && fails) throw new Error('not yet');
          done.push(`+${part}`);
        },
        stop: () => void done.push(`-${part}`),
      });
    const started = roles.start();
    await eventually(() => done.includes('-a'));
    expect(done.slice(0, 4)).toEqual(['+a', '-c', '-b', '-a']);
    fails = false;
    await started;
    await eventually(() => roles.holds(single) && done.at(-1) === '+c');
    done.length = 0;
    await roles.stop();
    expect(done).toEqual(['-c', '-b', '-a']);
  });
});
