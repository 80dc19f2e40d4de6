import {
  guardProcess,
  type LoadedModule,
  manifestOf,
  ModuleHost,
  type ModuleEntry,
  moduleEntriesOf,
  ModuleLoadError,
  needsServer,
  offlineCapabilities,
  placeOfModule,
  readDefinition,
} from '@rookery/module-host';
import { type Config, loadConfig, Logger, SystemClock } from '@rookery/platform';
import { setImmediate } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

/** One entry of the settings, tried out. */
export interface CheckedModule {
  /** As the settings call it. */
  readonly entry: string;
  /** As it calls itself; absent where it could not be imported. */
  readonly name?: string;
  readonly apiVersion?: string;
  readonly url?: string;
  readonly callbacks: readonly string[];
  readonly paths: readonly string[];
  readonly warnings: readonly string[];
  /** Why the server would not start with it. */
  readonly problem?: string;
}

/** What was found. */
export interface CheckResult {
  readonly modules: readonly CheckedModule[];
  /** Why the server would not start although each module loads. */
  readonly problems: readonly string[];
}

/** What else there would be. */
export interface CheckOptions {
  /** Folder with the packages, in place of the one beside the settings. */
  readonly installedIn?: string | undefined;
  /** An entry that is passed over. */
  readonly without?: string;
}

/** Keeps what is said about each module. */
class Warnings extends Logger {
  readonly byModule = new Map<string, string[]>();
  debug(): void {}
  info(): void {}
  warn(message: string, fields: Readonly<Record<string, unknown>> = {}): void {
    const module = String(fields.module);
    const because = fields.err instanceof Error ? `: ${fields.err.message}` : '';
    const text = typeof fields.problem === 'string' ? fields.problem : message + because;
    // A module that is tried several times says the same each time.
    this.byModule.set(module, [...new Set([...(this.byModule.get(module) ?? []), text])]);
  }
  error(message: string, fields?: Readonly<Record<string, unknown>>): void {
    this.warn(message, fields);
  }
  isEnabled(): boolean {
    return true;
  }
  child(): Logger {
    return this;
  }
}

/** What is no module's doing ends the program, as it would have. */
class OthersThrow extends Warnings {
  override error(message: string, fields: Readonly<Record<string, unknown>> = {}): void {
    if (fields.module === undefined) throw fields.err;
    super.error(message, fields);
  }
}

/** Does something that tries modules. What they left behind, a timer that throws, does not end the program meanwhile. */
export async function besideModules<T>(work: () => Promise<T>): Promise<T> {
  const unguard = guardProcess(() => [], new OthersThrow());
  try {
    return await work();
  } finally {
    unguard();
  }
}

/**
 * Imports every module of the settings, checks its configuration and lets it register, without a server.
 * @throws SettingsError when the settings themselves are wrong
 */
export async function checkModules(
  files: readonly string[],
  { installedIn, without }: CheckOptions = {},
): Promise<CheckResult> {
  const config = loadConfig(files);
  const warnings = new Warnings();
  const imported: LoadedModule[] = [];
  const unguard = guardProcess(() => imported, warnings);
  try {
    const entries = moduleEntriesOf(config)
      .filter(({ module }) => module !== without)
      .map((entry) => ({ ...entry, installedIn }));
    return await tryOut(config, entries, warnings, imported);
  } finally {
    unguard();
  }
}

async function tryOut(
  config: Config,
  entries: readonly ModuleEntry[],
  warnings: Warnings,
  imported: LoadedModule[],
): Promise<CheckResult> {
  const newHost = (logger: Logger): ModuleHost =>
    new ModuleHost({ clock: new SystemClock(), logger, configDir: config.configDir });
  const { missingProviders, offlineServices } = await import('@rookery/homeserver');
  const capabilities = offlineCapabilities({
    serverName: config.serverName,
    publicBaseurl: config.get('public_baseurl'),
    ...offlineServices(config),
  });
  // What every attempt would repeat is said once, by the last one.
  const quiet = new Warnings();
  const results: { entry: string; loaded?: LoadedModule; problem?: string; untried?: string }[] = [];
  for (const entry of entries) {
    try {
      const [loaded] = await newHost(quiet).import([entry]);
      if (!loaded) continue;
      imported.push(loaded);
      results.push({ entry: entry.module, loaded });
    } catch (error) {
      results.push({ entry: entry.module, problem: reasonOf(error) });
    }
  }
  // Each joins those that were good before it, as they would at a start; so every problem is found in one go.
  const good: LoadedModule[] = [];
  // A thread ends with the host that it was tried in.
  const ready = async (modules: readonly LoadedModule[]): Promise<LoadedModule[]> => {
    const again: LoadedModule[] = [];
    for (const module of modules) {
      const [fresh = module] = module.thread?.isOver ? await newHost(quiet).import([module.entry]) : [];
      again.push(fresh);
    }
    return again;
  };
  for (const result of results) {
    if (!result.loaded) continue;
    const host = newHost(quiet);
    try {
      await host.start(await ready([...good, result.loaded]), capabilities);
      good.push(result.loaded);
    } catch (error) {
      const reason = reasonOf(error);
      const cause = error instanceof Error ? error.cause : undefined;
      // With a server it may well go on: that is no reason to warn of a start.
      if (needsServer(cause)) result.untried = `not tried to the end: ${cause.message}`;
      else result.problem = reason;
    } finally {
      await host.stop();
    }
  }
  const host = newHost(warnings);
  await host.start(await ready(good), capabilities);
  const summary = new Map(host.dispatcher.summary().map((row) => [row.module, row]));
  const allLoad = results.every(({ problem }) => problem === undefined);
  const problems = allLoad ? await missingProviders(config, host.dispatcher) : [];
  await host.stop();
  // What was rejected with nobody listening is told of only once everything that waits has run.
  await setImmediate();
  const modules = results.map(({ entry, loaded, problem, untried }) => {
    const name = loaded?.definition.name;
    const row = problem === undefined && name !== undefined ? summary.get(name) : undefined;
    return {
      entry,
      ...(loaded ? { name: loaded.definition.name, apiVersion: loaded.definition.apiVersion, url: loaded.url } : {}),
      callbacks: row?.callbacks ?? [],
      paths: row?.paths ?? [],
      warnings: [
        ...(untried === undefined ? [] : [untried]),
        ...(loaded?.warnings ?? []),
        ...(row ? (warnings.byModule.get(row.module) ?? []) : []),
      ],
      ...(problem === undefined ? {} : { problem }),
    };
  });
  return { modules, problems };
}

const unlisted = (module: string): ModuleEntry => ({
  module,
  config: undefined,
  onError: 'deny',
  timeLimitMs: undefined,
  allowFederationTo: [],
});

/** Modules of the settings whose packages say that they ask another one. None of their code runs. */
export function askersOf(files: readonly string[], name: string): string[] {
  const config = loadConfig(files);
  return moduleEntriesOf(config).flatMap((entry) => {
    try {
      const { path } = placeOfModule(entry, config.configDir);
      return manifestOf(entry.module, pathToFileURL(path).href)?.modules.includes(name) ? [entry.module] : [];
    } catch (error) {
      reasonOf(error);
      return [];
    }
  });
}

/** What a module calls itself, whether the settings list it or not; `undefined` when it cannot be loaded. Other modules are left alone. */
export async function nameOfModule(files: readonly string[], entry: string): Promise<string | undefined> {
  const config = loadConfig(files);
  const { configDir } = config;
  const clock = new SystemClock();
  const host = new ModuleHost({ clock, logger: new Warnings(), configDir });
  try {
    const listed = moduleEntriesOf(config).filter(({ module }) => module === entry);
    if (listed.length === 0) return (await readDefinition(unlisted(entry), { configDir, clock })).name;
    const loaded = await host.import(listed);
    const name = loaded[0]?.definition.name;
    await host.discard(loaded);
    return name;
  } catch (error) {
    reasonOf(error);
    return undefined;
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof ModuleLoadError) return error.message;
  throw error;
}
