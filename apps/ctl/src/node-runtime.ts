import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Oldest Node.js that everything here runs on. */
const oldest: readonly [major: number, minor: number] = [22, 19];

/**
 * Runs a program on the Node.js that was installed along with it, where the system's own is too old. To be called before
 * anything else is loaded.
 * @returns its exit code; nothing where this Node.js will do
 */
export function runOnNewNode(program: string, name: string): number | undefined {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) return undefined;
  const self = fileURLToPath(program);
  const node = process.platform === 'win32' ? 'node.exe' : 'node';
  for (let folder = dirname(self); ; folder = dirname(folder)) {
    const newer = join(folder, 'node_modules', 'node', 'bin', node);
    if (existsSync(newer)) return spawnSync(newer, [self, ...process.argv.slice(2)], { stdio: 'inherit' }).status ?? 1;
    if (folder === dirname(folder)) break;
  }
  process.stderr.write(`${name} needs Node.js ${oldest.join('.')} or newer; this is ${process.versions.node}\n`);
  return 1;
}
