import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { moduleEntriesOf, ModuleDispatcher, placeOfModule, type TracedCall } from '@rookery/module-host';
import { filesAt, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { npmProblem, npmProgram } from '../npm.js';
import type { Terminal } from '../terminal.js';
import { isRunning } from './reload.js';

/** An editor writes a file in several steps, and a build many files. */
const settleMs = 200;
const lookEveryMs = 300;
const maxOutput = 4_000;

/** The folder that an entry of the settings names, as a path or as a package; links are followed, as `module add FOLDER` makes them. */
function folderOf(entry: string, configDir: string): string | undefined {
  const path = entry.split('#', 1)[0]!;
  const places = /^(?:\.{1,2}\/|\/)/.test(path)
    ? [resolve(configDir, path)]
    : ['modules/node_modules', 'node_modules'].map((folder) => join(configDir, folder, path));
  const found = places.find((place) => statSync(place, { throwIfNoEntry: false })?.isDirectory());
  return found && realpathSync(found);
}

/** The folder of a module with a build of its own; `undefined` where its code runs as it is. */
function buildFolderOf(entry: string, configDir: string): string | undefined {
  const folder = folderOf(entry, configDir);
  // What npm installed is not the author's to build.
  if (folder === undefined || folder.split(sep).includes('node_modules')) return undefined;
  const manifest = join(folder, 'package.json');
  if (!existsSync(manifest)) return undefined;
  const { scripts } = JSON.parse(readFileSync(manifest, 'utf8')) as { scripts?: { build?: unknown } };
  return typeof scripts?.build === 'string' ? folder : undefined;
}

/** Runs `npm run build`. @returns what it said where it failed */
function build(folder: string): Promise<string | undefined> {
  return new Promise((done) => {
    const { file, options } = npmProgram(process.execPath);
    const child = spawn(file, ['run', '--silent', 'build'], { cwd: folder, ...options });
    let said = '';
    const hear = (piece: Buffer): void => void (said = (said + piece.toString()).slice(-maxOutput));
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('error', (error) => done(npmProblem(error)));
    child.on('exit', (code) => done(code === 0 ? undefined : said.trim() || `npm run build ended with ${code}`));
  });
}

/**
 * What tells whether a file of a folder was written, made or removed; of a lone file the same. Looked at rather than watched: who
 * watches a folder with all that is below it hears no more of a file that an editor has put in the place of another.
 */
function stateOf(path: string, isIgnored: (name: string) => boolean): string {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found?.isDirectory()) return `${path} ${found?.mtimeMs} ${found?.size}`;
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter(({ name }) => !isIgnored(name))
      .map((entry) => (entry.isSymbolicLink() ? entry.name : stateOf(join(path, entry.name), isUnread)))
      .join('\n');
  } catch {
    // It went away meanwhile.
    return path;
  }
}

const isUnread = (name: string): boolean => name === 'node_modules' || name.startsWith('.');

/** One call of a module as a line. */
export function lineOf(call: TracedCall): string {
  const { askedFor, module, callback, about, outcome, detail, durationMs } = call;
  const parts = [
    askedFor || 'server',
    `${module} ${callback}(${about})`,
    outcome,
    detail,
    `${durationMs.toFixed(1)} ms`,
  ];
  return parts.filter((part) => part !== '').join('  ');
}

/**
 * Runs the server of some settings in this process with one of its modules under the eyes of its author: builds and reloads it
 * when a file of it changes, and says what it did to each request. Ends with `signal`.
 * @param name as the settings name it, or the folder where it lies
 * @throws CommandError when the module is not there, or the server runs already
 */
export async function developModule(
  name: string,
  files: readonly string[],
  terminal: Terminal,
  signal: AbortSignal,
): Promise<void> {
  const config = loadConfig(files);
  const entries = moduleEntriesOf(config);
  const meant = existsSync(name) ? realpathSync(name) : undefined;
  const entry =
    entries.find(({ module }) => module === name) ??
    entries.find(({ module }) => meant !== undefined && folderOf(module, config.configDir) === meant);
  if (!entry)
    throw new CommandError(`The settings list no module ${name}; they list it after: rookery module add ${name}`);
  if (isRunning(files)) throw new CommandError('The server of these settings runs already: stop it first');
  const folder = buildFolderOf(entry.module, config.configDir);
  const built = async (): Promise<boolean> => {
    const problem = folder && (await build(folder));
    if (problem) terminal.note(`It does not build:\n${problem}`);
    return !problem;
  };
  if (!(await built())) throw new CommandError('Correct it, and begin again');
  const { Homeserver } = await import('@rookery/homeserver');
  const server = Homeserver.create(config);
  const unguard = server.guardProcess();
  try {
    await server.start();
    const dispatcher = server.service(ModuleDispatcher);
    const own = async (): Promise<string | undefined> =>
      (await dispatcher.report()).find((report) => report.entry === entry.module)?.name;
    let module = await own();
    dispatcher.traceTo((call) => {
      if (call.module === module) terminal.out(lineOf(call));
    });
    terminal.note(`The server runs with ${name}; changes of its code take effect at once.`);

    const { path: code, root } = placeOfModule(entry, config.configDir);
    // What a build writes is no reason to build.
    const output = folder && relative(folder, code).split(sep)[0];
    const isOutput = (name: string): boolean => isUnread(name) || (name === output && output !== 'src');
    const look = (): string =>
      [
        stateOf(root, isOutput),
        ...files.flatMap((path) => filesAt(path)).map((file) => stateOf(file, isUnread)),
      ].join();
    const wait = (ms: number): Promise<unknown> => pause(ms, undefined, { signal }).catch(() => undefined);
    for (let seen = look(); !signal.aborted; await wait(lookEveryMs)) {
      let now = look();
      if (now === seen) continue;
      // Until nothing changes any more.
      do {
        seen = now;
        await wait(settleMs);
        now = look();
      } while (now !== seen && !signal.aborted);
      if (!(await built())) continue;
      try {
        const { modules } = await server.reload(loadConfig(files));
        module = (await own()) ?? module;
        if (modules.changed.length + modules.added.length > 0) terminal.note(`Reloaded ${module ?? name}.`);
      } catch (error) {
        terminal.note(`The code from before goes on: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  } finally {
    await server.stop();
    unguard();
  }
}
