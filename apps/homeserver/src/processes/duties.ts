import type { Config } from '@rookery/platform';
import { federationSenderRole } from '@rookery/federation';
import { pushSenderRole } from '@rookery/push';
import type { Eagerness } from '@rookery/replication';

/** The settings that name the processes which have a duty, by its role. */
const settings = {
  [federationSenderRole.name]: 'federation_sender_instances',
  [pushSenderRole.name]: 'pusher_instances',
} as const;

const isMain = (name: string): boolean => name === 'master' || name === 'main';

/**
 * How much a process wants a duty. Where the settings name workers for it these have it, and the main process while none of them lives; a
 * worker that they do not name never has it. Where all processes are alike, those have it that do not write.
 */
export function eagernessOf(config: Config, role: string, isBesideWriter: boolean): Eagerness {
  const setting = settings[role];
  if (setting === undefined) return isBesideWriter ? 'never' : 'wanted';
  const named = config.get(setting);
  if (config.get('worker_app') !== undefined)
    return named.includes(config.get('worker_name') ?? '') ? 'wanted' : 'never';
  const hasWorkers = Object.keys(config.get('instance_map')).some((name) => !isMain(name));
  if (hasWorkers || named.some((name) => !isMain(name))) return named.some(isMain) ? 'wanted' : 'spare';
  return isBesideWriter ? 'wanted' : 'spare';
}
