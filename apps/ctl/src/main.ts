#!/usr/bin/env node
import { runOnNewNode } from './node-runtime.js';

const code = runOnNewNode(import.meta.url, 'rookery');
if (code !== undefined) process.exitCode = code;
else {
  const { ProcessTerminal } = await import('./terminal.js');
  const { runProgram } = await import('./program.js');
  const terminal = new ProcessTerminal();
  try {
    process.exitCode = await runProgram(process.argv.slice(2), terminal);
  } finally {
    terminal.close();
  }
  // Code that was tried out, as that of modules, may have left timers behind. What was written comes first.
  process.stdout.write('', () => process.stderr.write('', () => process.exit()));
}
