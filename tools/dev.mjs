// `npm run dev`: the homeserver with rebuild and restart on every change.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { become, compile, ensureInstalled, projectNode, root } from './lib.mjs';

ensureInstalled();
compile();
const watcher = spawn(
  projectNode(),
  [join(root, 'node_modules', 'typescript7', 'bin', 'tsc'), '-b', '-w', '--preserveWatchOutput'],
  {
    cwd: root,
    stdio: 'inherit',
  },
);
process.on('exit', () => watcher.kill());
become(projectNode(), [
  '--watch',
  '--enable-source-maps',
  join(root, 'apps', 'homeserver', 'dist', 'main.js'),
  ...process.argv.slice(2),
]);
