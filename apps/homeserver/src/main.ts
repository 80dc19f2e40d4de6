import { leanHeap, relaxLargeHeap } from './lean-heap.js';
import { leanImports } from './lean-imports.js';
import { nodeProblem } from './node-version.js';
import { mapStacks } from './source-maps.js';

const problem = nodeProblem(process.versions.node);
if (problem === undefined) {
  leanHeap();
  // A reload that is asked for from here on would end the process. It need not be remembered: settings are read later.
  process.on('SIGHUP', () => {});
  relaxLargeHeap();
  mapStacks();
  await leanImports();
  // Only now is anything else loaded: what came before may have been a process with other options.
  await import('./run.js');
} else {
  process.stderr.write(`${problem}\n`);
  process.exitCode = 1;
}
