// `npm start`: installs and builds what is missing, then runs the homeserver with the arguments given.
import { join } from 'node:path';
import { become, ensureBuilt, ensureInstalled, projectNode, root } from './lib.mjs';

ensureInstalled();
ensureBuilt();
become(projectNode(), [join(root, 'apps', 'homeserver', 'dist', 'main.js'), ...process.argv.slice(2)], {
  cwd: process.env.INIT_CWD ?? root,
});
