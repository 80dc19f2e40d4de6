/** Operator commands. */
export { CommandError } from './command-error.js';
export { createProgram, runProgram } from './program.js';
export type { Terminal } from './terminal.js';
