import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import type { Command } from 'commander';
import {
  describeManifest,
  manifestOf,
  modulesFolder,
  ownApiVersion,
  packageOfModule,
  settingsOptionOf,
} from '@rookery/module-host';
import { describeProblem, fileProblem, filesAt, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect, configHelp, oddEntries } from './common.js';
import { besideModules, checkModules, type CheckedModule, nameOfModule } from './module-check.js';
import { addModuleEntry, entriesOfPackage, listsModules, moduleEntries, removeModuleEntry } from './module-entries.js';
import { developModule } from './module-dev.js';
import { describeSettings, schemaOfModule } from './module-schema.js';
import { searchModules, showModuleInfo } from './module-registry.js';
import { suggestModules } from './module-suggest.js';
import { isRunning, reload } from './reload.js';
import { assertWritable } from '../replace-file.js';

interface Options {
  readonly config?: readonly string[];
}

interface RemoveOptions extends Options {
  readonly keepData?: boolean;
}

const defaultFile = 'homeserver.yaml';
const configFlags = '-c, --config <file>';

/** `rookery module search|info|suggest|add|list|dev|settings|check|upgrade|remove|doctor` */
export function registerModuleCommands(program: Command, terminal: Terminal): void {
  const module = program.command('module').description('Installs modules and looks at those of the settings.');
  module
    .command('search')
    .description('Looks for modules in the package registry.')
    .argument('[words...]', 'of their names and descriptions')
    .action((words: readonly string[]) => searchModules(words, terminal));
  module
    .command('info')
    .description('Shows what a package is, and whether this server loads it.')
    .argument('<package>', 'a name, or name@version')
    .action((name: string) => {
      assertName(name);
      showModuleInfo(name, terminal);
    });
  module
    .command('upgrade')
    .description('Brings installed modules to their newest versions; one that does not load afterwards goes back.')
    .argument('[packages...]', 'default: all that were installed with "add"')
    .option(configFlags, configHelp, collect)
    .action((names: readonly string[], options: Options) => upgrade(names, pathsOf(options), terminal));
  module
    .command('doctor')
    .description('Says what is installed and missing, and what is wrong with the modules.')
    .option(configFlags, configHelp, collect)
    .action((options: Options) => doctor(pathsOf(options), terminal));
  module
    .command('suggest')
    .description(
      'Says which packages take the place of the Python modules that settings name, and with which settings.',
    )
    .option(configFlags, configHelp, collect)
    .action((options: Options) => {
      for (const path of pathsOf(options)) for (const file of filesAt(path)) suggestModules(file, terminal);
    });
  module
    .command('add')
    .description(`Installs a module into the folder "${modulesFolder}" beside the settings file, and lists it there.`)
    .argument('<package>', 'what npm can install: a name, name@version, a tarball, a folder, a URL; or a file of code')
    .option(configFlags, configHelp, collect)
    .action((name: string, options: Options) => add(name, pathsOf(options), terminal));
  module
    .command('list')
    .description('Shows the modules of the settings and what they register.')
    .option(configFlags, configHelp, collect)
    .action(async (options: Options) => {
      for (const checked of (await checkModules(pathsOf(options))).modules) show(checked, terminal);
    });
  module
    .command('dev')
    .description(
      'Runs the server of the settings here, builds and reloads a module when it changes, and shows what it does.',
    )
    .argument('<module>', 'as the settings call it')
    .option(configFlags, configHelp, collect)
    .action(async (entry: string, options: Options) => {
      const ending = new AbortController();
      const end = (): void => ending.abort();
      process.once('SIGINT', end).once('SIGTERM', end);
      try {
        await developModule(entry, pathsOf(options), terminal, ending.signal);
      } finally {
        process.off('SIGINT', end).off('SIGTERM', end);
      }
    });
  module
    .command('settings')
    .description('Says what the config of a module of the settings may hold, as far as the module says.')
    .argument('<module>', 'as the settings call it')
    .option('--json', 'as JSON Schema')
    .option(configFlags, configHelp, collect)
    .action(async (entry: string, options: Options & { readonly json?: boolean }) => {
      const schema = await schemaOfModule(pathsOf(options), entry);
      terminal.out(options.json ? JSON.stringify(schema, null, 2) : describeSettings(schema));
    });
  module
    .command('check')
    .description('Loads the modules with their settings, without starting the server. What needs one is not tried.')
    .option(configFlags, configHelp, collect)
    .action((options: Options) => besideModules(() => check(pathsOf(options), terminal)));
  module
    .command('remove')
    .description('Takes a module out of the settings, uninstalls its package and deletes what it stored.')
    .argument('<module>', 'as the settings call it')
    .option(configFlags, configHelp, collect)
    .option('--keep-data', 'leave its documents, jobs and tables in the database')
    .action((name: string, options: RemoveOptions) => remove(name, options, terminal));
}

const pathsOf = ({ config }: Options): readonly string[] => config ?? [defaultFile];

/** ` -c FILE` as this command was told, for commands to run next. */
const optionOf = (paths: readonly string[]): string =>
  paths.length === 1 && paths[0] === defaultFile ? '' : settingsOptionOf(paths);

/** The file that says which modules there are, and the folder that they are installed in. */
function placesOf(paths: readonly string[]): { file: string; folder: string; modules: string } {
  let files: string[];
  try {
    files = paths.flatMap((path) => filesAt(path));
  } catch (error) {
    throw new CommandError(`${paths.join(', ')}: ${fileProblem(error)}; -c names the settings`);
  }
  // Later files win; where none lists modules yet, the first one begins.
  const file = files.findLast((path) => listsModules(path)) ?? files[0];
  if (file === undefined) throw new CommandError(`${paths.join(', ')}: there are no *.yaml files`);
  const folder = loadConfig(paths).configDir;
  return { file, folder, modules: join(folder, modulesFolder) };
}

async function add(name: string, paths: readonly string[], terminal: Terminal): Promise<void> {
  assertName(name);
  const { file, folder, modules } = placesOf(paths);
  assertWritable(file);
  const entry = codeAt(name, folder) ?? install(name, modules, file);
  // An entry may name a part of the package, or one of its modules.
  const before = entriesOfPackage(file, entry);
  const added = before.length === 0 && addModuleEntry(file, entry);
  const listed = before[0] ?? entry;
  terminal.note(added ? `${file} now lists ${listed}.` : `${file} lists ${listed} already.`);
  const checked = (await checkModules(paths)).modules.find((module) => module.entry === listed);
  if (checked) show(checked, terminal);
  if (checked?.url !== undefined) showManifest(listed, checked.url, terminal);
  const option = optionOf(paths);
  if (checked?.problem !== undefined) {
    throw new CommandError(
      `The server will not start before ${listed} loads. Correct its entry in ${file}, then run: rookery module check${option}\n` +
        `To do without it: rookery module remove ${listed}${option}`,
    );
  }
  terminal.note('A running server takes it over after: rookery reload');
}

/** How an entry names code that needs no installing: a file, or a folder that is no package. */
function codeAt(name: string, configDir: string): string | undefined {
  const found = statSync(name, { throwIfNoEntry: false });
  const isCode = found?.isDirectory() === true ? !existsSync(join(name, 'package.json')) : /\.[cm]?[jt]s$/.test(name);
  if (!found || !isCode) return undefined;
  const path = relative(configDir, resolve(name)).split(sep).join('/');
  return path.startsWith('../') || isAbsolute(path) ? path : `./${path}`;
}

/** Installs a package. @returns its name */
function install(name: string, folder: string, file: string): string {
  const manifest = join(folder, 'package.json');
  if (!existsSync(manifest)) {
    try {
      mkdirSync(folder, { recursive: true });
      writeFileSync(manifest, `${JSON.stringify({ private: true, dependencies: {} }, null, 2)}\n`);
    } catch (error) {
      throw new CommandError(`${folder} cannot be written: ${fileProblem(error)}`);
    }
  }
  const before = dependencies(manifest);
  // Paths mean what they mean where the command was given.
  npm(folder, ['install', '--save', existsSync(name) ? resolve(name) : name]);
  const after = dependencies(manifest);
  const installed = Object.keys(after).find((key) => after[key] !== before[key]) ?? known(name, folder, after);
  if (installed === undefined)
    throw new CommandError(`npm installed nothing that could be told apart: list it in ${file} yourself`);
  return installed;
}

async function check(files: readonly string[], terminal: Terminal): Promise<void> {
  const { modules, problems: ofModules } = await checkModules(files);
  // What ends a start whatever modules there are: it is asked of a server that loads none.
  const { startProblems } = await import('@rookery/homeserver');
  const others = (await startProblems(loadConfig(files))).filter(({ level }) => level === 'error');
  const problems = [...ofModules, ...others.map(describeProblem)];
  for (const module of modules) show(module, terminal);
  for (const warning of oddEntries(loadConfig(files))) terminal.out(`warning: ${warning}`);
  for (const problem of problems) terminal.out(`FAILED ${problem}`);
  if (modules.length === 0) terminal.out('The settings list no module.');
  if (problems.length > 0 || modules.some(({ problem }) => problem !== undefined))
    throw new CommandError('The server would not start with these modules.');
}

function assertName(name: string): void {
  if (name.trim() === '' || name.startsWith('-')) throw new CommandError(`"${name}" is no package`, 2);
}

/** Versions of what is installed, by name. */
function installedVersions(folder: string, names: readonly string[]): Map<string, string> {
  const versions = new Map<string, string>();
  for (const name of names) {
    const manifest = join(folder, 'node_modules', name, 'package.json');
    if (!existsSync(manifest)) continue;
    const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version?: unknown };
    if (typeof version === 'string') versions.set(name, version);
  }
  return versions;
}

async function upgrade(names: readonly string[], paths: readonly string[], terminal: Terminal): Promise<void> {
  const { modules } = placesOf(paths);
  for (const name of names) assertName(name);
  const manifest = join(modules, 'package.json');
  const listed = existsSync(manifest) ? dependencies(manifest) : {};
  const unknown = names.filter((name) => !Object.hasOwn(listed, name));
  if (unknown.length > 0) throw new CommandError(`${unknown.join(', ')}: not installed in ${modules}`);
  // What came from a folder, a file or an address has no newer version in the registry.
  const wanted = (names.length > 0 ? names : Object.keys(listed)).filter((name) =>
    /^[\^~]?\d/.test(listed[name] ?? ''),
  );
  if (wanted.length === 0) {
    terminal.out('There is nothing to upgrade.');
    return;
  }
  const problemsNow = (): number => {
    // In a process of its own: here the code of the former version is loaded already.
    const args = [process.argv[1] ?? '', 'module', 'check', ...paths.flatMap((path) => ['-c', path])];
    return (
      spawnSync(process.execPath, [...process.execArgv, ...args], { stdio: ['ignore', 2, 2], cwd: process.cwd() })
        .status ?? 1
    );
  };
  const before = installedVersions(modules, wanted);
  npm(modules, ['install', '--save', ...wanted.map((name) => `${name}@latest`)]);
  const after = installedVersions(modules, wanted);
  const changed = wanted.filter((name) => before.get(name) !== after.get(name));
  for (const name of changed) terminal.out(`${name} ${before.get(name) ?? '?'} -> ${after.get(name) ?? '?'}`);
  if (changed.length === 0) {
    terminal.out('Everything is as new as can be.');
    return;
  }
  const goBack = (problem: string): never => {
    npm(modules, ['install', '--save', ...changed.map((name) => `${name}@${before.get(name) ?? 'latest'}`)]);
    const again = changed.map((name) => `${name} is ${before.get(name) ?? '?'} again`).join(', ');
    throw new CommandError(`${problem}: ${again}`);
  };
  if (problemsNow() !== 0) goBack('The server would not start with these versions');
  if (!isRunning(paths)) {
    terminal.note('A running server takes them over after: rookery reload');
    return;
  }
  try {
    await reload(paths, terminal);
  } catch (error) {
    // It goes on with the code that it has; so it shall after its next start.
    goBack(`The running server did not take them over. ${fileProblem(error)}`);
  }
}

async function doctor(paths: readonly string[], terminal: Terminal): Promise<void> {
  const { modules } = placesOf(paths);
  terminal.out(`Node.js ${process.versions.node}, @rookery/module-api ${ownApiVersion()}`);
  const manifest = join(modules, 'package.json');
  const listed = existsSync(manifest) ? Object.keys(dependencies(manifest)) : [];
  const there = installedVersions(modules, listed);
  const missing = listed.filter((name) => !there.has(name));
  for (const name of missing) terminal.out(`FAILED ${name} is not installed; run npm install in ${modules}`);
  await check(paths, terminal);
  if (missing.length > 0) throw new CommandError('Packages of modules are missing.');
}

async function remove(name: string, options: RemoveOptions, terminal: Terminal): Promise<void> {
  const paths = pathsOf(options);
  const { file, modules } = placesOf(paths);
  const listed = moduleEntries(file);
  if (!listed.includes(name)) {
    const others = listed.length > 0 ? `; it lists: ${listed.join(', ')}` : '';
    throw new CommandError(`${file} lists no module called ${name}${others}`);
  }
  assertWritable(file);
  // While it is still installed, the module can say what it is called.
  const own = options.keepData === true ? undefined : await nameOfModule(paths, name);
  removeModuleEntry(file, name);
  terminal.note(`${file} does not list ${name} any more. A running server ends it after: rookery reload`);
  const used = packageOfModule(name);
  if (used !== undefined && entriesOfPackage(file, used).length === 0) {
    const manifest = join(modules, 'package.json');
    if (existsSync(manifest) && Object.hasOwn(dependencies(manifest), used))
      npm(modules, ['uninstall', '--save', used]);
  }
  if (options.keepData === true) return;
  if (own === undefined) {
    terminal.note('The module does not load, so it cannot be told what it stored: nothing was deleted.');
  } else if (moduleEntries(file).includes(name)) {
    terminal.note('It is listed a second time: nothing was deleted.');
  } else await forget(own, paths, terminal);
}

/** Deletes what a module stored; the entry is gone already, so a database out of reach is no reason to fail half-way. */
async function forget(name: string, paths: readonly string[], terminal: Terminal): Promise<void> {
  const { forgetModule } = await import('@rookery/homeserver');
  const again = `its data stays; when the database can be reached: rookery module add and remove ${name} again`;
  try {
    const documents = await forgetModule(loadConfig(paths), name);
    terminal.note(
      documents === undefined ? 'It had stored nothing.' : `What ${name} stored is deleted (${documents} documents).`,
    );
  } catch (error) {
    throw new CommandError(`${(error as Error).message}; ${again}`);
  }
}

function show(
  { entry, name, apiVersion, url, callbacks, paths, warnings, problem }: CheckedModule,
  terminal: Terminal,
): void {
  terminal.out(
    `${problem === undefined ? 'ok    ' : 'FAILED'} ${name === undefined || name === entry ? entry : `${name} (${entry})`}`,
  );
  if (problem !== undefined) terminal.out(`       ${problem}`);
  if (apiVersion !== undefined && url !== undefined) terminal.out(`       module API ${apiVersion}, ${url}`);
  if (callbacks.length > 0) terminal.out(`       callbacks: ${callbacks.join(', ')}`);
  if (paths.length > 0) terminal.out(`       paths: ${paths.join(', ')}`);
  for (const warning of warnings) terminal.out(`       warning: ${warning}`);
}

/** What a package says that it uses. */
function showManifest(module: string, url: string, terminal: Terminal): void {
  const manifest = manifestOf(module, url);
  if (!manifest) {
    terminal.out('       It does not say what it uses (the field rookery of its package.json).');
    return;
  }
  for (const line of describeManifest(manifest)) terminal.out(`       ${line}`);
}

function dependencies(manifest: string): Readonly<Record<string, string>> {
  try {
    const parsed = JSON.parse(readFileSync(manifest, 'utf8')) as { dependencies?: Record<string, string> };
    return parsed.dependencies ?? {};
  } catch (error) {
    throw new CommandError(`${manifest} cannot be read: ${fileProblem(error)}`);
  }
}

/** The package that a path or a name, perhaps with a version, means, when it was there before. */
function known(name: string, folder: string, installed: Readonly<Record<string, string>>): string | undefined {
  const same = ([, from]: [string, string]): boolean =>
    from.startsWith('file:') && resolve(folder, from.slice('file:'.length)) === resolve(name);
  const byPath = Object.entries(installed).find(same)?.[0];
  if (byPath !== undefined) return byPath;
  const bySource = Object.entries(installed).find(([, from]) => from === name || from === `github:${name}`)?.[0];
  if (bySource !== undefined) return bySource;
  const bare = /^(@?[^@]+)(@.*)?$/.exec(name)?.[1];
  return bare !== undefined && Object.hasOwn(installed, bare) ? bare : undefined;
}

function npm(folder: string, args: readonly string[]): void {
  const windows = process.platform === 'win32';
  // The server lends modules its own copy of the module API, so peers need not be installed.
  const all = [...args, '--no-audit', '--no-fund', '--legacy-peer-deps', '--loglevel=error'];
  const { status, error } = spawnSync(windows ? 'npm.cmd' : 'npm', all, {
    cwd: folder,
    stdio: ['ignore', 2, 2],
    shell: windows,
  });
  if (error) throw new CommandError(`npm cannot be started: ${error.message}`);
  if (status !== 0) throw new CommandError(`npm ${args.join(' ')} failed in ${folder}`);
}
