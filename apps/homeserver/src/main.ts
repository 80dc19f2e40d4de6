import { limitYoungGeneration } from './young-generation.js';

limitYoungGeneration();
// Only now is anything loaded: what came before may have been a process with other options.
await import('./run.js');
