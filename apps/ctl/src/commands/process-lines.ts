import { type Config, isMain, type SettingName } from '@rookery/platform';

/** What workers can be named for in the settings and do then, each a share, and what that is called. */
const split = {
  federation_sender_instances: 'sends to other servers',
  pusher_instances: 'pushes to devices',
  notify_appservices_from_worker: 'sends to application services',
} as const satisfies Partial<Record<SettingName, string>>;

const invites = 'auto_accept_invites.worker_to_run_on';

/** The same of what one process does at a time. */
const whole = {
  run_background_tasks_on: 'does background work that writes no events, and indexes messages',
  media_instance_running_background_jobs: 'deletes old media',
  update_user_directory_from_worker: 'keeps the user directory',
  [invites]: 'notices invites that are accepted for their users',
} as const satisfies Partial<Record<SettingName, string>>;

const shared = { ...split, ...whole };
/** Whether there is anything to do with these settings. */
const isThere = (config: Config, setting: string): boolean =>
  setting !== invites || config.get('auto_accept_invites.enabled');

/** What any process writes that is asked to, whichever is named. */
const anybody = {
  'stream_writers.account_data': 'account data',
  'stream_writers.receipts': 'receipts',
  'stream_writers.to_device': 'messages to devices',
  'stream_writers.device_lists': 'lists and keys of devices',
  'stream_writers.push_rules': 'push rules',
  'stream_writers.thread_subscriptions': 'subscriptions to threads',
  'stream_writers.quarantined_media_changes': 'what is withheld of media',
} as const satisfies Partial<Record<SettingName, string>>;

/** What a worker can be named for, though the main process does it. */
const duties = {
  'stream_writers.events': 'writing events',
  'stream_writers.typing': 'writing typing',
  'stream_writers.presence': 'writing presence',
} as const satisfies Partial<Record<SettingName, string>>;

const reads = `answers what only reads, writes ${Object.values(anybody).join(', ')}, passes on the rest`;
const writes = 'writes every stream; sends mails, and does the background work that writes events; answers everything';

/** Which process of a server does what, as its settings have it; nothing where it is a single process. */
export function processLines(config: Config): readonly string[] {
  if (!config.get('redis.enabled')) return [];
  const own = config.get('worker_app') === undefined ? undefined : config.get('worker_name');
  const map = Object.keys(config.get('instance_map')).filter((name) => name !== 'main');
  const named = namesFor(config, duties);
  const doing = namesFor(config, shared);
  const others = namesFor(config, anybody).keys();
  const workers = [
    ...new Set([...map, ...named.keys(), ...doing.keys(), ...others, ...(own === undefined ? [] : [own])]),
  ].sort();
  if (workers.length === 0)
    return [
      'Processes (--processes N, or started on several machines):',
      `  one of them, whichever has taken that place: ${writes}`,
      `  all others: each ${reads}, ${Object.values(split).join(', ')} (a share of them), and takes that place when it is free`,
      ...Object.entries(whole).flatMap(([setting, duty]) =>
        isThere(config, setting) ? `  one of the others: ${duty}` : [],
      ),
      ...speakerLines(config),
      'Nothing is left without anybody as long as one process runs.',
    ];
  const ofMain = Object.entries(shared).flatMap(([setting, duty]) => {
    if (!isThere(config, setting)) return [];
    const names = [...doing].filter(([, does]) => does.includes(duty)).map(([name]) => name);
    return `; ${duty}${names.length === 0 ? '' : ` while none of these runs: ${names.sort().join(', ')}`}`;
  });
  return [
    'Processes:',
    `  main: ${writes}${ofMain.join('')}`,
    ...workers.map((name) => {
      const duty = named.get(name) ?? [];
      const does = (doing.get(name) ?? []).map((one) => `, ${one}`).join('');
      return `  ${name}: ${reads}${does}${duty.length === 0 ? '' : ` (named for ${duty.join(', ')}: main does that)`}`;
    }),
    ...speakerLines(config),
    'While main is away nobody writes, and there is nothing new to send or push: no worker takes its place. To be without such a process, start the main file with --processes N.',
  ];
}

/** Who speaks to other servers, where not all do. */
function speakerLines(config: Config): readonly string[] {
  const names = config.get('outbound_federation_restricted_to');
  if (names === undefined) return [];
  if (names.length === 0)
    return ['Nobody speaks to other servers: outbound_federation_restricted_to is empty. Leave it out, or name some.'];
  const speakers = [...new Set(names.map((name) => (isMain(name) ? 'main' : name)))].join(', ');
  return [`Only these speak to other servers, all others by way of them: ${speakers}`];
}

/** The workers that some settings name, with what they are named for. */
function namesFor<Setting extends SettingName>(
  config: Config,
  settings: Readonly<Record<Setting, string>>,
): Map<string, string[]> {
  const named = new Map<string, string[]>();
  for (const [setting, duty] of Object.entries<string>(settings)) {
    const value: unknown = config.get(setting as Setting);
    for (const name of Array.isArray(value) ? (value as string[]) : [value])
      if (typeof name === 'string' && !isMain(name)) named.set(name, [...(named.get(name) ?? []), duty]);
  }
  return named;
}
