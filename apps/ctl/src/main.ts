#!/usr/bin/env node
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Oldest Node.js that everything here runs on. */
const oldest: readonly [major: number, minor: number] = [22, 19];

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < oldest[0] || (major === oldest[0] && minor < oldest[1])) process.exitCode = runNewer();
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

/** Runs this program on the Node.js that was installed along with it, where the system's own is older. */
function runNewer(): number {
  const self = fileURLToPath(import.meta.url);
  const name = process.platform === 'win32' ? 'node.exe' : 'node';
  for (let folder = dirname(self); ; folder = dirname(folder)) {
    const node = join(folder, 'node_modules', 'node', 'bin', name);
    if (existsSync(node)) return spawnSync(node, [self, ...process.argv.slice(2)], { stdio: 'inherit' }).status ?? 1;
    if (folder === dirname(folder)) break;
  }
  process.stderr.write(`rookery needs Node.js ${oldest.join('.')} or newer; this is ${process.versions.node}\n`);
  return 1;
}
