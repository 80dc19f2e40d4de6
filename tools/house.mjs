// Part of `npm run check` and `npm run docs`: the numbers that docs/architecture.md says of the house, the places that
// docs/walks.md names, and the files of "Where a change goes" there. `--write` writes numbers and lines anew; without, a number
// that is not true fails, so does a place that is gone or lies more than a screenful from its line. `--project=PATH` looks at
// another project.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { root } from './lib.mjs';
import { importsOf, isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
const isWriting = process.argv.includes('--write');
/** A line that others moved by less is still found at a glance. */
const screenful = 25;
const read = (path) => readFileSync(join(project, path), 'utf8');

let failed = false;
function fail(message) {
  failed = true;
  console.log(message);
}

/** What is counted, by the name that its row has in the table. */
const measures = {
  'providers in the largest Nest module': () => Math.max(0, ...nestModules()),
  'names that rooms exports': () => exportsOf('libs/rooms'),
  'names that users exports': () => exportsOf('libs/users'),
  'class names used twice': () =>
    (/^Twice on purpose: (.*)$/m.exec(read('docs/glossary.md'))?.[1].match(/`\w+`/g) ?? []).length,
  "files that read another lib's table": () => JSON.parse(read('tools/tables.json')).reads.length,
  'constructors of more than seven parameters': () => constructorsAbove(7),
  'constructors of more than ten parameters': () => constructorsAbove(10),
  'hand-made queues, turns, maps of promises': () => exceptions('promise chains', 'maps of promises'),
  'caches beside `Cache`': () => exceptions('raw caches'),
  'timers beside background tasks': () => exceptions('timers'),
  'highest complexity on the way of an event': () =>
    Number(/complexity: \['error', (\d+)\]/.exec(read('eslint.config.mjs'))?.[1]),
};

checkNumbers('docs/architecture.md');
checkPlaces('docs/walks.md');
checkFiles('docs/architecture.md');
process.exit(failed ? 1 : 0);

function checkNumbers(page) {
  if (!existsSync(join(project, page))) return;
  let text = read(page);
  for (const [name, measure] of Object.entries(measures)) {
    const row = text.split('\n').find((line) => line.startsWith(`| ${name} |`));
    if (!row) {
      fail(`${page} has no row for "${name}"`);
      continue;
    }
    const [, , before, now] = row.split(' | ').length === 4 ? ['', ...row.split(' | ')] : [];
    const said = Number(/\d+/.exec(now ?? '')?.[0]);
    const counted = measure();
    if (said === counted) continue;
    if (isWriting)
      text = text.replace(row, row.replace(`${before} | ${now}`, `${before} | ${now.replace(/\d+/, String(counted))}`));
    else fail(`${page}: ${name}: ${said} is said, ${counted} counted (npm run docs)`);
  }
  if (isWriting) writeFileSync(join(project, page), text);
}

/** `path.ts:12` `symbol` in a page. */
function checkPlaces(page) {
  if (!existsSync(join(project, page))) return;
  const text = read(page).replace(/`([\w./-]+\.ts):(\d+)` `(#?\w+)`/g, (whole, path, line, symbol) => {
    const found = lineOf(path, symbol);
    if (found === undefined) fail(`${page}: ${path} has no ${symbol}`);
    else if (isWriting) return `\`${path}:${found}\` \`${symbol}\``;
    else if (Math.abs(found - Number(line)) > screenful)
      fail(`${page}: ${symbol} lies at ${path}:${found} (npm run docs)`);
    return whole;
  });
  if (isWriting) writeFileSync(join(project, page), text);
}

/** The first line on which something of this name is declared. */
function lineOf(path, symbol) {
  if (!existsSync(join(project, path))) return undefined;
  const source = ts.createSourceFile(path, read(path), ts.ScriptTarget.Latest, true);
  let found;
  const visit = (node) => {
    const isMade =
      (ts.isClassElement(node) && !!(node.body ?? node.initializer)) ||
      ts.isClassDeclaration(node) ||
      ts.isFunctionDeclaration(node) ||
      ts.isVariableDeclaration(node);
    if (found === undefined && isMade && node.name?.getText(source) === symbol)
      found = source.getLineAndCharacterOfPosition(node.name.getStart(source)).line + 1;
    if (found === undefined) ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** The files that the table "Where a change goes" names are there; `<activity>` and `thing` stand for what is new. */
function checkFiles(page) {
  if (!existsSync(join(project, page))) return;
  const table = /### Where a change goes\n([^#]*)/.exec(read(page))?.[1] ?? '';
  for (const [, path] of table.matchAll(/`((?:libs|apps|test|docs)\/[\w./-]+)`/g))
    if (!/\bthing\b/.test(path) && !existsSync(join(project, path))) fail(`${page}: there is no ${path}`);
}

/** How many files make things of these kinds by hand. */
function exceptions(...kinds) {
  const allowed = JSON.parse(read('tools/kinds.json'));
  return kinds.reduce((sum, kind) => sum + Object.keys(allowed[kind] ?? {}).length, 0);
}

/** How many constructors have more parameters than that. */
function constructorsAbove(most) {
  let count = 0;
  const visit = (node) => {
    if (ts.isConstructorDeclaration(node) && node.parameters.length > most) count++;
    ts.forEachChild(node, visit);
  };
  for (const name of packagesIn(project))
    for (const path of sourcesIn(join(project, name, 'src')).filter(isBuilt))
      visit(ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true));
  return count;
}

function exportsOf(lib) {
  return importsOf(join(project, lib, 'src', 'index.ts')).flatMap((each) => each.as ?? []).length;
}

/** How many providers each Nest module has; a list that is named is looked up. */
function nestModules() {
  return packagesIn(project)
    .flatMap((name) => sourcesIn(join(project, name, 'src')))
    .filter((path) => isBuilt(path) && /\.module\.ts$/.test(path))
    .flatMap((path) => {
      const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
      const lists = new Map();
      const counts = [];
      const countOf = (node) => {
        if (ts.isIdentifier(node)) return lists.get(node.text) ?? 1;
        if (!ts.isArrayLiteralExpression(node)) return 1;
        return node.elements.reduce((sum, one) => sum + (ts.isSpreadElement(one) ? countOf(one.expression) : 1), 0);
      };
      const visit = (node) => {
        if (ts.isVariableDeclaration(node) && node.initializer && ts.isArrayLiteralExpression(node.initializer))
          lists.set(node.name.getText(source), countOf(node.initializer));
        if (ts.isPropertyAssignment(node) && node.name.getText(source) === 'providers')
          counts.push(countOf(node.initializer));
        ts.forEachChild(node, visit);
      };
      visit(source);
      return counts;
    });
}
