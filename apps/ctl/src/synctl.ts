#!/usr/bin/env node
import { runOnNewNode } from './node-runtime.js';

const code = runOnNewNode(import.meta.url, 'synctl');
if (code !== undefined) process.exitCode = code;
else {
  const { ProcessTerminal } = await import('./terminal.js');
  const { createSynctl } = await import('./synctl-program.js');
  const { runCommands } = await import('./program.js');
  const terminal = new ProcessTerminal();
  process.exitCode = await runCommands(createSynctl(terminal), process.argv.slice(2), terminal);
}
