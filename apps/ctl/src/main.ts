#!/usr/bin/env node
import { runProgram } from './program.js';
import { ProcessTerminal } from './terminal.js';

const terminal = new ProcessTerminal();
try {
  process.exitCode = await runProgram(process.argv.slice(2), terminal);
} finally {
  terminal.close();
}
