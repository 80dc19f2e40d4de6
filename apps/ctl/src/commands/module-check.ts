import {
  type LoadedModule,
  ModuleHost,
  moduleEntriesOf,
  ModuleLoadError,
  offlineCapabilities,
} from '@rookery/module-host';
import { loadConfig, Logger, SystemClock } from '@rookery/platform';

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

/** Keeps what is said about each module. */
class Warnings extends Logger {
  readonly byModule = new Map<string, string[]>();
  debug(): void {}
  info(): void {}
  warn(message: string, fields: Readonly<Record<string, unknown>> = {}): void {
    const module = String(fields.module);
    const text = typeof fields.problem === 'string' ? fields.problem : message;
    this.byModule.set(module, [...(this.byModule.get(module) ?? []), text]);
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

/**
 * Imports every module of the settings, checks its configuration and lets it register, without a server.
 * @throws ConfigError when the settings themselves are wrong
 */
export async function checkModules(files: readonly string[]): Promise<CheckedModule[]> {
  const config = loadConfig(files);
  const logger = new Warnings();
  const newHost = (): ModuleHost => new ModuleHost({ clock: new SystemClock(), logger, configDir: config.configDir });
  const capabilities = offlineCapabilities({
    serverName: config.serverName,
    publicBaseurl: config.get('public_baseurl'),
  });
  const entries = moduleEntriesOf(config);
  const results: { entry: string; loaded?: LoadedModule; problem?: string }[] = [];
  const good: LoadedModule[] = [];
  for (const entry of entries) {
    try {
      const [loaded] = await newHost().import([entry]);
      if (loaded) results.push({ entry: entry.module, loaded });
    } catch (error) {
      results.push({ entry: entry.module, problem: reasonOf(error) });
    }
  }
  // Each joins those that were good before it, as they would at a start; so every problem is found in one go.
  for (const result of results) {
    if (!result.loaded) continue;
    const problem = await tryOut([...good, result.loaded]);
    if (problem === undefined) good.push(result.loaded);
    else result.problem = problem;
  }
  logger.byModule.clear();
  const host = newHost();
  await host.start(good, capabilities);
  const summary = new Map(host.dispatcher.summary().map((row) => [row.module, row]));
  await host.stop();
  return results.map(({ entry, loaded, problem }) => {
    const name = loaded?.definition.name;
    const row = problem === undefined && name !== undefined ? summary.get(name) : undefined;
    return {
      entry,
      ...(loaded ? { name: loaded.definition.name, apiVersion: loaded.definition.apiVersion, url: loaded.url } : {}),
      callbacks: row?.callbacks ?? [],
      paths: row?.paths ?? [],
      warnings: row ? (logger.byModule.get(row.module) ?? []) : [],
      ...(problem === undefined ? {} : { problem }),
    };
  });

  async function tryOut(modules: readonly LoadedModule[]): Promise<string | undefined> {
    const host = newHost();
    try {
      await host.start(modules, capabilities);
      return undefined;
    } catch (error) {
      return reasonOf(error);
    } finally {
      await host.stop();
    }
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof ModuleLoadError) return error.message;
  throw error;
}
