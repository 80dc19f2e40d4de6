// For `node --import`: writes what the process has loaded, when it ends, to the file that `LOADED_MODULES` names. A file of the bundle
// stands for those that it was made from.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

const files = new Set();
registerHooks({
  load(url, context, nextLoad) {
    files.add(url);
    return nextLoad(url, context);
  },
});
const contentsOf = (url) => {
  const map = new URL(`${url}.map`);
  if (!url.includes('/dist/bundle/') || !existsSync(map)) return [url];
  return JSON.parse(readFileSync(map, 'utf8')).sources.map((source) => new URL(source, url).href);
};
process.on('exit', () =>
  writeFileSync(
    process.env.LOADED_MODULES,
    JSON.stringify({ files: [...files].flatMap(contentsOf), runtime: process.moduleLoadList }),
  ),
);
