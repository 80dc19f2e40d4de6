import { WorkSlots } from './work-slots.js';

describe('WorkSlots', () => {
  it('runs a few jobs at a time, in order, and refuses those that would wait too long', async () => {
    const slots = new WorkSlots(2, 3);
    const finish: (() => void)[] = [];
    const started: number[] = [];
    const job = (name: number) =>
      slots.run(() => new Promise<number>((resolve) => (started.push(name), finish.push(() => resolve(name)))));
    const results = [1, 2, 3, 4, 5].map(job);
    await expect(job(6)).rejects.toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    expect(started).toEqual([1, 2]);
    finish[1]!();
    expect(await results[1]).toBe(2);
    expect(started).toEqual([1, 2, 3]);
    for (let i = 0; finish.length < 5 || i < finish.length; i++) {
      finish[i]!();
      await new Promise(setImmediate);
    }
    expect(await Promise.all(results)).toEqual([1, 2, 3, 4, 5]);
  });

  it('gives the slot back when a job fails', async () => {
    const slots = new WorkSlots(1, 0);
    await expect(slots.run(() => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    expect(await slots.run(async () => 'next')).toBe('next');
  });
});
