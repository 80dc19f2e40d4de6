// There is one kind each of cache, background task, concurrency helper and port (docs/inventory.md). What is made by hand instead is
// listed in tools/kinds.json with the reason; anything else fails, and so does a line of that list that nobody needs any more.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { root } from './lib.mjs';

/** What is looked for, by the name of its list, and what to do instead. Files under `home` are the kind itself. */
const kinds = {
  'raw caches': {
    pattern: /from 'lru-cache'/g,
    home: 'libs/platform/src/caches/',
    instead: 'new Cache(config, name, { invalidation, max })',
  },
  timers: {
    pattern: /\bsetInterval\(|\b#?clock\.every\(/g,
    home: 'libs/platform/src/background/',
    instead: 'BackgroundTasks.add({ name, role, everyMs, run })',
  },
  'worker loops': {
    pattern: /Promise\.all\(\s*Array\.from\(\{ length/g,
    home: 'libs/platform/src/concurrency/',
    instead: 'eachLimit',
  },
  'promise chains': {
    // A field that begins as a promise of nothing, and what comes next is hung onto it.
    pattern: /#(\w+): Promise<\w+> = Promise\.resolve\(\)[^]*this\.#\1\.then\(|\blast: Promise\.resolve\(\)/g,
    home: 'libs/platform/src/concurrency/',
    instead: 'KeyedMutex, Semaphore(1) or SingleFlight',
  },
  'maps of promises': {
    pattern: /new Map<[^,<>]+, Promise<[^\n]*>>\(/g,
    home: 'libs/platform/src/concurrency/',
    instead: 'SingleFlight or KeyedMutex',
  },
  'values that may be promises': {
    pattern: /instanceof Promise\b/g,
    home: 'libs/platform/src/concurrency/',
    instead: 'Soon of platform, or a promise',
  },
  ports: {
    pattern: /^ {2}use\w*\(\w+: [A-Z]\w*(?:<\w+>)?(?: \| undefined)?\): void/gm,
    home: 'libs/platform/src/wiring/',
    instead: 'a Port',
  },
};

const files = ['libs', 'apps']
  .flatMap((group) => readdirSync(join(root, group)).map((name) => join(root, group, name, 'src')))
  .filter((folder) => existsSync(folder) && !folder.includes('/libs/testing/'))
  .flatMap(sources)
  .map((file) => ({ path: relative(root, file), text: readFileSync(file, 'utf8') }));

const allowed = JSON.parse(readFileSync(join(root, 'tools', 'kinds.json'), 'utf8'));
let wrong = 0;
const complain = (line) => {
  console.error(line);
  wrong += 1;
};

for (const [kind, { pattern, home, instead }] of Object.entries(kinds)) {
  const reasons = allowed[kind] ?? {};
  const found = files.filter(({ path, text }) => !path.startsWith(home) && text.search(pattern) !== -1);
  for (const { path } of found)
    if (!reasons[path]) complain(`${path}: ${kind} made by hand; use ${instead}, or give a reason in tools/kinds.json`);
  for (const path of Object.keys(reasons))
    if (!found.some((one) => one.path === path)) complain(`tools/kinds.json: no ${kind} are in ${path} any more`);
}
for (const kind of Object.keys(allowed)) if (!kinds[kind]) complain(`tools/kinds.json: there is no kind ${kind}`);

// What a lib needs of those above it is seen in one file: its `ports.ts`.
for (const { path, text } of files) {
  if (path.startsWith('libs/platform/') || /^libs\/[\w-]+\/src\/ports\.ts$/.test(path)) continue;
  if (/\bnew Port</.test(text)) complain(`${path}: a port stands in the ports.ts of its lib`);
}

// Who says that other processes tell a cache of changes has to listen.
for (const { path, text } of files) {
  if (path.startsWith('libs/platform/') || !/elsewhere: 'told'/.test(text)) continue;
  if (!/\bonElsewhere\b|\bonHeard\(|\bonRejudged\(|\binvalidations\.on\(/.test(text))
    complain(`${path}: a cache is said to be told in other processes, but nothing there listens`);
}

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return sources(path);
    return entry.name.endsWith('.ts') && !/\.(spec|fixture)\.ts$/.test(entry.name) ? [path] : [];
  });
}

if (wrong === 0)
  console.log(`one kind each: ${Object.values(allowed).flatMap(Object.keys).length} exceptions, each with its reason`);
process.exit(wrong > 0 ? 1 : 0);
