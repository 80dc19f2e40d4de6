// Part of `npm run check`: the type of a request's body is said once, by its schema. A parameter with `@JsonBody(schema)` is of
// type `Infer<typeof schema>`, or of an alias of that; so is one with `@SignedContent(schema)`, and one with `@FormBody(schema)` is
// of type `InferForm<typeof schema>`. No interface of the lib has the keys of one of its schemas. A query string is read by the
// schema of its endpoint alone: `@Query(schema)`, of type `InferQuery<typeof schema>`; the few that read one as it came say why
// here. What a key, a field or a parameter is for is said in a sentence. `--project=PATH` looks at another project.
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { root } from './lib.mjs';
import { isBuilt, packagesIn, sourcesIn } from './sources.mjs';

const project = process.argv.find((arg) => arg.startsWith('--project='))?.slice('--project='.length) ?? root;
/** Who reads query strings without a schema: the schemas themselves, those before any endpoint, and those who hand them on. */
const rawQueries = {
  'libs/http': 'makes requests and reads their schemas',
  'libs/users/src/sessions/access-token.ts': 'the token of any endpoint',
  'libs/users/src/authentication/request-authenticator.ts': 'whom an application service acts for, at any endpoint',
  'libs/appservices/src/queries/third-party.controller.ts': 'fields that an application service has named',
  'libs/sso/src/common/sso-addresses.ts': 'marks addresses that browsers were sent to',
  'libs/sso/src/oidc': 'parameters that a provider names',
};
let failed = false;

for (const name of packagesIn(project)) {
  const files = sourcesIn(join(project, name, 'src'))
    .filter(isBuilt)
    .map((path) => ({ path, text: readFileSync(path, 'utf8') }));
  if (!files.some(({ text }) => /JsonBody|json\.object|query/.test(text))) continue;
  const sources = files.map(({ path, text }) => ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true));
  const aliases = new Map();
  const schemas = new Map();
  for (const source of sources)
    visit(source, (node) => {
      if (ts.isTypeAliasDeclaration(node)) aliases.set(node.name.text, node.type);
      const keys = schemaKeys(node);
      if (keys) schemas.set(keys, node.parent.name?.getText() ?? keys);
    });
  for (const source of sources)
    visit(source, (node) => {
      if (ts.isParameter(node)) {
        lookAtParameter(source, node, aliases);
        lookAtQuery(source, node, aliases);
      }
      lookForRawQuery(source, node);
      lookAtDescription(source, node);
      const isType = ts.isInterfaceDeclaration(node) || ts.isTypeLiteralNode(node);
      const keys = isType && !isOfRows(source) ? keysOf(node.members) : undefined;
      if (keys && schemas.has(keys)) fail(source, node, `this is the schema ${schemas.get(keys)} once more: Infer`);
    });
}
process.exit(failed ? 1 : 0);

function fail(source, node, message) {
  failed = true;
  const { line } = source.getLineAndCharacterOfPosition(node.getStart(source));
  console.log(`${relative(project, source.fileName)}:${line + 1}: ${message}`);
}

function visit(node, look) {
  look(node);
  ts.forEachChild(node, (child) => visit(child, look));
}

/** The body of a method: of the schema's type. */
function lookAtParameter(source, node, aliases) {
  const form = decoratorOf(node, 'FormBody');
  const decorator = form ?? decoratorOf(node, 'JsonBody') ?? decoratorOf(node, 'SignedContent');
  if (!decorator) return;
  const infer = form ? 'InferForm' : 'Infer';
  const [schema] = decorator.arguments;
  const types = node.type ? partsOf(node.type, aliases) : [];
  if (!schema || !ts.isIdentifier(schema)) fail(source, node, 'give the schema of the body a name');
  else if (types.filter((type) => type !== 'JsonObject').join() !== `${infer}<typeof ${schema.text}>`)
    fail(source, node, `the body is of type ${infer}<typeof ${schema.text}>`);
}

/** The query string of a method: of the schema's type. */
function lookAtQuery(source, node, aliases) {
  const decorator = decoratorOf(node, 'Query');
  if (!decorator) return;
  const [schema] = decorator.arguments;
  const type = node.type ? partsOf(node.type, aliases).join() : '';
  if (!schema || !ts.isIdentifier(schema)) fail(source, node, 'give the schema of the query string a name');
  else if (type !== `InferQuery<typeof ${schema.text}>`)
    fail(source, node, `the query string is of type InferQuery<typeof ${schema.text}>`);
}

/** `request.query`, where it is not one of those with a reason. A `{ query }` that a route's `@Access` takes apart is one as well. */
function lookForRawQuery(source, node) {
  if (!/\b(Inbound|Late)Request\b/.test(source.text)) return;
  const path = relative(project, source.fileName);
  const isRead =
    (ts.isPropertyAccessExpression(node) && /^(request|inbound)\.query$/.test(node.getText())) ||
    (ts.isBindingElement(node) && node.name.getText() === 'query' && isOfRequest(node.parent.parent));
  if (!isRead || Object.keys(rawQueries).some((each) => path === each || path.startsWith(`${each}/`))) return;
  fail(source, node, 'a query string is read by a schema: @Query(queryOf({ … }))');
}

/** What `json.required`, `json.optional`, `json.described` and `param` say first, and `formOf` of each field. */
function lookAtDescription(source, node) {
  if (!ts.isCallExpression(node)) return;
  const maker = node.expression.getText();
  const [first] = node.arguments;
  if (/^(json\.(required|optional|described)|param\.\w+)$/.test(maker)) mustBeSentence(source, node, first);
  if (maker === 'formOf') for (const field of first?.properties ?? []) mustBeSentence(source, field, field.initializer);
}

/** A function that makes some may be given its `description`. */
function mustBeSentence(source, node, description) {
  if (description?.getText() === 'description') return;
  const isText = description && (ts.isStringLiteralLike(description) || ts.isTemplateExpression(description));
  if (!isText || !/^.[A-Z`][^]*\..$/.test(description.getText()))
    fail(source, node, 'say in a sentence what it is for: `The name of the room.`');
}

function isOfRequest(node) {
  return ts.isParameter(node) && /^(InboundRequest|LateRequest)$/.test(node.type?.getText() ?? '');
}

function decoratorOf(node, name) {
  return ts
    .getDecorators(node)
    ?.map(({ expression }) => expression)
    .find((each) => ts.isCallExpression(each) && each.expression.getText() === name);
}

/** The types that a type is made of, aliases of the lib resolved. */
function partsOf(type, aliases) {
  if (ts.isIntersectionTypeNode(type)) return type.types.flatMap((each) => partsOf(each, aliases));
  const alias = ts.isTypeReferenceNode(type) && !type.typeArguments ? aliases.get(type.typeName.getText()) : undefined;
  return alias ? partsOf(alias, aliases) : [type.getText()];
}

/** The sorted keys of `json.object({...})`; `undefined` for one of fewer than three, which many things have. */
function schemaKeys(node) {
  if (!ts.isCallExpression(node) || node.expression.getText() !== 'json.object') return undefined;
  const [fields] = node.arguments;
  if (!fields || !ts.isObjectLiteralExpression(fields)) return undefined;
  return keysOf(fields.properties);
}

/** Rows of a table may have the keys of a body. */
function isOfRows(source) {
  return source.fileName.endsWith('.query.ts');
}

function keysOf(members) {
  const keys = members.flatMap((member) => member.name?.getText().replace(/^'|'$/g, '') ?? []);
  return keys.length >= 3 && keys.length === members.length ? keys.sort().join(', ') : undefined;
}
