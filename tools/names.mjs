// Part of `npm run check`: the words of docs/glossary.md. No identifier in the sources has a word in it that is not used, no
// class name is used twice. Both tables are read from that page. `--project=PATH` looks at another project.
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { root } from './lib.mjs';
import { isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
/** A generator of packages and what tests use speak of their own things. */
const skipped = new Set(['libs/create-module', 'libs/testing']);
const glossary = readFileSync(join(project, 'docs', 'glossary.md'), 'utf8');
const quoted = (text) => [...(text ?? '').matchAll(/`([^`]+)`/g)].map(([, name]) => name);

/** Words by what is said instead, and the identifiers in which they may stand. */
const unused = new Map();
for (const [, words, instead, exceptions] of glossary
  .slice(glossary.indexOf('## Words that are not used'))
  .matchAll(/^\| (`[^|]*) \| ([^|]*) \|([^|]*)\|$/gm))
  for (const word of quoted(words))
    unused.set(word, { instead: instead.trim(), exceptions: new Set(quoted(exceptions)) });
const twice = new Set(quoted(/^Twice on purpose: .*$/m.exec(glossary)?.[0]));

let failed = false;
const classes = new Map();
for (const name of packagesIn(project).filter((each) => !skipped.has(each)))
  for (const path of sourcesIn(join(project, name, 'src')).filter(isBuilt)) look(path);
for (const [name, places] of classes)
  if (places.length > 1 && !twice.has(name)) fail(`The class name ${name} is used twice: ${places.join(', ')}`);
for (const name of twice)
  if ((classes.get(name)?.length ?? 0) < 2) fail(`docs/glossary.md: the class name ${name} is not used twice any more`);
process.exit(failed ? 1 : 0);

function fail(message) {
  failed = true;
  console.log(message);
}

function look(path) {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest);
  const place = (node) =>
    `${relative(project, path)}:${source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1}`;
  const told = new Set();
  const visit = (node) => {
    if (ts.isClassDeclaration(node) && node.name)
      classes.set(node.name.text, [...(classes.get(node.name.text) ?? []), place(node)]);
    if ((ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) && !told.has(node.text)) {
      told.add(node.text);
      for (const word of wordsOf(node.text)) {
        const entry = unused.get(word);
        if (entry && !entry.exceptions.has(node.text))
          fail(`${place(node)}: ${node.text} says ${word}; the field says: ${entry.instead} (docs/glossary.md)`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

/** `#remoteStager` → remote, stager. */
function wordsOf(identifier) {
  return identifier
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z]+/);
}
