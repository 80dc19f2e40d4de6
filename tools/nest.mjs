// Part of `npm run check`: a Nest module provides one activity, of at most fifteen providers. Constructors have at most seven
// parameters; those that have more say why in a comment directly above, `// Nine parameters: ...`, and there are not more of
// them than there were. Nothing is asked of Nest's container by hand outside of the apps: whoever needs a service has it in its
// constructor. `--project=PATH` looks at another project.
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { root } from './lib.mjs';
import { isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const maxProviders = 15;
const maxParameters = 7;
const words = ['Eight', 'Nine', 'Ten', 'Eleven', 'Twelve', 'Thirteen', 'Fourteen', 'Fifteen'];
const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
/** Constructors of more than seven parameters in this project: lower it when there are fewer. */
const mostLong = 48;
/** Those of more than ten among them: lower it, too. */
const mostVeryLong = 0;
let long = 0;
let veryLong = 0;

let failed = false;
for (const name of packagesIn(project))
  for (const path of sourcesIn(join(project, name, 'src')).filter(isBuilt)) look(path);
if (long > mostLong) fail(`${long} constructors have more than ${maxParameters} parameters; ${mostLong} at most`);
if (project === root && long < mostLong)
  fail(`tools/nest.mjs: only ${long} constructors have more than ${maxParameters} parameters now`);
if (veryLong > mostVeryLong) fail(`${veryLong} constructors have more than 10 parameters; ${mostVeryLong} at most`);
if (project === root && veryLong < mostVeryLong)
  fail(`tools/nest.mjs: only ${veryLong} constructors have more than 10 parameters now`);
process.exit(failed ? 1 : 0);

function fail(message) {
  failed = true;
  console.log(message);
}

function look(path) {
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
  const place = (node) =>
    `${relative(project, path)}:${source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1}`;
  const lists = new Map();
  const countOf = (node) => {
    if (ts.isIdentifier(node)) return lists.get(node.text) ?? 1;
    if (!ts.isArrayLiteralExpression(node)) return 1;
    return node.elements.reduce((sum, one) => sum + (ts.isSpreadElement(one) ? countOf(one.expression) : 1), 0);
  };
  const visit = (node) => {
    if (ts.isVariableDeclaration(node) && node.initializer && ts.isArrayLiteralExpression(node.initializer))
      lists.set(node.name.getText(source), countOf(node.initializer));
    if (
      ts.isDecorator(node) &&
      ts.isCallExpression(node.expression) &&
      node.expression.expression.getText(source) === 'Module'
    ) {
      const [options] = node.expression.arguments;
      for (const property of options && ts.isObjectLiteralExpression(options) ? options.properties : []) {
        if (property.name?.getText(source) !== 'providers' || !ts.isPropertyAssignment(property)) continue;
        const count = countOf(property.initializer);
        if (count > maxProviders)
          fail(`${place(node)}: a Nest module of ${count} providers; more than ${maxProviders} are several`);
      }
    }
    if (ts.isConstructorDeclaration(node) && node.parameters.length > maxParameters) {
      const name = node.parent.name?.text ?? relative(project, path);
      const count = node.parameters.length;
      long++;
      if (count > 10) veryLong++;
      if (!isExplained(node, source))
        fail(
          `${place(node)}: the constructor of ${name} has ${count} parameters, ${maxParameters} at most ` +
            `without a reason above it: // ${words[count - maxParameters - 1]} parameters: ...`,
        );
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  if (!relative(project, path).startsWith('apps')) lookForContainer(source, place);
}

/** Whether the comment directly above a constructor says how many parameters it has, and why: more than a word or two. */
function isExplained(node, source) {
  const word = words[node.parameters.length - maxParameters - 1];
  const comment = (ts.getLeadingCommentRanges(source.text, node.getFullStart()) ?? [])
    .map(({ pos, end }) => source.text.slice(pos, end).replace(/^\/\/ ?|^\/\*+|\*\/$/g, ''))
    .join(' ');
  return word !== undefined && new RegExp(`\\b${word} parameters: \\S+(\\s+\\S+){4}`).test(comment);
}

/** `ModuleRef`, and `get` or `resolve` of an application that `NestFactory` made. `libs/testing` hands services to tests. */
function lookForContainer(source, place) {
  if (relative(project, source.fileName).startsWith(join('libs', 'testing'))) return;
  const applications = new Set();
  const visit = (node) => {
    if (ts.isIdentifier(node) && node.text === 'ModuleRef') fail(`${place(node)}: ModuleRef outside of the apps`);
    // Where one is kept: a variable, a parameter or a field of such a type, or made on the spot.
    if (
      (ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isPropertyDeclaration(node)) &&
      isApplication(node, source)
    )
      applications.add(node.name.getText(source));
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const { expression, name } = node.expression;
      const owner = expression.getText(source).split('.').at(-1);
      if (['get', 'resolve', 'select'].includes(name.text) && applications.has(owner))
        fail(`${place(node)}: a service is asked of the container by hand; have it injected`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

function isApplication(node, source) {
  const type = node.type?.getText(source) ?? '';
  const made = node.initializer?.getText(source) ?? '';
  return (
    /\b(INestApplication|INestApplicationContext|NestFastifyApplication)\b/.test(type) ||
    /\bNestFactory\.create/.test(made)
  );
}
