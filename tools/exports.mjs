// Part of `npm run check`: the front door of a lib, its `index.ts`, exports what others use and nothing else. Others are the
// libs, the apps, the examples, the tools and the tests outside of the lib. Libs that are published are for strangers: theirs may export
// more. `--project=PATH` looks at another project; `--write` takes away what nobody uses.
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { root } from './lib.mjs';
import { importsOf, packagesIn, sourcesIn } from './sources.mjs';

const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
const isWriting = process.argv.includes('--write');
/** Most names of a front door that had grown too wide. A lower number is entered here when it has been reached. */
const mostNames = { rooms: 69, users: 84 };
const used = usedNames();
let failed = false;

for (const name of packagesIn(project, ['libs'])) {
  const index = join(project, name, 'src', 'index.ts');
  if (!existsSync(index) || !manifestOf(name).private) continue;
  const names = used.get(manifestOf(name).name) ?? new Set();
  if (names.has('*')) continue;
  const all = importsOf(index).flatMap((each) => each.as ?? []);
  const most = mostNames[basename(name)];
  if (all.length > most) {
    failed = true;
    console.log(`${name} exports ${all.length} names, ${most} at most: let a service that is exported do it`);
  }
  const unused = all.filter((each) => !names.has(each));
  if (unused.length === 0) continue;
  if (isWriting) writeFileSync(index, without(readFileSync(index, 'utf8'), new Set(unused)));
  else {
    failed = true;
    console.log(`${name} exports what nobody else uses: ${unused.join(', ')}`);
  }
}
process.exit(failed ? 1 : 0);

function manifestOf(name) {
  return JSON.parse(readFileSync(join(project, name, 'package.json'), 'utf8'));
}

/** What is imported from each package by the others; `*` for everything. */
function usedNames() {
  const found = new Map();
  const add = (from, names) => found.set(from, new Set([...(found.get(from) ?? []), ...names]));
  for (const group of ['libs', 'apps', 'modules-examples', 'test']) {
    for (const file of sourcesIn(join(project, group))) {
      const [, own] = /^libs[/\\]([^/\\]+)/.exec(relative(project, file)) ?? [];
      for (const { from, names } of importsOf(file)) {
        if (!from.startsWith('@rookery/') || from === `@rookery/${own}`) continue;
        add(from, names ?? ['*']);
      }
    }
  }
  const tools = join(project, 'tools');
  for (const file of existsSync(tools) ? readdirSync(tools) : []) {
    const text = file.endsWith('.mjs') ? readFileSync(join(tools, file), 'utf8') : '';
    for (const match of text.matchAll(/\{([^{}]*)\} = await import\(\s*join\(root, 'libs', '([^']+)'/g))
      add(
        `@rookery/${match[2]}`,
        match[1].split(',').map((name) => name.trim()),
      );
  }
  return found;
}

/** The text of an `index.ts` without some of its names; prettier does the rest. */
function without(text, unused) {
  return text.replace(/^export (type )?\{([^}]*)\} from ('[^']+');\n/gm, (whole, type = '', list, from) => {
    const all = list.split(',').flatMap((name) => name.trim() || []);
    const kept = all.filter((name) => !unused.has(name.replace(/^type\s+/, '').replace(/.*\s+as\s+/, '')));
    if (kept.length === all.length) return whole;
    return kept.length === 0 ? '' : `export ${type}{ ${kept.join(', ')} } from ${from};\n`;
  });
}
