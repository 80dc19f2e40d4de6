// For `node --import`: writes what the process has loaded, when it ends, to the file that `LOADED_MODULES` names.
import { writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

const files = new Set();
registerHooks({
  load(url, context, nextLoad) {
    files.add(url);
    return nextLoad(url, context);
  },
});
process.on('exit', () =>
  writeFileSync(process.env.LOADED_MODULES, JSON.stringify({ files: [...files], runtime: process.moduleLoadList })),
);
