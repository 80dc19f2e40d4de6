import type { Config } from '@rookery/platform';
import type { ModuleEntry } from './loader.js';

/** The setting `modules`, with the place of each value for messages. */
export function moduleEntriesOf(config: Config): ModuleEntry[] {
  return config.get('modules').map((entry, index) => ({
    module: entry.module,
    config: entry.config,
    onError: entry.on_error,
    timeLimitMs: entry.time_limit,
    allowFederationTo: entry.allow_federation_to,
    where: (path) => config.where('modules', index, ...path),
  }));
}
