import { createRequire } from 'node:module';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { loadUndici, undici } from './undici.js';

const { cache } = createRequire(import.meta.url);
const filesOf = (): string[] => Object.keys(cache).filter((file) => /[\\/]node_modules[\\/]undici[\\/]/.test(file));

describe('the HTTP client library', () => {
  const before = new Map<string, NodeJS.Module | undefined>();
  beforeAll(() => {
    for (const file of filesOf()) {
      before.set(file, cache[file]);
      delete cache[file];
    }
  });
  // Who has it already must not see a second one.
  afterAll(() => {
    for (const file of filesOf()) delete cache[file];
    for (const [file, module] of before) cache[file] = module;
  });

  it('is loaded in many turns, of which none holds much of it', async () => {
    let isLoaded = false;
    const loading = loadUndici().then(() => (isLoaded = true));
    const counts = [filesOf().length];
    while (!isLoaded) {
      await nextTurn();
      counts.push(filesOf().length);
    }
    await loading;
    const all = filesOf().length;
    const most = Math.max(...counts.map((count, turn) => count - (counts[turn - 1] ?? 0)));
    expect(all).toBeGreaterThan(50);
    expect(most).toBeLessThan(all / 3);
    expect(undici().Pool).toBeInstanceOf(Function);
    expect(filesOf()).toHaveLength(all);
  });
});
