// `npm run test:sync-model -- --steps 100000`: clients that follow a server by the book, over many steps. A run that failed is
// had again with `--seed` and `--database` as it tells them; `--story` is how many of the last steps it tells.
import { parseArgs } from 'node:util';
import { helpWhereAsked } from './lib.mjs';

helpWhereAsked(import.meta.url);
const { values } = parseArgs({
  options: {
    steps: { type: 'string' },
    seed: { type: 'string' },
    database: { type: 'string' },
    story: { type: 'string' },
  },
});
for (const [name, value] of Object.entries(values)) process.env[`ROOKERY_SYNC_${name.toUpperCase()}`] = value;
process.argv.splice(2, Infinity, 'test/sync-model');
await import('./test.mjs');
