// Part of `npm run check`: every table belongs to the lib whose migrations create it. Nobody else writes it, migrations aside;
// what reads it from elsewhere is listed in tools/tables.json, with the reason; statements lie in `.query.ts` files, those of
// background updates (`.update.ts`), which are migrations of rows, aside. Entries that are not needed any more must go;
// `exempt` there are folders that are not looked at. `--project=PATH` looks at another project, `--report` prints owners and
// readers.
import { existsSync, readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import ts from 'typescript';
import { root } from './lib.mjs';
import { isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
/** These have no tables of the server: what modules see and use, what tests use. */
const skipped = new Set(['libs/module-api', 'libs/testing', 'libs/create-module', 'libs/typeorm']);
/** Libs that make statements for others. */
const sqlMakers = new Set(['libs/database']);
const listFile = join(project, 'tools', 'tables.json');
const list = existsSync(listFile) ? JSON.parse(readFileSync(listFile, 'utf8')) : { reads: [], exempt: [] };

/** Whether a file is not looked at. */
function exempt(path) {
  const file = relative(project, path).split(sep).join('/');
  return (list.exempt ?? []).some(({ folder }) => file.startsWith(folder));
}

let failed = false;
function fail(message) {
  failed = true;
  console.log(message);
}

const files = packagesIn(project)
  .filter((name) => !skipped.has(name))
  .flatMap((owner) =>
    sourcesIn(join(project, owner, 'src'))
      .filter(isBuilt)
      .filter((path) => !exempt(path))
      .map((path) => ({ owner, file: relative(project, path).split(sep).join('/'), texts: textsIn(path) })),
  );

const owners = new Map();
for (const { owner, file, texts } of files) {
  for (const { text } of texts) {
    for (const [, table] of text.matchAll(/\bCREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?(\w+)/g)) {
      if (owners.has(table) && owners.get(table) !== owner)
        fail(`${file}: the table ${table} is created by ${owners.get(table)}, too`);
      owners.set(table, owner);
    }
  }
}

/** Tables of others by the file that reads them. */
const readers = new Map();
const outside = new Map();
for (const { owner, file, texts } of files) {
  const isMigration = /\bmigrations?\b/.test(file);
  for (const { text, line, near, inserted, asked } of texts) {
    const written = [...text.matchAll(/\b(?:INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM|TRUNCATE)\s+(\w+|\$)/g)]
      .map(([, name]) => name)
      .flatMap((name) => (name === '$' ? near.filter((one) => owners.has(one)) : [name]))
      .concat(inserted ? [text] : [])
      .filter((name) => owners.has(name));
    const read = [...text.matchAll(/\b(?:FROM|JOIN)\s+(\w+)/g)]
      .map(([, name]) => name)
      .filter((name) => owners.has(name));
    if (isMigration) continue;
    for (const table of new Set(written))
      if (owners.get(table) !== owner) fail(`${file}:${line} writes ${table}, which belongs to ${owners.get(table)}`);
    for (const table of read)
      if (owners.get(table) !== owner && !written.includes(table))
        readers.set(file, (readers.get(file) ?? new Set()).add(table));
    const isStatement = written.length + read.length > 0 || asked;
    if (isStatement && !/\.(query|update)\.ts$/.test(file) && !sqlMakers.has(owner))
      outside.set(file, [...(outside.get(file) ?? []), line]);
  }
}

for (const [file, tables] of readers) {
  const entry = list.reads.find((one) => one.file === file);
  const unlisted = [...tables].filter((table) => !entry?.tables.includes(table)).sort();
  if (unlisted.length > 0)
    fail(
      `${file} reads ${unlisted.join(', ')} of others: ask the owner, or list it in tools/tables.json with the reason`,
    );
}
for (const { file, tables, why } of list.reads) {
  const idle = tables.filter((table) => !readers.get(file)?.has(table));
  if (idle.length > 0) fail(`${file} does not read ${idle.join(', ')} any more: take it from tools/tables.json`);
  if (!why) fail(`tools/tables.json says no reason for ${file}`);
}
for (const [file, lines] of outside) fail(`${file}:${lines.join(',')} has statements: they lie in .query.ts files`);

if (process.argv.includes('--report')) {
  const byOwner = Map.groupBy ? Map.groupBy([...owners], ([, owner]) => owner) : new Map();
  for (const [owner, tables] of byOwner)
    console.log(
      `${owner}: ${tables
        .map(([table]) => table)
        .sort()
        .join(', ')}`,
    );
  for (const [file, tables] of readers) console.log(`${file} reads ${[...tables].sort().join(', ')}`);
}
process.exit(failed ? 1 : 0);

/**
 * The texts of a file, expressions in them as `$`; with each, the plain texts of the declaration that it is in, and whether it
 * names the table of an `insertMany`, and whether it begins like a statement, of whatever tables.
 */
function textsIn(path) {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
  const found = [];
  for (const statement of source.statements) {
    const near = [];
    const visit = (node) => {
      const text = ts.isStringLiteralLike(node)
        ? node.text
        : ts.isTemplateExpression(node)
          ? node.head.text + node.templateSpans.map((span) => `$${span.literal.text}`).join('')
          : undefined;
      if (text !== undefined) {
        const call = node.parent;
        const inserted =
          ts.isCallExpression(call) &&
          call.arguments[0] === node &&
          ts.isPropertyAccessExpression(call.expression) &&
          call.expression.name.text === 'insertMany';
        const asked =
          /^\s*(?:SELECT|WITH (?:RECURSIVE )?\w+|INSERT(?: OR \w+)? INTO|UPDATE \w+ SET|DELETE FROM)\s/.test(text);
        const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
        found.push({ text, line, near, inserted, asked });
        near.push(text);
      }
      ts.forEachChild(node, visit);
    };
    visit(statement);
  }
  return found;
}
