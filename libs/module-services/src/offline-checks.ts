import { madeStorageProvider } from '@rookery/media';
import type { ModuleApi, ModuleMigration } from '@rookery/module-api';
import { type ModuleDispatcher, providerParts } from '@rookery/module-host';
import { type Config, SilentLogger, SystemIds } from '@rookery/platform';
import { readTemplates } from './messaging/templates.js';
import { checkSteps } from './storage/tables.js';
import { moduleUrls } from './web/module-urls.js';

/** What of the module API can be had, or told to be wrong, without a running server. */
export interface OfflineServices {
  readonly readTemplates: ModuleApi['readTemplates'];
  readonly urlOf: ModuleApi['urlOf'];
  /** @throws RangeError for steps that no server takes */
  readonly checkMigrations: (module: string, migrations: readonly ModuleMigration[]) => void;
}

/** For trying modules out with the settings of a server that does not run. */
export function offlineServices(config: Config): OfflineServices {
  const parts = { config, ids: new SystemIds(), logger: new SilentLogger() };
  return {
    urlOf: moduleUrls(config),
    readTemplates: async (filenames, folder) => readTemplates(parts, filenames, folder),
    checkMigrations: checkSteps,
  };
}

/** What is part of the server where a setting names a provider. */
const builtIn = {
  mediaStorage: /^file_system$/,
  oidcMapping: /(^|\.)JinjaOidcMappingProvider$/,
  samlMapping: /(^|\.)DefaultSamlMappingProvider$/,
} as const;

/** A provider that a setting names. */
interface WantedProvider {
  readonly kind: keyof typeof builtIn;
  readonly what: string;
  readonly name: string;
  readonly own: unknown;
  readonly where: string | undefined;
}

function wantedProviders(config: Config): WantedProvider[] {
  const media = config.get('media_storage_providers').map(({ module: name, config: own }, index): WantedProvider => ({
    ...{ kind: 'mediaStorage', what: 'media storage', name, own },
    where: config.where('media_storage_providers', index),
  }));
  const oidc = config.get('oidc_providers').map(({ user_mapping_provider: mapping }, index): WantedProvider => ({
    ...{ kind: 'oidcMapping', what: 'OpenID Connect mapping', name: mapping?.module ?? '', own: mapping?.config },
    where: config.where('oidc_providers', index, 'user_mapping_provider'),
  }));
  const mapping = config.get('saml2_config.user_mapping_provider');
  const saml: WantedProvider = {
    ...{ kind: 'samlMapping', what: 'SAML mapping', name: mapping?.module ?? '', own: mapping?.config },
    where: config.where('saml2_config.user_mapping_provider'),
  };
  return [...media, ...oidc, saml].filter(({ kind, name }) => name !== '' && !builtIn[kind].test(name));
}

/** Why the server would not start with these modules although each of them loads: what other settings want of them. */
export async function missingProviders(config: Config, dispatcher: ModuleDispatcher): Promise<string[]> {
  const isMade = async ({ kind, name, own }: WantedProvider): Promise<boolean> => {
    if (kind === 'mediaStorage') {
      const factory = dispatcher.provider(kind, name);
      if (factory) await madeStorageProvider(factory, own, config);
      return factory !== undefined;
    }
    const factory = dispatcher.provider(kind, name);
    if (factory) await providerParts<object>(factory.create(own));
    return factory !== undefined;
  };
  const problems = wantedProviders(config).map(async (wanted) => {
    const { what, name, where } = wanted;
    const problem = (reason: string): string => `${where === undefined ? '' : `${where}: `}${what} ${name}: ${reason}`;
    try {
      if (await isMade(wanted)) return [];
      return [problem(`no module provides a ${what} of this name`)];
    } catch (error) {
      return [problem(error instanceof Error ? error.message : String(error))];
    }
  });
  return (await Promise.all(problems)).flat();
}
