import { existsSync, statSync } from 'node:fs';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import { type Command, Option } from 'commander';
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
import { askersOf, besideModules, checkModules, type CheckedModule, nameOfModule } from './module-check.js';
import { addModuleEntry, entriesOfPackage, listsModules, moduleEntries, removeModuleEntry } from './module-entries.js';
import { developModule } from './module-dev.js';
import { dependenciesIn, ModuleFolder, notRun, withScripts } from './module-folder.js';
import { isRunning, reload } from './reload.js';
import { describeSettings, schemaOfModule } from './module-schema.js';
import { searchModules, showModuleInfo } from './module-registry.js';
import { suggestModules } from './module-suggest.js';
import { upgradeModules } from './module-upgrade.js';
import { assertWritable } from '../replace-file.js';

interface Options {
  readonly config?: readonly string[];
}

interface CheckOptions extends Options {
  readonly installedIn?: string;
}

interface AddOptions extends Options {
  readonly runScripts?: boolean;
}

interface UpgradeOptions extends AddOptions {
  readonly yes?: boolean;
}

interface RemoveOptions extends Options {
  readonly keepData?: boolean;
  readonly force?: boolean;
}

const defaultFile = 'homeserver.yaml';
const configFlags = '-c, --config <file>';
const scriptFlags = '--run-scripts';
const scriptHelp = 'let npm run what packages want to run when they are installed';

/** `rookery module search|info|suggest|add|reinstall|list|dev|settings|check|upgrade|remove|doctor` */
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
    .description('Brings installed modules to their newest versions, unless the server would not start with them.')
    .argument('[packages...]', 'default: all that were installed with "add"')
    .option(configFlags, configHelp, collect)
    .option('-y, --yes', 'without asking about what new versions use beyond what those before did')
    .option(scriptFlags, scriptHelp)
    .action((names: readonly string[], options: UpgradeOptions) => {
      for (const name of names) assertName(name);
      const paths = pathsOf(options);
      const asked = { unasked: options.yes === true, runsScripts: options.runScripts === true };
      const upgrade = { names, paths, option: optionOf(paths), ...asked };
      return upgradeModules(placesOf(paths).modules, upgrade, terminal);
    });
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
    .option(scriptFlags, scriptHelp)
    .action((name: string, options: AddOptions) => add(name, options, terminal));
  module
    .command('reinstall')
    .description(
      `Installs the packages of the folder "${modulesFolder}" again, in the versions that it notes: after a restored backup.`,
    )
    .option(configFlags, configHelp, collect)
    .option(scriptFlags, scriptHelp)
    .action((options: AddOptions) => reinstall(options, terminal));
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
      process.on('SIGINT', end).on('SIGTERM', end);
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
    .addOption(new Option('--installed-in <folder>', 'with the packages of this folder').hideHelp())
    .action((options: CheckOptions) => besideModules(() => check(pathsOf(options), terminal, options.installedIn)));
  module
    .command('remove')
    .description('Takes a module out of the settings, uninstalls its package and deletes what it stored.')
    .argument('<module>', 'as the settings call it')
    .option(configFlags, configHelp, collect)
    .option('--keep-data', 'leave its documents, jobs and tables in the database')
    .option('--force', 'although other modules or settings need it')
    .action((name: string, options: RemoveOptions) => remove(name, options, terminal));
}

const pathsOf = ({ config }: Options): readonly string[] => config ?? [defaultFile];

/** ` -c FILE` as this command was told, for commands to run next. */
const optionOf = (paths: readonly string[]): string =>
  paths.length === 1 && paths[0] === defaultFile ? '' : settingsOptionOf(paths);

/** The file that says which modules there are, and the folder that they are installed in. */
function placesOf(paths: readonly string[]): { file: string; folder: string; modules: ModuleFolder } {
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
  return { file, folder, modules: new ModuleFolder(join(folder, modulesFolder)) };
}

async function add(name: string, options: AddOptions, terminal: Terminal): Promise<void> {
  const paths = pathsOf(options);
  assertName(name);
  const { file, folder, modules } = placesOf(paths);
  assertWritable(file);
  const runsScripts = options.runScripts === true;
  const code = codeAt(name, folder);
  const { entry, scripted } =
    code === undefined ? await install(name, modules, file, runsScripts) : { entry: code, scripted: [] };
  // An entry may name a part of the package, or one of its modules.
  const before = entriesOfPackage(file, entry);
  const added = before.length === 0 && addModuleEntry(file, entry);
  const listed = before[0] ?? entry;
  terminal.note(added ? `${file} now lists ${listed}.` : `${file} lists ${listed} already.`);
  const checked = (await checkModules(paths)).modules.find((module) => module.entry === listed);
  if (checked) show(checked, terminal);
  if (checked?.url !== undefined) showManifest(listed, checked.url, terminal);
  const option = optionOf(paths);
  if (scripted.length > 0 && !runsScripts)
    terminal.note(notRun(scripted, `rookery module add ${name} ${scriptFlags}${option}`));
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

/** Installs a package. @returns its name, and which packages have come that want npm to run something */
async function install(
  name: string,
  folder: ModuleFolder,
  file: string,
  runsScripts: boolean,
): Promise<{ readonly entry: string; readonly scripted: readonly string[] }> {
  const before = folder.dependencies;
  // Paths mean what they mean where the command was given.
  const wanted = existsSync(name) ? resolve(name) : name;
  const scripts = runsScripts ? [withScripts] : [];
  const installed = await folder.change(['install', '--save', ...scripts, wanted], async (candidate) => {
    const after = dependenciesIn(candidate.path);
    const entry = Object.keys(after).find((key) => after[key] !== before[key]) ?? known(name, folder.path, after);
    candidate.install();
    if (entry === undefined)
      throw new CommandError(`npm installed nothing that could be told apart: list it in ${file} yourself`);
    return { entry, scripted: candidate.scripted };
  });
  // What was there already, without what its scripts make, is nothing that npm would install again.
  const { scripted } = folder;
  if (runsScripts && installed.scripted.length === 0 && scripted.length > 0)
    await folder.apply(['rebuild', withScripts, ...scripted]);
  return installed;
}

async function reinstall(options: AddOptions, terminal: Terminal): Promise<void> {
  const paths = pathsOf(options);
  const { modules } = placesOf(paths);
  const listed = Object.keys(modules.dependencies);
  if (listed.length === 0) {
    terminal.out(`Nothing was added to ${modules.path}.`);
    return;
  }
  const runsScripts = options.runScripts === true;
  await modules.reinstall(runsScripts ? [withScripts] : []);
  for (const [name, version] of ModuleFolder.versionsIn(modules.path, listed)) terminal.out(`${name} ${version}`);
  if (modules.scripted.length > 0 && !runsScripts)
    terminal.note(notRun(modules.scripted, `rookery module reinstall ${scriptFlags}${optionOf(paths)}`));
  await check(paths, terminal);
}

async function check(files: readonly string[], terminal: Terminal, installedIn?: string): Promise<void> {
  const { modules, problems: ofModules } = await checkModules(files, { installedIn });
  // What ends a start whatever modules there are: it is asked of a server that loads none.
  const { startProblems } = await import('@rookery/homeserver');
  const others = (await startProblems(loadConfig(files))).filter(({ level }) => level === 'error');
  const problems = [...ofModules, ...others.map(describeProblem)];
  for (const module of modules) show(module, terminal);
  const names = new Set(modules.map(({ name }) => name));
  for (const { entry, url } of modules) {
    const asked = url === undefined ? [] : (manifestOf(entry, url)?.modules ?? []);
    for (const name of asked.filter((one) => !names.has(one)))
      terminal.out(`warning: ${entry} asks the module ${name}, which the settings do not list`);
  }
  for (const warning of oddEntries(loadConfig(files))) terminal.out(`warning: ${warning}`);
  for (const problem of problems) terminal.out(`FAILED ${problem}`);
  if (modules.length === 0) terminal.out('The settings list no module.');
  if (problems.length > 0 || modules.some(({ problem }) => problem !== undefined))
    throw new CommandError('The server would not start with these modules.');
}

function assertName(name: string): void {
  if (name.trim() === '' || name.startsWith('-')) throw new CommandError(`"${name}" is no package`, 2);
}

async function doctor(paths: readonly string[], terminal: Terminal): Promise<void> {
  const { file, modules } = placesOf(paths);
  terminal.out(`Node.js ${process.versions.node}, @rookery/module-api ${ownApiVersion()}`);
  if (modules.recover()) terminal.out('What an interrupted command had left is tidied away.');
  const listed = Object.keys(modules.dependencies);
  const there = ModuleFolder.versionsIn(modules.path, listed);
  const missing = listed.filter((name) => !there.has(name));
  for (const name of listed.filter((one) => entriesOfPackage(file, one).length === 0))
    terminal.out(
      `warning: ${name} is installed and not listed in ${file}; to uninstall it: rookery module remove ${name}${optionOf(paths)}`,
    );
  for (const name of missing)
    terminal.out(`FAILED ${name} is not installed; to install it again: rookery module reinstall${optionOf(paths)}`);
  await check(paths, terminal);
  if (missing.length > 0) throw new CommandError('Packages of modules are missing.');
}

async function remove(name: string, options: RemoveOptions, terminal: Terminal): Promise<void> {
  const paths = pathsOf(options);
  const { file, modules } = placesOf(paths);
  const listed = moduleEntries(file);
  const used = packageOfModule(name);
  // What was listed when somebody was interrupted here is still installed.
  const isLeft =
    used !== undefined && Object.hasOwn(modules.dependencies, used) && entriesOfPackage(file, used).length === 0;
  if (!listed.includes(name) && !isLeft) {
    const others = listed.length > 0 ? `; it lists: ${listed.join(', ')}` : '';
    throw new CommandError(`${file} lists no module called ${name}${others}`);
  }
  assertWritable(file);
  // While it is still installed, the module can say what it is called.
  const own = options.keepData === true ? undefined : await nameOfModule(paths, name);
  if (options.force !== true) await assertUnneeded(name, own, paths);
  const isRun = isRunning(paths);
  const removed = removeModuleEntry(file, name);
  if (removed) terminal.note(`${file} does not list ${name} any more.`);
  // A server that has it still needs its code, and writes what it stores.
  if (isRun) await endInServer(name, paths, terminal);
  else if (removed) terminal.note('A running server ends it after: rookery reload');
  if (used !== undefined && entriesOfPackage(file, used).length === 0) {
    if (Object.hasOwn(modules.dependencies, used)) await modules.apply(['uninstall', '--save', used]);
  }
  if (options.keepData === true) return;
  if (own === undefined) {
    terminal.note('The module does not load, so it cannot be told what it stored: nothing was deleted.');
  } else if (moduleEntries(file).includes(name)) {
    terminal.note('It is listed a second time: nothing was deleted.');
  } else await forget(own, paths, terminal);
}

/** @throws CommandError when the running server may still have it */
async function endInServer(name: string, paths: readonly string[], terminal: Terminal): Promise<void> {
  try {
    await reload(paths, terminal);
  } catch (error) {
    throw new CommandError(
      `The running server may still have ${name}: its package and what it stored stay. ${(error as Error).message}\n` +
        `When that is mended: rookery module add and remove ${name} again`,
    );
  }
}

/** @throws CommandError when other modules, or other settings, need a module @param own what it calls itself, if that is known */
async function assertUnneeded(name: string, own: string | undefined, paths: readonly string[]): Promise<void> {
  const anyway = `; to remove it all the same: rookery module remove ${name} --force${optionOf(paths)}`;
  const askers = own === undefined ? [] : askersOf(paths, own).filter((module) => module !== name);
  if (askers.length > 0) throw new CommandError(`${askers.join(', ')} asks ${name}: remove that first${anyway}`);
  const { problems } = await checkModules(paths, { without: name });
  const known = problems.length === 0 ? problems : (await checkModules(paths)).problems;
  const [problem] = problems.filter((one) => !known.includes(one));
  if (problem !== undefined)
    throw new CommandError(`The server would not start without ${name}: ${problem}; change that first${anyway}`);
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
