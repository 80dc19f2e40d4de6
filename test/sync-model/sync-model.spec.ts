import type { DialectName } from '@rookery/database';
import { Dice } from '../e2e/hostile/dice.js';
import { World } from './world.js';

/** Steps on each database: 100,000 by `npm run test:sync-model`, unless told. */
const isLongRun = process.env['npm_lifecycle_event'] === 'test:sync-model';
const steps = Number(process.env['ROOKERY_SYNC_STEPS'] ?? (isLongRun ? 100_000 : 300));
/** Another one each time in a long run; one that failed is repeated with the seed that it tells. */
const seed = process.env['ROOKERY_SYNC_SEED'] ?? (isLongRun ? String(Math.floor(Math.random() * 1e9)) : '1');
const kinds = (process.env['ROOKERY_SYNC_DATABASE'] ?? 'sqlite,postgres').split(',') as DialectName[];
/** After so many steps everything begins anew, so that a step costs the same to the end, and a failed run is short. */
const worldSteps = 500;
/** What is told of the time before a difference. */
const toldSteps = Number(process.env['ROOKERY_SYNC_STORY'] ?? 60);

describe.each(kinds)('who follows by the book knows what is (%s)', (kind) => {
  it(
    `over ${steps} steps (seed ${seed})`,
    async () => {
      for (let done = 0, number = 0; done < steps; done += worldSteps, number++) {
        // A world's seed is enough to have it again.
        const worldSeed = number === 0 ? seed : `${seed}.${number}`;
        const dice = new Dice(worldSeed);
        const world = await World.create(kind, dice);
        const restartAt = dice.below(worldSteps);
        let step = 0;
        try {
          for (; step < Math.min(worldSteps, steps - done); step++) {
            if (step === restartAt) await world.restart();
            await world.step();
          }
        } catch (error) {
          const story = world.log.slice(-toldSteps).join('\n');
          const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
          throw new Error(`--seed ${worldSeed} --database ${kind} (step ${step})\n${story}\n${what}`, {
            cause: error,
          });
        } finally {
          await world.stop();
        }
      }
    },
    Math.max(240_000, steps * 200),
  );
});
