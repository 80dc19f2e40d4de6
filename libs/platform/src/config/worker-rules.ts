import { isMain, streamWriters } from './no-workers.js';
import type { Rule, RuleView } from './rule.js';

/** The name of the process that reads the settings. */
const ownName = ({ get }: RuleView): string =>
  get('worker_app') === undefined ? 'master' : (get('worker_name') ?? '');

/** Every process that the settings speak of, other than the main one. */
function workersNamed({ get }: RuleView): string[] {
  const names = [
    ...streamWriters.flatMap((stream) => get(stream)),
    ...get('pusher_instances'),
    ...get('federation_sender_instances'),
    ...(get('outbound_federation_restricted_to') ?? []),
    ...Object.keys(get('instance_map')),
    ...[
      get('run_background_tasks_on'),
      get('update_user_directory_from_worker'),
      get('notify_appservices_from_worker'),
    ].filter((name) => name !== undefined),
  ];
  return [...new Set(names)].filter((name) => !isMain(name));
}

const usesWorkers = (view: RuleView): boolean => view.get('worker_app') !== undefined || workersNamed(view).length > 0;

/** A duty that had a switch on the main process and a kind of worker of its own, and now names its worker. */
function duty(
  old: 'update_user_directory' | 'notify_appservices',
  now: 'update_user_directory_from_worker' | 'notify_appservices_from_worker',
  app: string,
): Rule[] {
  return [
    {
      about: [old, now],
      check(view) {
        const onMain = view.get(old);
        if (onMain === undefined || !view.given(now)) return undefined;
        const own = ownName(view);
        const designated = view.get(now) ?? 'master';
        const byNew = designated === own || (isMain(designated) && isMain(own));
        const byOld = isMain(own) ? onMain : view.get('worker_app') === app && !onMain;
        return byNew === byOld ? undefined : `contradicts ${now}: leave ${old} out`;
      },
    },
    {
      about: ['worker_app', old],
      check: ({ get }) =>
        get('worker_app') === app && get(old) !== false
          ? `${app} is deprecated and needs ${old}: false; use synapse.app.generic_worker and ${now}`
          : undefined,
    },
  ];
}

/** A duty that had a switch on the main process and now names its workers. */
function sharded(
  old: 'start_pushers' | 'send_federation',
  now: 'pusher_instances' | 'federation_sender_instances',
  app: string,
): Rule[] {
  return [
    {
      about: [old, now],
      check: ({ get, given }) =>
        get(old) === true && given(now) && get(now).length > 0 && !get(now).some(isMain)
          ? `contradicts ${now}: leave ${old} out`
          : undefined,
    },
    {
      about: ['worker_app', old, now],
      check(view) {
        if (view.get('worker_app') !== app) return undefined;
        if (view.given(now)) return view.get(now).includes(ownName(view)) ? undefined : `${app} must be one of ${now}`;
        return view.get(old) === false ? undefined : `${app} needs ${old}: false, or its name in ${now}`;
      },
    },
  ];
}

/** What holds between processes. */
export const workerRules: readonly Rule[] = [
  ...duty('update_user_directory', 'update_user_directory_from_worker', 'synapse.app.user_dir'),
  ...duty('notify_appservices', 'notify_appservices_from_worker', 'synapse.app.appservice'),
  ...sharded('start_pushers', 'pusher_instances', 'synapse.app.pusher'),
  ...sharded('send_federation', 'federation_sender_instances', 'synapse.app.federation_sender'),
  {
    about: ['instance_map', 'worker_app', 'pusher_instances', 'federation_sender_instances'],
    check: (view) =>
      usesWorkers(view) && !Object.hasOwn(view.get('instance_map'), 'main')
        ? 'workers need an instance_map with an entry main: where the main process has its replication listener (host and port, or path)'
        : undefined,
  },
  {
    about: ['worker_name', 'worker_app'],
    // The processes call the one that writes so among themselves: a worker of that name would write beside it, unfenced.
    check({ get }) {
      const name = get('worker_app') === undefined ? undefined : get('worker_name');
      if (name === 'writer')
        return 'writer is what the process that writes is called. Choose another name, in instance_map too';
      return name !== undefined && isMain(name) ? 'main and master are names of the main process' : undefined;
    },
  },
  ...streamWriters.map((stream): Rule => ({
    about: [stream, 'instance_map'],
    check({ get }) {
      const unknown = get(stream).find((name) => !isMain(name) && !Object.hasOwn(get('instance_map'), name));
      return unknown === undefined ? undefined : `${unknown} is not in instance_map`;
    },
  })),
  {
    about: ['outbound_federation_restricted_to', 'instance_map', 'worker_replication_secret'],
    check({ get }) {
      const names = get('outbound_federation_restricted_to');
      if (names === undefined) return undefined;
      if (get('worker_replication_secret') === undefined) return 'needs worker_replication_secret';
      const unknown = names.find((name) => !Object.hasOwn(get('instance_map'), name === 'master' ? 'main' : name));
      return unknown === undefined ? undefined : `${unknown} is not in instance_map`;
    },
  },
  {
    about: ['redis.enabled', 'worker_app', 'instance_map'],
    check: (view) =>
      usesWorkers(view) && !view.get('redis.enabled') ? 'workers need Redis: set redis.enabled' : undefined,
  },
  {
    about: ['database.name', 'worker_app', 'instance_map'],
    check: (view) =>
      usesWorkers(view) && view.get('database.name') === 'sqlite3' && view.get('databases') === undefined
        ? 'workers need PostgreSQL (name: psycopg2): SQLite serves one process only'
        : undefined,
  },
];
