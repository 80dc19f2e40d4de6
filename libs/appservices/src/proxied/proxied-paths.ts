import type { ProxiedPaths } from '@rookery/http';
import type { Config } from '@rookery/platform';
import { readRegistrations } from '../registration/read-registrations.js';

/**
 * The paths that application services answer (MSC4512): known before anything is built, for they become routes. Empty where a file is wrong, of which the start says more.
 */
export function proxiedPathsOf(config: Config): readonly ProxiedPaths[] {
  const { registrations, problems } = readRegistrations(config.get('app_service_config_files'), config.serverName);
  if (problems.some(({ level }) => level === 'error')) return [];
  return registrations.flatMap(({ fields }) => fields.proxied ?? []);
}
