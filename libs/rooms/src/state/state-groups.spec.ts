import type { StateMap } from '@rookery/state-res';
import { deltaTarget, fullGroup, type GroupPlan, planGroup } from './state-groups.js';

/** Applies changes one after the other, as the persister does, and keeps every plan. */
async function grow(initial: StateMap, changes: number, keyOf: (index: number) => string): Promise<GroupPlan[]> {
  const plans = [fullGroup(1, initial)];
  const state = new Map(initial);
  for (let index = 0; index < changes; index++) {
    const key = keyOf(index);
    const change = new Map([[key, `$${index}`]]);
    state.set(key, `$${index}`);
    plans.push(
      await planGroup(
        index + 2,
        plans.at(-1)!.chain,
        change,
        async (groups) => new Map(groups.map((group) => [group, plans[group - 1]!.rows])),
        state.size,
        async () => new Map(state),
      ),
    );
  }
  return plans;
}

/** Reads a group as the database does: from the root on, nearer rows win. */
function read(plans: readonly GroupPlan[], group: number): Map<string, string> {
  const path: GroupPlan[] = [];
  for (let next: number | undefined = group; next !== undefined;) {
    const plan: GroupPlan = plans[next - 1]!;
    path.push(plan);
    next = plan.prev;
  }
  return new Map(path.reverse().flatMap((plan) => [...plan.rows]));
}

describe('state groups', () => {
  it('hang below the position without its last unit', () => {
    expect([1, 2, 15, 16, 17, 32, 255, 256, 4096].map(deltaTarget)).toEqual([0, 1, 14, 0, 16, 16, 254, 0, 0]);
  });

  it('read back as the state they were made from', async () => {
    const plans = await grow(new Map([['create', '$c']]), 700, (index) => `key${(index * 7) % 311}`);
    const state = new Map([['create', '$c']]);
    for (let index = 0; index < 700; index++) {
      state.set(`key${(index * 7) % 311}`, `$${index}`);
      if (index % 37 === 0 || index > 690) expect(read(plans, index + 2)).toEqual(state);
    }
  });

  it('cost few rows and short chains in a room of 10,000 members', async () => {
    const members = new Map(Array.from({ length: 10_000 }, (_, index) => [`member${index}`, `$m${index}`]));
    const plans = await grow(members, 5000, (index) => `member${(index * 13) % 10_000}`);
    const rows = plans.slice(1).reduce((sum, plan) => sum + plan.rows.size, 0);
    expect(rows / 5000).toBeLessThan(5);
    expect(Math.max(...plans.map((plan) => plan.chain.length))).toBeLessThan(64);
  });

  it('stay small where few keys change again and again', async () => {
    const plans = await grow(new Map([['create', '$c']]), 2000, (index) => `key${index % 5}`);
    const rows = plans.reduce((sum, plan) => sum + plan.rows.size, 0);
    expect(rows / 2000).toBeLessThan(2);
  });
});
