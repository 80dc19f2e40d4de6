import type { Rule, RuleView } from './rule.js';
import type { SettingName } from './table.js';

/** The names that the main process goes by in the settings. */
export const isMain = (name: string): boolean => name === 'master' || name === 'main';

const oneProcess = 'without redis.enabled one process does everything';

/** A setting that names processes. */
const naming = (name: SettingName, names: (view: RuleView) => readonly (string | undefined)[]): Rule => ({
  about: [name],
  check(view) {
    if (view.get('redis.enabled')) return undefined;
    const worker = view.given(name) ? names(view).find((one) => one !== undefined && !isMain(one)) : undefined;
    return worker === undefined ? undefined : `${worker} would be a worker, and ${oneProcess}. Leave it out`;
  },
});

/** A duty that the main process can be told to leave to a worker. */
const left = (name: 'start_pushers' | 'send_federation' | 'update_user_directory' | 'notify_appservices'): Rule => ({
  about: [name],
  check: ({ get }) =>
    get(name) === false && !get('redis.enabled')
      ? `false leaves it to a worker, and ${oneProcess}. Leave it out`
      : undefined,
});

/** The settings that say which process writes a stream. */
export const streamWriters = [
  'stream_writers.events',
  'stream_writers.typing',
  'stream_writers.to_device',
  'stream_writers.account_data',
  'stream_writers.receipts',
  'stream_writers.presence',
  'stream_writers.push_rules',
  'stream_writers.device_lists',
  'stream_writers.thread_subscriptions',
  'stream_writers.quarantined_media_changes',
] as const satisfies readonly SettingName[];

const lists = [
  ...streamWriters,
  'pusher_instances',
  'federation_sender_instances',
  'outbound_federation_restricted_to',
] as const satisfies readonly SettingName[];

const single = [
  'run_background_tasks_on',
  'update_user_directory_from_worker',
  'notify_appservices_from_worker',
  'media_instance_running_background_jobs',
  'auto_accept_invites.worker_to_run_on',
] as const satisfies readonly SettingName[];

/**
 * What asks for several processes is refused where there can be one only: a worker that started would be a second whole server on
 * the database, and what is left to a worker would be done by nobody. With Redis each duty is done, if not by the worker that is named: by
 * the process that writes.
 */
export const noWorkersRules: readonly Rule[] = [
  {
    about: ['worker_app'],
    check: ({ get }) =>
      get('worker_app') === undefined || get('redis.enabled')
        ? undefined
        : `these are the settings of a worker, and ${oneProcess}. Start the main process only`,
  },
  naming('instance_map', ({ get }) => Object.keys(get('instance_map'))),
  ...lists.map((name) => naming(name, ({ get }) => get(name) ?? [])),
  ...single.map((name) => naming(name, ({ get }) => [get(name)])),
  left('start_pushers'),
  left('send_federation'),
  left('update_user_directory'),
  left('notify_appservices'),
];
