import { FakeClock } from '@rookery/testing';
import { FullAnswers } from './full-answers.js';

/** Work that ends when told to. */
function work(name: string, begun: string[]): { run: () => Promise<string>; end(): void; fail(): void } {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const run = (): Promise<string> => {
    begun.push(name);
    return promise;
  };
  return { run, end: () => resolve(name), fail: () => reject(new Error(name)) };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('answers that tell everything', () => {
  it('are written two at a time, in order of arrival', async () => {
    const begun: string[] = [];
    const answers = new FullAnswers(new FakeClock());
    const works = ['a', 'b', 'c', 'd'].map((name) => work(name, begun));
    const results = works.map((one) => answers.run(one.run));
    await settled();
    expect(begun).toEqual(['a', 'b']);
    works[1]?.end();
    expect(await results[1]).toBe('b');
    await settled();
    expect(begun).toEqual(['a', 'b', 'c']);
    works[0]?.end();
    works[2]?.end();
    works[3]?.end();
    expect(await Promise.all(results)).toEqual(['a', 'b', 'c', 'd']);
    const last = work('e', begun);
    const result = answers.run(last.run);
    expect(begun.at(-1)).toBe('e');
    last.end();
    expect(await result).toBe('e');
  });

  it('give their turn on when they fail', async () => {
    const begun: string[] = [];
    const answers = new FullAnswers(new FakeClock());
    const works = ['a', 'b', 'c'].map((name) => work(name, begun));
    const results = works.map((one) => answers.run(one.run));
    works[0]?.fail();
    await expect(results[0]).rejects.toThrow('a');
    await settled();
    expect(begun).toEqual(['a', 'b', 'c']);
    works[1]?.end();
    works[2]?.end();
    expect(await Promise.all(results.slice(1))).toEqual(['b', 'c']);
  });

  it('do not wait for ever behind others that hang', async () => {
    const begun: string[] = [];
    const clock = new FakeClock();
    const answers = new FullAnswers(clock);
    const works = ['a', 'b', 'c', 'd'].map((name) => work(name, begun));
    const results = works.map((one) => answers.run(one.run));
    await clock.advance(9_999);
    await settled();
    expect(begun).toEqual(['a', 'b']);
    await clock.advance(1);
    await settled();
    expect(begun).toEqual(['a', 'b', 'c', 'd']);
    // Nobody goes first by having come late: the next one waits until fewer than two are left.
    const next = work('e', begun);
    const result = answers.run(next.run);
    for (const one of works.slice(0, 2)) one.end();
    await settled();
    expect(begun.at(-1)).toBe('d');
    works[2]?.end();
    await settled();
    expect(begun.at(-1)).toBe('e');
    works[3]?.end();
    next.end();
    expect(await Promise.all([...results, result])).toEqual(['a', 'b', 'c', 'd', 'e']);
  });
});
