import { leanHeap } from './lean-heap.js';
import { leanImports } from './lean-imports.js';

leanHeap();
await leanImports();
// Only now is anything else loaded: what came before may have been a process with other options.
await import('./run.js');
