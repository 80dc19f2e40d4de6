/** Operator commands. */
export { CommandError } from './command-error.js';
export { createSynctl } from './synctl-program.js';
export { createProgram, runProgram } from './program.js';
export type { Terminal } from './terminal.js';
export { upgradePage } from './releases/upgrade-page.js';
