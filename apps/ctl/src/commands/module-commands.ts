import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { modulesFolder } from '@rookery/module-host';
import { loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { collect } from './common.js';
import { checkModules, type CheckedModule } from './module-check.js';
import { addModuleEntry, removeModuleEntry } from './module-entries.js';

interface FilesOptions {
  readonly config: readonly string[];
}
interface FileOptions {
  readonly config: string;
}

interface RemoveOptions extends FileOptions {
  readonly keepData?: boolean;
}

const defaultFile = 'homeserver.yaml';

/** `rookery module add|list|check|remove` */
export function registerModuleCommands(program: Command, terminal: Terminal): void {
  const module = program.command('module').description('Installs modules and looks at those of the settings.');
  module
    .command('add')
    .description(`Installs a module into the folder "${modulesFolder}" beside the settings file, and lists it there.`)
    .argument('<package>', 'what npm can install: a name, name@version, a tarball, a folder, a URL')
    .option('-c, --config <file>', 'settings file', defaultFile)
    .action((name: string, options: FileOptions) => add(name, options, terminal));
  module
    .command('list')
    .description('Shows the modules of the settings and what they register.')
    .option('-c, --config <file>', 'settings file or folder; may be given several times', collect)
    .action(async (options: Partial<FilesOptions>) => {
      for (const checked of await checkModules(options.config ?? [defaultFile])) show(checked, terminal);
    });
  module
    .command('check')
    .description('Loads the modules with their settings, without starting the server. What needs one is not tried.')
    .option('-c, --config <file>', 'settings file or folder; may be given several times', collect)
    .action(async (options: Partial<FilesOptions>) => check(options.config ?? [defaultFile], terminal));
  module
    .command('remove')
    .description('Takes a module out of the settings, uninstalls its package and deletes what it stored.')
    .argument('<module>', 'as the settings call it')
    .option('-c, --config <file>', 'settings file', defaultFile)
    .option('--keep-data', 'leave its documents, jobs and tables in the database')
    .action((name: string, options: RemoveOptions) => remove(name, options, terminal));
}

async function add(name: string, { config: file }: FileOptions, terminal: Terminal): Promise<void> {
  if (!existsSync(file)) throw new CommandError(`There is no ${file}; -c names the settings file`);
  if (name.startsWith('-')) throw new CommandError(`${name} is no package`, 2);
  const folder = join(dirname(resolve(file)), modulesFolder);
  const manifest = join(folder, 'package.json');
  if (!existsSync(manifest)) {
    mkdirSync(folder, { recursive: true });
    writeFileSync(manifest, `${JSON.stringify({ private: true, dependencies: {} }, null, 2)}\n`);
  }
  const before = dependencies(manifest);
  // Paths mean what they mean where the command was given.
  npm(folder, ['install', '--save', existsSync(name) ? resolve(name) : name]);
  const after = dependencies(manifest);
  const installed = Object.keys(after).find((key) => after[key] !== before[key]) ?? known(name, folder, after);
  if (installed === undefined)
    throw new CommandError(`npm installed nothing that could be told apart: list it in ${file} yourself`);
  const added = addModuleEntry(file, installed);
  terminal.note(added ? `${file} now lists ${installed}.` : `${file} lists ${installed} already.`);
  const checked = (await checkModules([file])).find((module) => module.entry === installed);
  if (checked) show(checked, terminal);
  if (checked?.problem !== undefined) {
    throw new CommandError(
      `${installed} is installed, but does not load yet: correct its entry, then run: rookery module check -c ${file}`,
    );
  }
}

async function check(files: readonly string[], terminal: Terminal): Promise<void> {
  const modules = await checkModules(files);
  for (const module of modules) show(module, terminal);
  if (modules.length === 0) terminal.out('The settings list no module.');
  if (modules.some(({ problem }) => problem !== undefined))
    throw new CommandError('The server would not start with these modules.');
}

async function remove(name: string, { config: file, keepData }: RemoveOptions, terminal: Terminal): Promise<void> {
  if (!existsSync(file)) throw new CommandError(`There is no ${file}; -c names the settings file`);
  // While it is still installed, the module can say what it is called.
  const own =
    keepData === true ? undefined : (await checkModules([file])).find((module) => module.entry === name)?.name;
  if (!removeModuleEntry(file, name)) throw new CommandError(`${file} lists no module called ${name}`);
  terminal.note(`${file} does not list ${name} any more.`);
  const folder = join(dirname(resolve(file)), modulesFolder);
  const manifest = join(folder, 'package.json');
  if (existsSync(manifest) && Object.hasOwn(dependencies(manifest), name)) npm(folder, ['uninstall', '--save', name]);
  if (keepData === true) return;
  if (own === undefined) {
    terminal.note('The module does not load, so it cannot be told what it stored: nothing was deleted.');
    return;
  }
  await forget(own, file, terminal);
}

/** Deletes what a module stored; the entry is gone already, so a database out of reach is no reason to fail half-way. */
async function forget(name: string, file: string, terminal: Terminal): Promise<void> {
  const { forgetModule } = await import('@rookery/homeserver');
  const again = `its data stays; when the database can be reached: rookery module add and remove ${name} again`;
  try {
    const documents = await forgetModule(loadConfig([file]), name);
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

function dependencies(manifest: string): Readonly<Record<string, string>> {
  const parsed = JSON.parse(readFileSync(manifest, 'utf8')) as { dependencies?: Record<string, string> };
  return parsed.dependencies ?? {};
}

/** The package that a path or a name, perhaps with a version, means, when it was there before. */
function known(name: string, folder: string, installed: Readonly<Record<string, string>>): string | undefined {
  const same = ([, from]: [string, string]): boolean =>
    from.startsWith('file:') && resolve(folder, from.slice('file:'.length)) === resolve(name);
  const byPath = Object.entries(installed).find(same)?.[0];
  if (byPath !== undefined) return byPath;
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
