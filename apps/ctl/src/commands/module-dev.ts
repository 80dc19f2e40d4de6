import { spawn } from 'node:child_process';
import { existsSync, type FSWatcher, readFileSync, realpathSync, statSync, watch } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { moduleEntriesOf, ModuleDispatcher, placeOfModule, type TracedCall } from '@rookery/module-host';
import { filesAt, loadConfig } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { isRunning } from './reload.js';

/** An editor writes a file in several steps, and a build many files. */
const settleMs = 200;
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
    const child = spawn('npm', ['run', '--silent', 'build'], { cwd: folder });
    let said = '';
    const hear = (piece: Buffer): void => void (said = (said + piece.toString()).slice(-maxOutput));
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('error', (error) => done(error.message));
    child.on('exit', (code) => done(code === 0 ? undefined : said.trim() || `npm run build ended with ${code}`));
  });
}

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
  await server.start();
  const watchers: FSWatcher[] = [];
  try {
    const dispatcher = server.service(ModuleDispatcher);
    const own = async (): Promise<string | undefined> =>
      (await dispatcher.report()).find((report) => report.entry === entry.module)?.name;
    let module = await own();
    dispatcher.traceTo((call) => {
      if (call.module === module) terminal.out(lineOf(call));
    });
    terminal.note(`The server runs with ${name}; changes of its code take effect at once.`);

    let changes = 0;
    let isAwake = (): void => {};
    const changed = (): void => {
      changes += 1;
      isAwake();
    };
    const { path: code, root } = placeOfModule(entry, config.configDir);
    // What a build writes is no reason to build.
    const output = folder && relative(folder, code).split(sep)[0];
    const ignored = (path: string): boolean =>
      path.split(sep).some((part) => part === 'node_modules' || part.startsWith('.')) ||
      (output !== undefined && output !== 'src' && path.split(sep)[0] === output);
    const isFolder = statSync(root).isDirectory();
    watchers.push(
      watch(root, { recursive: isFolder }, (_, path) => {
        if (!isFolder || path === null || !ignored(path)) changed();
      }),
    );
    for (const file of files.flatMap((path) => filesAt(path))) watchers.push(watch(file, changed));

    const ended = new Promise<void>((done) => signal.addEventListener('abort', () => done(), { once: true }));
    while (!signal.aborted) {
      const woken = new Promise<void>((done) => (isAwake = done));
      if (changes === 0) await Promise.race([woken, ended]);
      if (signal.aborted) break;
      // Until nothing changes any more.
      do {
        changes = 0;
        await pause(settleMs);
      } while (changes > 0);
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
    for (const watcher of watchers) watcher.close();
    await server.stop();
  }
}
