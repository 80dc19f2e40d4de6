import { appserviceSenderRole } from '@rookery/appservices';
import { federationSenderRole } from '@rookery/federation';
import { type Config, isMain } from '@rookery/platform';
import { pushSenderRole } from '@rookery/push';
import { backgroundRole, type Eagerness, mediaRole } from '@rookery/replication';
import { inviteAcceptorRole } from '@rookery/rooms';
import { messageIndexRole, userDirectoryRole } from '@rookery/search';

const one = (name = 'master'): readonly string[] => [name];

/** The processes that the settings name for a duty, by its role. */
const named: Readonly<Record<string, (config: Config) => readonly string[]>> = {
  [federationSenderRole.name]: (config) => config.get('federation_sender_instances'),
  [pushSenderRole.name]: (config) => config.get('pusher_instances'),
  [appserviceSenderRole.name]: (config) => one(config.get('notify_appservices_from_worker')),
  [backgroundRole.name]: (config) => one(config.get('run_background_tasks_on')),
  [messageIndexRole.name]: (config) => one(config.get('run_background_tasks_on')),
  [userDirectoryRole.name]: (config) => one(config.get('update_user_directory_from_worker')),
  [inviteAcceptorRole.name]: (config) => one(config.get('auto_accept_invites.worker_to_run_on')),
  [mediaRole.name]: (config) => one(config.get('media_instance_running_background_jobs')),
};

/**
 * How much a process wants a duty. Where the settings name workers for it these have it, and the main process while none of them lives; a
 * worker that they do not name never has it. Where all processes are alike, those have it that do not write.
 */
export function eagernessOf(config: Config, role: string, isBesideWriter: boolean): Eagerness {
  const names = named[role]?.(config);
  if (names === undefined) return isBesideWriter ? 'never' : 'wanted';
  if (config.get('worker_app') !== undefined)
    return names.includes(config.get('worker_name') ?? '') ? 'wanted' : 'never';
  const hasWorkers = [...Object.keys(config.get('instance_map')), ...names].some((name) => !isMain(name));
  if (hasWorkers) return names.some(isMain) ? 'wanted' : 'spare';
  return isBesideWriter ? 'wanted' : 'spare';
}
