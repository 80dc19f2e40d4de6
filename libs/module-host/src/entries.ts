import type { Config } from '@rookery/platform';
import type { ModuleEntry } from './loader.js';

/** Settings whose modules stand in front of those of `modules`, in this order. */
const oldForms = ['password_providers', 'spam_checker', 'third_party_event_rules', 'presence.presence_router'] as const;

/** ` -c FILE` for each of these paths, as a shell takes it: for commands that a message names. */
export const settingsOptionOf = (paths: readonly string[]): string =>
  paths.map((path) => ` -c ${/^[\w./@:-]+$/.test(path) ? path : `'${path}'`}`).join('');

/** The setting `modules`, with the place of each value for messages. */
export function moduleEntriesOf(config: Config): ModuleEntry[] {
  const settingsOption = settingsOptionOf(config.paths);
  const places = oldForms.flatMap((name) => {
    const value: unknown = config.get(name);
    if (value === undefined) return [];
    return Array.isArray(value) ? value.map((_, index) => ({ name, path: [index] })) : [{ name, path: [] }];
  });
  return config.get('modules').map((entry, index) => {
    const { name, path: start } = places[index] ?? { name: 'modules' as const, path: [index - places.length] };
    return {
      module: entry.module,
      config: entry.config,
      onError: entry.on_error,
      timeLimitMs: entry.time_limit,
      allowFederationTo: entry.allow_federation_to,
      isolate: entry.isolate,
      shadow: entry.shadow,
      memoryLimitBytes: entry.memory_limit,
      where: (path) => config.where(name, ...start, ...path),
      settingsOption,
    };
  });
}
