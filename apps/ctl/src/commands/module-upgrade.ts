import { spawnSync } from 'node:child_process';
import { describeManifest, type ModuleManifest, readManifest } from '@rookery/module-host';
import { fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { ModuleFolder, notRun, withScripts } from './module-folder.js';
import { isRunning, reload, ReloadUnanswered } from './reload.js';

/** How packages are brought up to date. */
export interface Upgrade {
  /** Packages; none: all. */
  readonly names: readonly string[];
  /** Of the settings, as the command was told. */
  readonly paths: readonly string[];
  /** ` -c FILE` as the command was told. */
  readonly option: string;
  /** What new versions want beyond what those before did needs no asking. */
  readonly unasked: boolean;
  /** Whether npm runs the scripts of packages. */
  readonly runsScripts: boolean;
}

/**
 * Brings installed packages to their newest versions. They are looked at before anything changes: what they want to use beyond what
 * they did is asked about, and what the server would not start with is not installed.
 * @throws CommandError
 */
export async function upgradeModules(folder: ModuleFolder, upgrade: Upgrade, terminal: Terminal): Promise<void> {
  const { names, paths, option, unasked, runsScripts } = upgrade;
  const listed = folder.dependencies;
  const unknown = names.filter((name) => !Object.hasOwn(listed, name));
  if (unknown.length > 0) throw new CommandError(`${unknown.join(', ')}: not installed in ${folder.path}`);
  // What came from a folder, a file or an address has no newer version in the registry.
  const wanted = (names.length > 0 ? names : Object.keys(listed)).filter((name) =>
    /^[\^~]?\d/.test(listed[name] ?? ''),
  );
  if (wanted.length === 0) {
    terminal.out('There is nothing to upgrade.');
    return;
  }
  const scripts = runsScripts ? [withScripts] : [];
  await folder.change(
    ['install', '--save', ...scripts, ...wanted.map((name) => `${name}@latest`)],
    async (candidate) => {
      const before = ModuleFolder.versionsIn(folder.path, wanted);
      const after = ModuleFolder.versionsIn(candidate.path, wanted);
      const changed = wanted.filter((name) => before.get(name) !== after.get(name));
      const stays = changed.map((name) => `${name} stays ${before.get(name) ?? 'as it was'}`).join(', ');
      if (changed.length === 0) {
        terminal.out('Everything is as new as can be.');
        return;
      }
      let wantsMore = false;
      for (const name of changed) {
        terminal.out(`${name} ${before.get(name) ?? '?'} -> ${after.get(name) ?? '?'}`);
        const more = newUses(name, folder.path, candidate.path);
        for (const line of more) terminal.out(`       from now on ${line}`);
        wantsMore ||= more.length > 0;
      }
      if (candidate.scripted.length > 0 && !runsScripts)
        terminal.note(notRun(candidate.scripted, `rookery module upgrade ${changed.join(' ')} --run-scripts${option}`));
      // Before any of its code runs.
      if (wantsMore && !unasked && !(await isAgreed(terminal, stays)))
        throw new CommandError(`Nothing has changed: ${stays}`);
      if (startsNotWith(candidate.path, paths))
        throw new CommandError(`The server would not start with these versions: ${stays}`);
      candidate.install();
      if (!isRunning(paths)) {
        terminal.note('A running server takes them over after: rookery reload');
        return;
      }
      try {
        await reload(paths, terminal);
      } catch (error) {
        // It may well run with the new ones: what lies there has to stay.
        if (error instanceof ReloadUnanswered) throw new CommandError(`They are installed. ${error.message}`);
        // It goes on with the code that it has; so it shall after its next start.
        candidate.takeBack();
        throw new CommandError(`The running server did not take them over. ${fileProblem(error)}: ${stays}`);
      }
    },
  );
}

async function isAgreed(terminal: Terminal, stays: string): Promise<boolean> {
  try {
    return /^y(?:es)?$/i.test((await terminal.ask('They use more than before. Install them? yes or no', 'no')).trim());
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    throw new CommandError(
      `They use more than before, and there is nobody to ask; --yes installs them nevertheless: ${stays}`,
    );
  }
}

/** What a package wants to use in a folder, and did not in another one, a line each. */
function newUses(name: string, from: string, to: string): string[] {
  const [before, after] = [manifestIn(from, name), manifestIn(to, name)];
  if (before === undefined) return [];
  if (after === undefined) return ['it does not say what it uses'];
  const added = (Object.keys(after) as (keyof ModuleManifest)[]).map(
    (part) => [part, after[part].filter((one) => !before[part].includes(one))] as const,
  );
  const more = Object.fromEntries(added) as unknown as ModuleManifest;
  return describeManifest(more).filter((_, i) => added[i]![1].length > 0);
}

/** What a package says that it uses; `undefined` where that is nothing, or rubbish, which the check tells of. */
function manifestIn(folder: string, name: string): ModuleManifest | undefined {
  const said = ModuleFolder.manifestIn(folder, name)?.rookery;
  try {
    return said === undefined ? undefined : readManifest(name, said, 'package.json');
  } catch {
    return undefined;
  }
}

/** Whether the server would not start with the packages of a folder. In a process of its own: here code may be loaded already. */
function startsNotWith(folder: string, paths: readonly string[]): boolean {
  const args = ['module', 'check', '--installed-in', folder, ...paths.flatMap((path) => ['-c', path])];
  const all = [...process.execArgv, process.argv[1] ?? '', ...args];
  return spawnSync(process.execPath, all, { stdio: ['ignore', 2, 2], cwd: process.cwd() }).status !== 0;
}
