// `npm run bench -- NAME`: runs test/bench/NAME.bench.ts; without a name lists them.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { become, ensureBuilt, ensureInstalled, helpWhereAsked, projectNode, root } from './lib.mjs';

helpWhereAsked(import.meta.url);
const folder = join(root, 'test', 'bench');
const [name, ...args] = process.argv.slice(2);
const file = join(folder, `${name}.bench.ts`);
if (!name || !existsSync(file)) {
  console.log('Usage: npm run bench -- NAME\n\nBenchmarks:');
  for (const entry of readdirSync(folder))
    if (entry.endsWith('.bench.ts')) console.log(`  ${entry.replace('.bench.ts', '')}`);
  process.exit(name ? 1 : 0);
}
ensureInstalled();
ensureBuilt();
become(projectNode(), [file, ...args], {
  env: {
    ...process.env,
    NODE_OPTIONS:
      '--enable-source-maps --import @swc-node/register/esm-register --conditions=@rookery/source --disable-warning=ExperimentalWarning',
    SWC_NODE_PROJECT: join(root, 'tsconfig.check.json'),
  },
});
