import type { UpgradePlan } from '@rookery/database';
import { diskNeeds, diskOf } from './disk-needs.js';

const plan = (...bytes: number[]): Pick<UpgradePlan, 'steps'> => ({
  steps: bytes.map((diskBytes, i) => ({ name: `s${i}`, version: 1, rows: 1, seconds: 1, diskBytes, final: undefined })),
});

describe('diskNeeds', () => {
  const [one, other] = [
    { id: '1', freeBytes: 100 },
    { id: '2', freeBytes: 50 },
  ];

  it('counts the dearest step of each database, where it lies', () => {
    expect(
      diskNeeds([
        { disk: one, plan: plan(30, 70, 20) },
        { disk: other, plan: plan(60) },
      ]),
    ).toEqual([
      { neededBytes: 70, freeBytes: 100 },
      { neededBytes: 60, freeBytes: 50 },
    ]);
    expect(
      diskNeeds([
        { disk: one, plan: plan(70) },
        { disk: one, plan: plan(60, 10) },
      ]),
    ).toEqual([{ neededBytes: 130, freeBytes: 100 }]);
  });

  it('says nothing where nothing is needed, or nobody knows', () => {
    expect(
      diskNeeds([
        { disk: one, plan: plan(0) },
        { disk: other, plan: undefined },
        { disk: undefined, plan: plan(9) },
      ]),
    ).toEqual([]);
  });
});

describe('diskOf', () => {
  it('knows databases on the same disk, and leaves PostgreSQL alone', () => {
    const at = (path: string): ReturnType<typeof diskOf> => diskOf({ name: 'sqlite3', path });
    const here = at(`${import.meta.dirname}/one.db`);
    expect(here?.freeBytes).toBeGreaterThanOrEqual(0);
    expect(at(`${import.meta.dirname}/fixtures/other.db`)?.id).toBe(here?.id);
    expect(at(`${import.meta.dirname}/nowhere/other.db`)).toBeUndefined();
    expect(diskOf({ name: 'postgres', args: {} })).toBeUndefined();
  });
});
