import type { ModuleApi, ModuleMigration } from '@rookery/module-api';
import type { ModuleDispatcher } from '@rookery/module-host';
import { type Config, SilentLogger, SystemIds } from '@rookery/platform';
import { readTemplates } from './messaging/templates.js';
import { checkSteps } from './storage/tables.js';

/** What of the module API can be had, or told to be wrong, without a running server. */
export interface OfflineServices {
  readonly readTemplates: ModuleApi['readTemplates'];
  /** @throws RangeError for steps that no server takes */
  readonly checkMigrations: (module: string, migrations: readonly ModuleMigration[]) => void;
}

/** For trying modules out with the settings of a server that does not run. */
export function offlineServices(config: Config): OfflineServices {
  const parts = { config, ids: new SystemIds(), logger: new SilentLogger() };
  return {
    readTemplates: async (filenames, folder) => readTemplates(parts, filenames, folder),
    checkMigrations: checkSteps,
  };
}

/** Why the server would not start with these modules although each of them loads: what other settings want of them. */
export function missingProviders(config: Config, dispatcher: ModuleDispatcher): string[] {
  return config.get('media_storage_providers').flatMap(({ module: name, config: own }, index) => {
    if (name === 'file_system') return [];
    const where = config.where('media_storage_providers', index);
    const problem = (reason: string): string =>
      `${where === undefined ? '' : `${where}: `}media storage ${name}: ${reason}`;
    const factory = dispatcher.provider('mediaStorage', name);
    if (!factory) return [problem('no module provides a media storage of this name')];
    try {
      factory.create(own);
      return [];
    } catch (error) {
      return [problem(error instanceof Error ? error.message : String(error))];
    }
  });
}
