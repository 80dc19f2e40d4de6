// `npm run docs`: writes the documents that follow from the sources. `--check` changes nothing and fails when one is stale,
// or when the list of settings without effect does not agree with what the sources read; `--adopt` rewrites that list after
// them (look at the difference: read is not yet working). Needs no build.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { helpWhereAsked, projectNode, root } from './lib.mjs';

helpWhereAsked(import.meta.url);
const inSources = process.execArgv.some((arg) => arg.includes('@rookery/source'));
if (!inSources) {
  const loader = [
    '--import',
    '@swc-node/register/esm-register',
    '--conditions=@rookery/source',
    '--disable-warning=ExperimentalWarning',
  ];
  const result = spawnSync(projectNode(), [...loader, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, SWC_NODE_PROJECT: join(root, 'tsconfig.check.json') },
  });
  process.exit(result.status ?? 1);
}

const check = process.argv.includes('--check');
const { configurationReference, configurationSchema, settingsReport, withoutEffect } = await import(
  join(root, 'libs', 'platform', 'src', 'index.ts')
);
const { errorTable } = await import(join(root, 'libs', 'matrix-types', 'src', 'index.ts'));
const { bodySchemaOf, formSchemaOf, querySchemaOf } = await import(join(root, 'libs', 'http', 'src', 'index.ts'));
const controllers = await controllersOf(['libs', 'apps']);
const { createProgram, createSynctl, upgradePage } = await import(join(root, 'apps', 'ctl', 'src', 'index.ts'));
const { format, resolveConfig } = await import('prettier');

let wrong = 0;
const complain = (line) => {
  console.error(line);
  wrong += 1;
};

// Settings that the sources read, against those said to be without effect.
const platform = join(root, 'libs', 'platform', 'src');
const { readThoughIdle, idleThoughSilent } = settingsReport(
  ['libs', 'apps']
    .flatMap((group) => readdirSync(join(root, group)).map((name) => join(root, group, name, 'src')))
    .filter((folder) => existsSync(folder) && folder !== platform && folder !== join(root, 'apps', 'ctl', 'src'))
    .flatMap(sources)
    .map((file) => readFileSync(file, 'utf8')),
);
const listFile = join(platform, 'config', 'without-effect.ts');
const list = relative(root, listFile);
if (process.argv.includes('--adopt')) {
  const names = [...withoutEffect, ...idleThoughSilent].filter((name) => !readThoughIdle.includes(name)).sort();
  const text = readFileSync(listFile, 'utf8').replace(
    /\(\[[^]*\]\)/,
    `([${names.map((name) => `'${name}'`).join(', ')}])`,
  );
  writeFileSync(listFile, await format(text, { ...(await resolveConfig(listFile)), filepath: listFile }));
  console.log(`wrote ${list}`);
  process.exit(0);
}
for (const name of readThoughIdle)
  complain(`${name} is read by the sources, but stands in ${list}: delete its line if it works`);
for (const name of idleThoughSilent) complain(`${name} is read nowhere: add it to ${list}, or read it`);

/** Path and text of every document. */
const documents = [
  ['docs/operators/configuration.md', configurationReference],
  ['docs/operators/homeserver.schema.json', () => JSON.stringify(configurationSchema())],
  ['docs/operators/commands.md', commandReference],
  ['docs/operators/upgrade.md', upgradePage],
  ['docs/inventory.md', inventory],
  ['docs/errors.md', errorsPage],
  ['docs/bodies.md', bodiesPage],
];

for (const [path, text] of documents) {
  const file = join(root, path);
  const wanted = await format(text(), { ...(await resolveConfig(file)), filepath: file });
  if (existsSync(file) && readFileSync(file, 'utf8') === wanted) continue;
  if (check) complain(`${path} is stale: npm run docs`);
  else {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, wanted);
    console.log(`wrote ${path}`);
  }
}

/** The classes of the controllers, by lib. */
async function controllersOf(groups) {
  await import('reflect-metadata');
  const found = [];
  for (const group of groups)
    for (const name of readdirSync(join(root, group)).sort()) {
      const src = join(root, group, name, 'src');
      if (name === 'testing' || !existsSync(src)) continue;
      const files = sources(src)
        .filter((file) => file.endsWith('.controller.ts'))
        .sort();
      for (const file of files) {
        const classes = Object.values(await import(file)).filter(
          (each) => typeof each === 'function' && each.prototype,
        );
        found.push(...classes.map((controller) => ({ lib: name, controller })));
      }
    }
  return found;
}

/** What a field is, then its bounds. */
function inWords(description = '', bounds = '') {
  return [description, bounds && `${bounds[0].toUpperCase()}${bounds.slice(1)}.`].filter(Boolean).join(' ');
}

/** What bodies and query strings of requests hold, as their schemas say. */
function bodiesPage() {
  const verbs = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'];
  const typeOf = ({ type, enum: values, anyOf, items, additionalProperties, properties }) => {
    if (values) return values.map((value) => `\`${JSON.stringify(value)}\``).join(', ');
    if (anyOf) return [...new Set(anyOf.map(typeOf))].join(' or ');
    if (type === undefined) return 'anything';
    return [type]
      .flat()
      .map((each) => {
        if (each === 'array') return `list of ${typeOf(items ?? {})}`;
        if (each !== 'object') return each;
        if (additionalProperties) return `object of ${typeOf(additionalProperties)}`;
        return properties ? 'object' : 'any object';
      })
      .join(' or ');
  };
  const limits = ({ minLength, maxLength, minimum, maximum, minItems, maxItems, maxProperties }) => {
    const range = (least, most, unit) =>
      least === undefined && most === undefined
        ? []
        : [
            `${least ?? ''}${least === undefined ? 'at most ' : most === undefined ? ' or more' : ' to '}${most ?? ''}${unit}`,
          ];
    return [
      ...range(minLength || undefined, maxLength, ' characters'),
      ...range(minimum, maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum, ''),
      ...range(minItems, maxItems, ' entries'),
      ...range(undefined, maxProperties || undefined, ' keys'),
    ].join(', ');
  };
  const rowsOf = ({ properties = {}, required = [] }, prefix) =>
    Object.entries(properties).flatMap(([key, schema]) => {
      const name = `${prefix}${key}`;
      const said = inWords(schema.description, limits(schema));
      const inner = schema.items ?? schema.additionalProperties ?? schema;
      const mark = schema.items ? '[].' : schema.additionalProperties ? '.*.' : '.';
      return [
        `| \`${name}\` | ${typeOf(schema)} | ${required.includes(key) ? 'yes' : ''} | ${said} |`,
        ...rowsOf(inner, `${name}${mark}`),
      ];
    });
  const paramsOf = ({ params }) =>
    Object.entries(params).map(([name, { type, description, required, also, limits }]) => {
      const names = [name, ...also].map((each) => `\`${each}\``).join(', or ');
      return `| ${names} | ${type} | ${required ? 'yes' : ''} | ${inWords(description, limits)} |`;
    });
  const endpoints = controllers.flatMap(({ lib, controller }) =>
    Object.getOwnPropertyNames(controller.prototype).flatMap((method) => {
      const body = bodySchemaOf(controller.prototype, method);
      const query = querySchemaOf(controller.prototype, method);
      const form = formSchemaOf(controller.prototype, method);
      if (!body && !query && !form) return [];
      const handler = controller.prototype[method];
      const verb = verbs[Reflect.getMetadata('method', handler)];
      const paths = [Reflect.getMetadata('path', handler)].flat().map((path) => path.replace(/:(\w+)/g, '{$1}'));
      return [{ lib, title: paths.map((path) => `${verb} ${path}`), body, query, form }];
    }),
  );
  const table = (head, rows) => [`| ${head} | type | required | |`, '| --- | --- | --- | --- |', ...rows].join('\n');
  const formTable = ({ fields }) =>
    [
      '| in the form | |',
      '| --- | --- |',
      ...Object.entries(fields).map(([name, said]) => `| \`${name}\` | ${said} |`),
    ].join('\n');
  const bodyOf = (title, body) => {
    const rows = rowsOf(body, '');
    if (rows.length > 0) return table('in the body', rows);
    if (!body.description) complain(`nothing says what the body of ${title} is: json.described`);
    return `The body (${typeOf(body)}): ${body.description}`;
  };
  const chapters = [...new Set(endpoints.map(({ lib }) => lib))].map((lib) => {
    const parts = endpoints
      .filter((each) => each.lib === lib)
      .map(({ title: [first, ...more], body, query, form }) =>
        [
          `### ${first}`,
          ...(more.length > 0 ? [`Also ${more.map((each) => `\`${each}\``).join(', ')}.`] : []),
          ...(query ? [table('in the query', paramsOf(query))] : []),
          ...(body ? [bodyOf(first, body)] : []),
          ...(form ? [formTable(form)] : []),
        ].join('\n\n'),
      );
    return [`## ${lib}`, ...parts].join('\n\n');
  });
  return [
    '# Bodies and query strings of requests',
    '<!-- Written by `npm run docs` from the schemas of the controllers. -->',
    `What is checked before a request is answered, by lib. Other keys may be there. Where a key is not required, \`null\` counts as
absent unless its type says otherwise; in a query, an empty value does, and what is no list may be there once only. Of a body whose shape is not known
beforehand it says what it is. The fields of a form are texts; none of them is asked for here. [Errors](errors.md) says what does not fit is answered with: \`M_MISSING_PARAM\`,
\`M_INVALID_PARAM\`, \`M_BAD_JSON\`.`,
    ...chapters,
  ].join('\n\n');
}

/** Every kind of error, by code and status. */
function errorsPage() {
  const rows = Object.entries(errorTable)
    .sort(([, a], [, b]) => (a.errcode === b.errcode ? a.status - b.status : a.errcode < b.errcode ? -1 : 1))
    .map(([name, { errcode, status, when, text = '', extra, retries }]) => {
      const keys = [...Object.keys(extra ?? {}), ...(retries ? ['retry_after_ms'] : [])].map((key) => `\`${key}\``);
      return `| \`${errcode}\` | ${status} | ${when}${keys.length > 0 ? `; ${keys.join(', ')}` : ''} | ${text} | \`${name}\` |`;
    });
  return [
    '# Errors',
    '<!-- Written by `npm run docs` from libs/matrix-types/src/error-table.ts. -->',
    `What this server refuses with, by code. The text (\`error\`) is for people and may say more than here; clients go by code and
status. The last column is the constructor in code, for modules too: \`throw MatrixError.notInRoom()\`. What modules, other servers
and application services refuse with is handed on under the code that they gave.`,
    ['| errcode | status | when | says | constructor |', '| --- | --- | --- | --- | --- |', ...rows].join('\n'),
  ].join('\n\n');
}

/** Every command of `rookery` with its help. */
function commandReference() {
  const chapters = (command, path) => [
    `## ${path}\n\n\`\`\`text\n${command.configureHelp({ helpWidth: 100 }).helpInformation().trimEnd()}\n\`\`\`\n`,
    ...command.commands.flatMap((inner) => chapters(inner, `${path} ${inner.name()}`)),
  ];
  const terminal = { out() {}, note() {}, ask: async () => '', askSecret: async () => '' };
  const [program, synctl] = [createProgram(terminal), createSynctl(terminal)];
  return [
    '# Commands',
    '<!-- Written by `npm run docs` from apps/ctl. -->',
    'Exit codes: 0 done, 1 failed (one line says why), 2 called wrongly.',
    ...chapters(program, program.name()),
    ...chapters(synctl, synctl.name()),
  ].join('\n\n');
}

/** What there is of each kind that a lib may declare, as the sources say. */
function inventory() {
  const files = readdirSync(join(root, 'libs'))
    .filter((name) => name !== 'testing' && existsSync(join(root, 'libs', name, 'src')))
    .flatMap((name) => sources(join(root, 'libs', name, 'src')).map((file) => ({ name, file })))
    .filter(({ file }) => !file.endsWith('.fixture.ts'))
    .map(({ name, file }) => ({ name, text: readFileSync(file, 'utf8') }));
  const found = (pattern, row) =>
    files
      .flatMap(({ name, text }) => [...text.matchAll(pattern)].map((match) => row(name, match, text)))
      .sort((a, b) => (a.join() < b.join() ? -1 : 1));
  const table = (...rows) => rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  const lines = (heads, rows) =>
    table(
      heads,
      heads.map(() => '---'),
      ...rows,
    );
  const kinds = (object = '') => [...object.matchAll(/(\w+): \{/g)].map(([, key]) => key).join(', ');
  const streams = found(/defineStream\(\{\s*name: '(\w+)',([^]*?)\n?\}\);/g, (lib, [, stream, rest]) => [
    stream,
    lib,
    kinds(/keys: \{([^]*)\}/.exec(rest)?.[1]),
    /takenUpTo/.test(rest) ? 'database' : 'memory of its writer',
  ]);
  const nameOf = (text) => /const name = '(\w+)'/.exec(text)?.[1] ?? '?';
  const tasks = found(
    /tasks\s*\.add\(\{\s*(?:\.\.\.\{ )?name(?:: '(\w+)')?, role: '(\w+)'/g,
    (lib, [, task, role], text) => [task ?? nameOf(text), lib, role],
  );
  const caches = [
    ...found(
      /new Cache(?:<[^(]*>)?\([\w.]+, '(\w+)', \{[^}]*?invalidation: '([\w ]+)'(?:,\s*elsewhere: '([\w ]+)')?/g,
      (lib, [, cache, rule, elsewhere = '']) => [cache, lib, rule, elsewhere],
    ),
    // Named by who extends the class that has it.
    ...found(/super\(config, '(\w+)', /g, (lib, [, cache], text) => [
      cache,
      lib,
      /invalidation: '([\w ]+)'/.exec(text)?.[1] ?? '?',
      /elsewhere: '([\w ]+)'/.exec(text)?.[1] ?? '',
    ]),
    // What a stream remembers of its changes.
    ...streams.flatMap(([stream, lib, keys]) =>
      keys
        .split(', ')
        .filter(Boolean)
        .map((key) => [`${stream}_${key}_changes`, lib, `stream ${stream}`, 'told']),
    ),
  ].sort((a, b) => (a[0] < b[0] ? -1 : 1));
  const hooks = [
    ...found(/^ {2}readonly (\w+) = this\.#point<(\w+)>/gm, (lib, [, hook, event]) => [hook, lib, `\`${event}\``]),
    ...found(/export interface (?:Room|Ephemeral)Hook\b[^]*?\n\}/g, (lib, [text]) => [text, lib]).flatMap(
      ([text, lib]) => [...text.matchAll(/^ {2}(\w+)\?\(/gm)].map(([, hook]) => [hook, lib, '']),
    ),
  ].sort((a, b) => (a[1] + a[0] < b[1] + b[0] ? -1 : 1));
  const ports = found(/readonly (\w+) = new Port<([^]+?)>\(\s*'(\w+)',\s*'(\w+)',?\s*\)/g, (lib, match, text) => {
    const [, field, type, port, need] = match;
    const [, owner] = [...text.slice(0, match.index).matchAll(/export (?:abstract )?class (\w+)/g)].at(-1) ?? [];
    return [port, lib, `\`${owner}.${field}\``, `\`${type.replaceAll('|', '\\|')}\``, need];
  });
  const registries = found(
    /^ {2}(serve|addStages?|addFlow|register)\((type: string, )?\w+: (?:\([^)]*\) => )?(Account\w+|Uia\w+|Login\w+|Edu\w+)\b/gm,
    (lib, [, method, type, given], text) => [
      `${/export (?:abstract )?class (\w+)/.exec(text)?.[1]}.${method}`,
      lib,
      `\`${given}\``,
      type === undefined ? '' : 'by type',
    ],
  );
  return [
    '# Inventory',
    '<!-- Written by `npm run docs` from libs. -->',
    'Everything of the kinds that libs declare.',
    '## Streams',
    'Numbered logs of changes, by which keys their changes are remembered, and where their rows are (ADR 0018).',
    lines(['stream', 'lib', 'keys', 'rows'], streams),
    '## Background tasks',
    'Work that is done again and again, and who does it where there are several processes. `GET /_synapse/admin/v1/background_tasks` tells when each ran last.',
    lines(['task', 'lib', 'role'], tasks),
    '## Caches',
    'Sized by `caches.*`, in the metrics `synapse_util_caches_*`. `never`: an entry stays true. `expires`: it is believed for a time. `on write`: who changes it drops it. `stream NAME`: it changes with that stream alone, and is dropped when that moves. What is read while it changes is not kept. Those of modules are called `module_MODULE_NAME`; a module in a thread of its own sizes its own.',
    'In a process beside the one that writes such a cache is `told` (by its name, `Invalidations`, or with the stream; where something may have been missed it is dropped as a whole), or `checked` (an entry is compared with a position that every process knows), or `not kept` (nobody tells, so it stays empty there).',
    lines(['cache', 'lib', 'its entries cease to be true', 'beside the process that writes'], caches),
    '## Hooks',
    'Where higher libs attach to what lower ones do.',
    lines(['hook', 'lib', 'event'], hooks),
    '## Ports',
    'What a lower lib needs and a higher one gives it while the server is put together. A server whose required ports are not filled does not start.',
    lines(['port', 'lib', 'where', 'what is given', ''], ports),
    '## Registries',
    'Where higher libs add one of many.',
    lines(['registry', 'lib', 'what is added', ''], registries),
  ].join('\n\n');
}

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return sources(path);
    return entry.name.endsWith('.ts') && !entry.name.endsWith('.spec.ts') ? [path] : [];
  });
}

process.exit(check && wrong > 0 ? 1 : 0);
