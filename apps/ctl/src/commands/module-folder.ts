import {
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { formerModulesFolder } from '@rookery/module-host';
import { fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import { runNpm } from '../npm.js';

/** Nothing can be put beside the folder, or take its place: it is mounted, or what it lies in belongs to somebody else. */
const onlyInPlace = new Set(['EACCES', 'EPERM', 'EROFS', 'EBUSY', 'EXDEV']);
const isOnlyInPlace = (error: unknown): boolean => onlyInPlace.has((error as NodeJS.ErrnoException).code ?? '');

/** Among what npm is told: to run the scripts of packages, which it leaves alone otherwise, and to show what they print. */
export const withScripts = '--foreground-scripts';

/** A package.json, as far as it is looked at. */
export type PackageJson = Readonly<Record<string, unknown>> & {
  readonly version?: unknown;
  readonly rookery?: unknown;
};

/** What npm notes of a package that it has installed; of a link, where that leads. */
interface LockedPackage {
  readonly version?: string;
  readonly hasInstallScript?: boolean;
  readonly link?: boolean;
  readonly resolved?: string;
}

/** Another set of packages than the one that is installed. */
export interface Candidate {
  /** Where it lies. */
  readonly path: string;
  /** Packages that are not installed yet, or in another version, and want npm to run something when they are; with their versions. */
  readonly scripted: readonly string[];
  /** Puts it in the place of what is installed. What was there comes back by {@link takeBack}. */
  install(): void;
  takeBack(): void;
}

/** A candidate that npm has put together, and what takes it away again. */
interface Placed {
  readonly candidate: Omit<Candidate, 'scripted'>;
  readonly discard: () => void;
}

/**
 * The folder that modules are installed in. What it holds is replaced as a whole, at once: whoever is ended in the middle, and
 * a server that starts meanwhile, finds the packages of before, or the new ones.
 */
export class ModuleFolder {
  constructor(readonly path: string) {}

  /** What was added to it, with the versions or places. @throws CommandError */
  get dependencies(): Readonly<Record<string, string>> {
    return dependenciesIn(this.path);
  }

  /** Packages in it that have scripts for npm to run when it installs them, with their versions. */
  get scripted(): readonly string[] {
    return scriptedIn(this.path);
  }

  /** The package.json of a package in a folder like this one; `undefined` where it is not there or cannot be read. */
  static manifestIn(folder: string, name: string): PackageJson | undefined {
    try {
      return JSON.parse(readFileSync(join(folder, 'node_modules', name, 'package.json'), 'utf8')) as PackageJson;
    } catch {
      return undefined;
    }
  }

  /** Versions of what is installed in a folder like this one, by name. */
  static versionsIn(folder: string, names: readonly string[]): Map<string, string> {
    const versions = new Map<string, string>();
    for (const name of names) {
      const version = ModuleFolder.manifestIn(folder, name)?.version;
      if (typeof version === 'string') versions.set(name, version);
    }
    return versions;
  }

  /**
   * Puts together another set of packages by npm, and lets somebody look at it, who installs it or does not. Nobody else changes
   * the folder meanwhile.
   * @throws CommandError when npm fails, or another command is at it; nothing has changed then
   */
  async change<T>(npmArguments: readonly string[], use: (candidate: Candidate) => Promise<T>): Promise<T> {
    const release = this.#lock();
    try {
      this.#tidy();
      const before = this.scripted;
      const { candidate, discard } = this.#beside(npmArguments) ?? this.#inPlace(npmArguments);
      const scripted = scriptedIn(candidate.path).filter((one) => !before.includes(one));
      try {
        return await use({ ...candidate, scripted });
      } finally {
        discard();
      }
    } finally {
      release();
    }
  }

  /** Changes it without looking at what came of it. @returns what `read` reads from it @throws CommandError */
  apply(npmArguments: readonly string[]): Promise<void> {
    return this.change(npmArguments, async (candidate) => candidate.install());
  }

  /** Installs what was added once more, in the versions that were noted. @throws CommandError */
  reinstall(more: readonly string[]): Promise<void> {
    const isNoted = existsSync(join(this.path, 'package-lock.json'));
    return this.apply([isNoted ? 'ci' : 'install', ...more]);
  }

  /** Puts back what an interrupted change took away. @returns whether there was one */
  recover(): boolean {
    const isLeft = this.#leftovers().length > 0 || existsSync(this.#former);
    if (!isLeft) return false;
    const release = this.#lock();
    try {
      this.#tidy();
    } finally {
      release();
    }
    return true;
  }

  get #former(): string {
    return join(dirname(this.path), formerModulesFolder);
  }

  get #prefix(): string {
    return `${basename(this.path)}.next-`;
  }

  #leftovers(): string[] {
    const folder = dirname(this.path);
    return readdirSync(folder)
      .filter((name) => name.startsWith(this.#prefix))
      .map((name) => join(folder, name));
  }

  #tidy(): void {
    if (!existsSync(this.path) && existsSync(this.#former)) renameSync(this.#former, this.path);
    for (const path of [this.#former, ...this.#leftovers()]) remove(path);
  }

  /** @throws CommandError while another process has it */
  #lock(): () => void {
    const path = `${this.path}.lock`;
    for (let attempt = 1; ; attempt++) {
      try {
        writeFileSync(path, String(process.pid), { flag: 'wx' });
        return () => rmSync(path, { force: true });
      } catch (error) {
        // Who may write nothing beside it works in place.
        if (isOnlyInPlace(error)) return () => {};
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || attempt > 2)
          throw new CommandError(`${path} cannot be written: ${fileProblem(error)}`);
        const holder = Number(readFileSync(path, 'utf8'));
        if (isAlive(holder))
          throw new CommandError(
            `The process ${holder} is changing what is installed in ${this.path}; wait for it (where that is something else, delete ${path})`,
          );
        rmSync(path, { force: true });
      }
    }
  }

  /** A copy in which npm works. `undefined` where there can be none. */
  #beside(npmArguments: readonly string[]): Placed | undefined {
    // As deep as the folder itself: npm writes paths to packages that lie elsewhere as they lead from there. A name of its own, since
    // the npm of a command that was killed may still be at work.
    const next = join(dirname(this.path), `${this.#prefix}${process.pid}`);
    try {
      copy(this.path, next);
      begin(next);
    } catch (error) {
      remove(next);
      if (!isOnlyInPlace(error)) throw new CommandError(`${next} cannot be written: ${fileProblem(error)}`);
      return undefined;
    }
    const discard = (): void => remove(next);
    try {
      npm(next, npmArguments);
    } catch (error) {
      discard();
      throw error;
    }
    let isInstalled = false;
    const candidate: Placed['candidate'] = {
      path: next,
      install: () => {
        isInstalled = this.#swap(next);
        if (!isInstalled) npm(this.path, npmArguments);
      },
      takeBack: () => {
        if (!isInstalled) return;
        const refused = `${next}-refused`;
        renameSync(this.path, refused);
        if (existsSync(this.#former)) renameSync(this.#former, this.path);
        remove(refused);
      },
    };
    return {
      candidate,
      discard: () => {
        discard();
        if (existsSync(this.path)) remove(this.#former);
      },
    };
  }

  /** Whether a folder has taken the place of this one: not where it is mounted. */
  #swap(next: string): boolean {
    try {
      if (existsSync(this.path)) renameSync(this.path, this.#former);
    } catch (error) {
      if (isOnlyInPlace(error)) return false;
      throw error;
    }
    renameSync(next, this.path);
    return true;
  }

  /** Where npm has to work in the folder itself: with a copy elsewhere, for the way back. */
  #inPlace(npmArguments: readonly string[]): Placed {
    const kept = mkdtempSync(join(tmpdir(), 'rookery-modules-'));
    const takeBack = (): void => {
      for (const name of readdirSync(this.path)) remove(join(this.path, name));
      copy(kept, this.path);
    };
    let isInstalled = false;
    try {
      copy(this.path, kept);
      begin(this.path);
    } catch (error) {
      remove(kept);
      throw new CommandError(`${this.path} cannot be written: ${fileProblem(error)}`);
    }
    const undo = (): void => {
      if (!isInstalled) takeBack();
      remove(kept);
    };
    try {
      npm(this.path, npmArguments);
    } catch (error) {
      undo();
      throw error;
    }
    return { candidate: { path: this.path, install: () => void (isInstalled = true), takeBack }, discard: undo };
  }
}

/** What was added to a folder, with the versions or places. @throws CommandError */
export function dependenciesIn(folder: string): Readonly<Record<string, string>> {
  const path = join(folder, 'package.json');
  if (!existsSync(path)) return {};
  try {
    return (JSON.parse(readFileSync(path, 'utf8')) as { dependencies?: Record<string, string> }).dependencies ?? {};
  } catch (error) {
    throw new CommandError(`${path} cannot be read: ${fileProblem(error)}`);
  }
}

function scriptedIn(folder: string): string[] {
  let packages: Readonly<Record<string, LockedPackage>>;
  try {
    const lock = readFileSync(join(folder, 'node_modules', '.package-lock.json'), 'utf8');
    packages = (JSON.parse(lock) as { packages?: typeof packages }).packages ?? {};
  } catch {
    return [];
  }
  const inside = 'node_modules/';
  return Object.entries(packages).flatMap(([path, at]) => {
    if (!path.includes(inside)) return [];
    const name = path.slice(path.lastIndexOf(inside) + inside.length);
    const found = at.link === true ? packages[at.resolved ?? ''] : at;
    return found?.hasInstallScript === true ? [`${name}@${found.version ?? '?'}`] : [];
  });
}

/** Says what npm would have run. @param again the command that lets it */
export const notRun = (scripted: readonly string[], again: string): string =>
  `Not run: what ${scripted.join(', ')} would do when it is installed. If a module needs what that makes: ${again}`;

/** Links stay what they are, and files keep their times: by these a server knows code that has not changed. */
function copy(from: string, to: string): void {
  const how = { recursive: true, verbatimSymlinks: true, preserveTimestamps: true } as const;
  if (existsSync(from)) cpSync(from, to, { ...how, mode: constants.COPYFILE_FICLONE });
}

function begin(folder: string): void {
  mkdirSync(folder, { recursive: true });
  const manifest = join(folder, 'package.json');
  if (!existsSync(manifest))
    writeFileSync(manifest, `${JSON.stringify({ private: true, dependencies: {} }, null, 2)}\n`);
}

/** What cannot be removed now is removed by the next command. */
function remove(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true, maxRetries: 3 });
  } catch {
    // The npm of a command that was killed may still be writing.
  }
}

function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0 || pid === process.pid) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function npm(folder: string, args: readonly string[]): void {
  const scripts = args.includes(withScripts) ? [] : ['--ignore-scripts'];
  // The server lends modules its own copy of the module API, so peers need not be installed.
  const all = [...args, ...scripts, '--no-audit', '--no-fund', '--legacy-peer-deps', '--loglevel=error'];
  const { status } = runNpm(all, { cwd: folder, stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new CommandError(`npm ${args.join(' ')} failed; what is installed has not changed`);
}
