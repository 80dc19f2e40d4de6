// `npm start`: installs and builds what is missing, then runs the homeserver with the arguments given.
import { become, ensureBuilt, ensureInstalled, projectNode, root, serverProgram } from './lib.mjs';

ensureInstalled();
ensureBuilt();
become(projectNode(), [serverProgram, ...process.argv.slice(2)], {
  cwd: process.env.INIT_CWD ?? root,
});
