// `npm run docs`: writes the documents that follow from the sources. `--check` changes nothing and fails when one is stale,
// or when the list of settings without effect does not agree with what the sources read; `--adopt` rewrites that list after
// them (look at the difference: read is not yet working). Needs no build.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { projectNode, root } from './lib.mjs';

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

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return sources(path);
    return entry.name.endsWith('.ts') && !entry.name.endsWith('.spec.ts') ? [path] : [];
  });
}

process.exit(check && wrong > 0 ? 1 : 0);
