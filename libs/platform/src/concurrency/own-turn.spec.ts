import { setImmediate as nextTurn } from 'node:timers/promises';
import { ownTurn } from '../index.js';

it('gives each a turn of its own, in the order of arrival', async () => {
  let turn = 0;
  const gone: [who: string, turn: number][] = [];
  const steps = async (who: string): Promise<void> => {
    for (let step = 0; step < 3; step++) {
      await ownTurn();
      gone.push([who, turn]);
    }
  };
  const all = Promise.all(['a', 'b'].map(steps));
  for (; turn < 20; turn++) await nextTurn();
  await all;
  await ownTurn();
  gone.push(['late', turn]);
  expect(gone.map(([who]) => who)).toEqual(['a', 'b', 'a', 'b', 'a', 'b', 'late']);
  expect(new Set(gone.map(([, at]) => at)).size).toBe(gone.length);
});
