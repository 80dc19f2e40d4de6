import { isDeepStrictEqual } from 'node:util';
import { ConfigError, type ModuleApi, type RookeryModule } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { type Clock, type Logger, SilentLogger } from '@rookery/platform';
import { fileURLToPath } from 'node:url';
import { changedFile, codeOf, rootOf } from './code-files.js';
import { asLoadError, importDefinition, misconfigured, parseConfig, problemsOf, resolveModule } from './definition.js';
import { ModuleLoadError } from './errors.js';
import { manifestOf } from './manifest.js';
import type { Polls } from './thread-polls.js';
import { ModuleThread } from './module-thread.js';
import { splitFragment } from './names.js';
import { type Owner, runAs } from './owner.js';
import { notEndingTheProcess } from './process-guard.js';
import type { ModulePolicy } from './registry.js';

/** One entry of the setting `modules`. */
export interface ModuleEntry extends ModulePolicy {
  /** Package name, path or `file:` URL; `#name` behind it picks one of several modules in a package. */
  readonly module: string;
  /** For the module, which checks it. */
  readonly config: unknown;
  /** Servers that it may send signed requests to: names, or `*`. */
  readonly allowFederationTo: readonly string[];
  /** Where it runs: in a worker thread of its own, or, by default, with the server. */
  readonly isolate?: 'thread' | undefined;
  /** Memory that its thread may use; default {@link defaultMemoryLimitBytes}. */
  readonly memoryLimitBytes?: number | undefined;
  /** File and line of the entry, or of a value inside its `config`, for messages: `homeserver.yaml:12`. */
  readonly where?: (path: readonly (string | number)[]) => string | undefined;
  /** What the operator's command needs to find the settings: ` -c FILE`; nothing where it finds them itself. */
  readonly settingsOption?: string;
  /** Folder with the packages that `rookery module add` installed, where it is not the one beside the settings. */
  readonly installedIn?: string | undefined;
}

/** A module that was imported, with its checked configuration. */
export interface LoadedModule {
  readonly entry: ModuleEntry;
  readonly definition: RookeryModule;
  readonly config: unknown;
  /** `file:` URL that it came from. */
  readonly url: string;
  /** Whom its code belongs to, from its import on. */
  readonly owner: Owner;
  /** What is odd about it, and no reason to stop. */
  readonly warnings: readonly string[];
  /** The thread that it runs in, where it has one of its own. */
  readonly thread?: ModuleThread;
}

/** Memory of a thread whose entry does not say: its heap, and as much outside of it. */
export const defaultMemoryLimitBytes = 134_217_728;
/** A thread whose entry has no time limit is ended when it gives no sign of life for so long. */
const defaultThreadLimitMs = 5_000;
/** Importing or registering takes at most this long. */
export const loadTimeLimitMs = 30_000;
/** What importing takes. */
interface ImportOptions {
  readonly configDir: string;
  readonly clock: Clock;
  readonly logger?: Logger;
  /** Modules in service: those in a thread whose entry and code are the same stay what they are. */
  readonly running?: readonly LoadedModule[];
  /** What the server's threads share. */
  readonly polls?: Polls | undefined;
}

/**
 * Imports modules in order and checks their configuration. The log names each before: its code may never give the thread back.
 * @throws ModuleLoadError
 */
export async function importModules(entries: readonly ModuleEntry[], options: ImportOptions): Promise<LoadedModule[]> {
  const loaded: LoadedModule[] = [];
  for (const entry of entries) {
    try {
      loaded.push(await (entry.isolate === 'thread' ? importIntoThread(entry, options) : importModule(entry, options)));
    } catch (error) {
      await endThreads(loaded, options.running);
      throw asLoadError(entry.module, error).at(entry.where?.([]));
    }
  }
  return loaded;
}

/**
 * Imports a module for what it says of itself: its configuration is not looked at.
 * @throws ModuleLoadError
 */
export async function readDefinition(
  entry: ModuleEntry,
  { configDir, clock }: { readonly configDir: string; readonly clock: Clock },
): Promise<RookeryModule> {
  const late = 'its code did not finish loading';
  const { definition } = await whileLoading({ entry, owner: { name: entry.module }, clock, late }, () =>
    importDefinition(entry, configDir),
  );
  return definition;
}

/** The entry of a module's code, and the folder of its package or the lone file that it is. @throws ModuleLoadError */
export function placeOfModule(entry: ModuleEntry, configDir: string): { readonly path: string; readonly root: string } {
  const [specifier] = splitFragment(entry.module);
  const url = resolveModule(specifier, configDir, entry);
  return { path: fileURLToPath(url), root: rootOf(url) };
}

/** Runs code of a module that is being loaded. It may take its time, but neither hang nor end the process unnoticed. */
export function whileLoading<T>(
  { entry, owner, clock, late }: { entry: ModuleEntry; owner: Owner; clock: Clock; late: string },
  work: () => Promise<T>,
): Promise<T> {
  const ended = (): string => {
    const remove = `rookery module remove ${entry.module} --keep-data${entry.settingsOption ?? ''}`;
    const problem = `its code ended the process while it was loaded; to do without it, run: ${remove}`;
    return new ModuleLoadError(entry.module, problem, entry.where?.([])).message;
  };
  return notEndingTheProcess(owner, ended, () => within(clock, loadTimeLimitMs, late, () => runAs(owner, work)));
}

/** Ends the threads of modules that do not come into service. */
export async function endThreads(
  loaded: readonly LoadedModule[],
  running: readonly LoadedModule[] = [],
): Promise<void> {
  for (const module of loaded) if (!running.includes(module)) await module.thread?.end();
}

async function importModule(entry: ModuleEntry, { configDir, clock, logger }: ImportOptions): Promise<LoadedModule> {
  const owner: Owner = { name: entry.module };
  const imported = await whileLoading({ entry, owner, clock, late: 'its code did not finish loading' }, async () => {
    logger?.info('Loading module', { module: entry.module });
    return importDefinition(entry, configDir);
  });
  const { definition, url } = imported;
  const warnings = [...imported.warnings];
  if (entry.memoryLimitBytes !== undefined) warnings.push('memory_limit has no effect without isolate: thread');
  owner.name = definition.name;
  const config = await whileLoading({ entry, owner, clock, late: 'it did not finish' }, async () => ({
    checked: placed(entry, () => parseConfig(definition, entry.config)),
  }));
  for (const problem of warnings) logger?.warn('Odd module', { module: definition.name, problem });
  return { entry, definition, config: config.checked, url, owner, warnings };
}

/** Adds the place in the settings to what is wrong with a module's `config`. */
function placed<T>(entry: ModuleEntry, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ModuleLoadError) || !ConfigError.is(error.cause)) throw error;
    throw misconfigured(error.module, problemsOf(error.cause), entry.where, { cause: error.cause });
  }
}

/** Imports a module into a thread of its own: nothing of its code runs here. */
async function importIntoThread(
  entry: ModuleEntry,
  { configDir, clock, logger, running = [], polls }: ImportOptions,
): Promise<LoadedModule> {
  const [specifier] = splitFragment(entry.module);
  const url = resolveModule(specifier, configDir, entry);
  const known = running.find(
    (module) => module.thread?.isOver === false && module.url === url && isSameEntry(module.entry, entry),
  );
  const code = codeOf(url);
  if (known?.thread && changedFile(known.thread.code, code) === undefined) return known;
  const manifest = manifestOf(entry.module, url);
  const settings = isJsonObject(entry.config) ? Object.keys(entry.config) : [];
  const unnamed = manifest && settings.find((key) => !manifest.settings.includes(key));
  if (unnamed !== undefined) {
    const problem = `its manifest does not name the setting ${unnamed}; it takes ${manifest?.settings.join(', ') || 'none'}`;
    throw new ModuleLoadError(entry.module, problem, entry.where?.(['config', unnamed]));
  }
  const owner: Owner = { name: entry.module };
  logger?.info('Loading module', { module: entry.module, isolate: 'thread' });
  const thread = new ModuleThread({
    ...{ module: entry.module, configDir, config: entry.config, manifest },
    ...{ settingsOption: entry.settingsOption, installedIn: entry.installedIn },
    limits: {
      timeLimitMs: entry.timeLimitMs ?? defaultThreadLimitMs,
      memoryLimitBytes: entry.memoryLimitBytes ?? defaultMemoryLimitBytes,
    },
    ...{ code, owner, clock, logger: logger ?? new SilentLogger(), polls },
  });
  try {
    // What loads may take its time, and hangs when it gives no sign of life, as ever.
    const loaded = await within(clock, loadTimeLimitMs, 'its code did not finish loading', () => thread.load());
    if ('problems' in loaded) throw misconfigured(loaded.module, loaded.problems, entry.where);
    owner.name = loaded.name;
    const { name, apiVersion, configJsonSchema } = loaded;
    const warnings = [...loaded.warnings];
    for (const problem of warnings) logger?.warn('Odd module', { module: name, problem });
    const definition: RookeryModule = Object.freeze({
      $$type: 'RookeryModule',
      ...{ name, apiVersion },
      ...(configJsonSchema ? { configJsonSchema } : {}),
      parseConfig: (raw: unknown) => raw,
      register: (api: ModuleApi) => thread.register(api),
    });
    return { entry, definition, config: undefined, url, owner, warnings, thread };
  } catch (error) {
    await thread.end();
    throw error;
  }
}

/** Whether two entries ask for the same. */
export const isSameEntry = (a: ModuleEntry, b: ModuleEntry): boolean =>
  a.module === b.module &&
  a.onError === b.onError &&
  a.timeLimitMs === b.timeLimitMs &&
  a.isolate === b.isolate &&
  a.shadow === b.shadow &&
  a.memoryLimitBytes === b.memoryLimitBytes &&
  isDeepStrictEqual(a.allowFederationTo, b.allowFederationTo) &&
  isDeepStrictEqual(a.config, b.config);

/** The result of `work`, or an error once the time is over. */
export async function within<T>(clock: Clock, limitMs: number, what: string, work: () => Promise<T>): Promise<T> {
  let timer = { cancel: (): void => {} };
  // The clock's timers do not keep the process alive; what is waited for here may be all there is.
  const awake = setInterval(() => {}, limitMs);
  const late = new Promise<never>((_, reject) => {
    timer = clock.after(limitMs, () => reject(new Error(`${what} within ${limitMs / 1000} s`)));
  });
  try {
    return await Promise.race([work(), late]);
  } finally {
    timer.cancel();
    clearInterval(awake);
  }
}
