// Part of `npm run check`: inside a lib or app calls run one way. The folders right below its `src`, and the files that lie
// there themselves, must not import each other in a ring, be it for types only. Prints every ring with the imports that make
// it. `--project=PATH` looks at another project, `--lib=libs/rooms` at one lib.
import { dirname, join, normalize, relative, sep } from 'node:path';
import { root } from './lib.mjs';
import { importsOf, isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const option = (name) => process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const project = option('project') ?? root;
const only = option('lib');
let failed = false;

for (const name of packagesIn(project)) {
  if (only !== undefined && name !== only) continue;
  for (const { folders, imports } of ringsIn(join(project, name, 'src'))) {
    fail(`${name}: ${folders.join(', ')} import each other in a ring`);
    for (const each of imports) console.log(`  ${each}`);
  }
}
process.exit(failed ? 1 : 0);

function fail(message) {
  failed = true;
  console.log(message);
}

/** The rings of folders below `src`, each with the imports between its folders. */
function ringsIn(src) {
  /** Imports by the folder that they come from and the one that they go to. */
  const arrows = new Map();
  for (const file of sourcesIn(src).filter(isBuilt)) {
    const from = folderOf(src, file);
    for (const { from: specifier, line } of importsOf(file)) {
      if (!specifier.startsWith('.')) continue;
      const target = normalize(join(dirname(file), specifier)).replace(/\.js$/, '.ts');
      const to = folderOf(src, target);
      if (to === from || to === '..') continue;
      if (!arrows.has(from)) arrows.set(from, new Map());
      const made = arrows.get(from);
      made.set(to, [...(made.get(to) ?? []), `${relative(src, file)}:${line} -> ${relative(src, target)}`]);
    }
  }
  return ringsOf(arrows).map((folders) => ({
    folders,
    imports: folders.flatMap((from) => folders.flatMap((to) => arrows.get(from)?.get(to) ?? [])),
  }));
}

/** The folder below `src`, or the file in `src`, that a file belongs to. */
function folderOf(src, file) {
  return relative(src, file).split(sep)[0];
}

/** What can reach itself, gathered by what it reaches: the strongly connected components of more than one node. */
function ringsOf(arrows) {
  const reach = new Map([...arrows.keys()].map((from) => [from, reachedFrom(arrows, from)]));
  const rings = [];
  for (const from of [...arrows.keys()].sort()) {
    if (rings.some((ring) => ring.includes(from)) || !reach.get(from).has(from)) continue;
    rings.push([from, ...[...reach.get(from)].filter((to) => to !== from && reach.get(to)?.has(from)).sort()]);
  }
  return rings;
}

function reachedFrom(arrows, from) {
  const seen = new Set();
  const open = [from];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (const to of arrows.get(at)?.keys() ?? []) {
      if (seen.has(to)) continue;
      seen.add(to);
      open.push(to);
    }
  }
  return seen;
}
