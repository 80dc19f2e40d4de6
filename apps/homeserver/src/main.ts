import { leanHeap } from './lean-heap.js';

leanHeap();
// Only now is anything loaded: what came before may have been a process with other options.
await import('./run.js');
