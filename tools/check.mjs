// `npm run check`: what must hold before a change lands, apart from the tests. `--only=types,lint` runs a part, by the names that it prints.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, helpWhereAsked, projectNode, root } from './lib.mjs';

helpWhereAsked(import.meta.url);
ensureInstalled();
const bin = (name, ...path) => join(root, 'node_modules', name, ...path);
const checks = [
  ['packages', [join(root, 'tools', 'sync-packages.mjs'), '--check']],
  ['types', [bin('typescript7', 'bin', 'tsc'), '-p', 'tsconfig.check.json']],
  [
    'layers',
    [
      bin('dependency-cruiser', 'bin', 'dependency-cruiser.mjs'),
      '--config',
      '.dependency-cruiser.cjs',
      'libs',
      'apps',
      'modules-examples',
      'test',
    ],
  ],
  ['folders', [join(root, 'tools', 'folders.mjs')]],
  ['tables', [join(root, 'tools', 'tables.mjs')]],
  ['names', [join(root, 'tools', 'names.mjs')]],
  ['nest', [join(root, 'tools', 'nest.mjs')]],
  ['kinds', [join(root, 'tools', 'kinds.mjs')]],
  ['bodies', [join(root, 'tools', 'bodies.mjs')]],
  ['exports', [join(root, 'tools', 'exports.mjs')]],
  ['house', [join(root, 'tools', 'house.mjs')]],
  ['lint', [bin('eslint', 'bin', 'eslint.js'), '.', '--max-warnings=0']],
  ['format', [bin('prettier', 'bin', 'prettier.cjs'), '--check', '--log-level', 'warn', '.']],
  ['docs', [join(root, 'tools', 'docs.mjs'), '--check']],
  ['module api', [join(root, 'tools', 'api-report.mjs'), '--check']],
];
const only = process.argv
  .find((arg) => arg.startsWith('--only='))
  ?.slice('--only='.length)
  .split(',');
const unknown = only?.filter((name) => !checks.some(([known]) => known === name)) ?? [];
if (unknown.length > 0) {
  console.error(`There is no check ${unknown.join(', ')}; there are: ${checks.map(([name]) => name).join(', ')}`);
  process.exit(2);
}
let failed = 0;
for (const [name, args] of checks) {
  if (only && !only.includes(name)) continue;
  if (!existsSync(args[0])) continue;
  const result = spawnSync(projectNode(), args, { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  const ok = result.status === 0;
  console.log(`${ok ? 'ok    ' : 'FAILED'} ${name}`);
  if (!ok) {
    failed += 1;
    process.stdout.write(result.stdout);
    process.stderr.write(result.stderr);
  }
}
process.exit(failed === 0 ? 0 : 1);
