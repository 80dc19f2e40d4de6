import * as k from '../kinds.js';
import { ignored, optional, refused, secretFile, setting } from '../setting.js';
import { listener } from './shapes.js';

const instance = k.text({ empty: false, expected: 'the name of an instance' });
const instances = k.list(instance, { one: true });

/** What the main process may be called where others name their kind. */
const mainApp = 'synapse.app.homeserver';
const workerApps = [
  'synapse.app.generic_worker',
  'synapse.app.media_repository',
  'synapse.app.pusher',
  'synapse.app.federation_sender',
  'synapse.app.appservice',
  'synapse.app.user_dir',
  'synapse.app.client_reader',
  'synapse.app.event_creator',
  'synapse.app.federation_reader',
  'synapse.app.frontend_proxy',
  'synapse.app.synchrotron',
] as const;

const location = k.checked(
  k.object({
    host: k.maybe(k.text({ empty: false }), 'Host.'),
    port: k.maybe(k.port, 'Port of its `replication` listener.'),
    tls: k.field(k.flag, false, 'Speak TLS to it.'),
    path: k.maybe(k.path, 'Unix socket, instead of host and port.'),
  }),
  (one) =>
    (one.path === undefined) === (one.host === undefined && one.port === undefined) ||
    (one.path === undefined && (one.host === undefined || one.port === undefined))
      ? 'expected either host and port, or path'
      : undefined,
);

/** Who writes what lies in rows alone. */
const anybody = 'any process that is asked to, whichever is named';
const writers = (many: boolean, doc: string) =>
  setting(
    k.checked(instances, (names) =>
      !many && names.length !== 1
        ? 'expected exactly one writer'
        : names.length === 0
          ? 'expected at least one writer'
          : undefined,
    ),
    ['master'],
    doc,
  );

/** Several processes. */
export const workerSettings = {
  worker_app: optional(k.oneOf(mainApp, ...workerApps), 'Kind of worker this process is; unset on the main process.'),
  worker_name: optional(instance, "This worker's name; `worker_app` when unset."),
  worker_listeners: setting(k.list(listener), [], 'Where this worker listens.'),
  worker_manhole: optional(k.port, "Port of this worker's debug shell."),
  worker_daemonize: optional(k.flag, 'Run this worker in the background.', {
    meaningless: 'leave it to the service manager, such as systemd',
  }),
  worker_pid_file: optional(k.path, "File that holds this worker's process id."),
  worker_log_config: optional(k.path, "This worker's `log_config`.", { reload: true }),
  worker_replication_secret: optional(k.secretText, 'Secret shared by all processes.', { secret: true }),
  worker_replication_secret_path: secretFile(k.path, 'worker_replication_secret'),
  instance_map: setting(k.mapOf(location), {}, 'Where each process listens for the others, by name.', {
    since: '1.84',
    rule: 'Needs `main` when there are workers.',
  }),
  'stream_writers.events': writers(true, 'Writers of events, sharded by room.'),
  'stream_writers.typing': writers(false, 'Writer of typing.'),
  'stream_writers.to_device': writers(false, `Writer of to-device messages: ${anybody}.`),
  'stream_writers.account_data': writers(false, `Writer of account data: ${anybody}.`),
  'stream_writers.receipts': writers(true, `Writers of receipts: ${anybody}.`),
  'stream_writers.presence': writers(false, 'Writer of presence.'),
  'stream_writers.push_rules': writers(false, `Writer of push rules: ${anybody}.`),
  'stream_writers.device_lists': writers(true, `Writers of device lists: ${anybody}.`),
  'stream_writers.thread_subscriptions': writers(true, `Writers of thread subscriptions: ${anybody}.`),
  'stream_writers.quarantined_media_changes': writers(true, `Writers of changes of quarantined media: ${anybody}.`),
  start_pushers: optional(k.flag, 'The main process sends push notifications.', {
    rule: 'Default true; false with `pusher_instances`.',
  }),
  pusher_instances: setting(instances, [], 'Workers that send push notifications, sharded by user.', {
    rule: 'With `start_pushers: false`, workers of the kind `synapse.app.pusher` unless given.',
  }),
  send_federation: optional(k.flag, 'The main process sends to other servers.', {
    rule: 'Default true; false with `federation_sender_instances`.',
  }),
  federation_sender_instances: setting(instances, [], 'Workers that send to other servers, sharded by server.', {
    rule: 'With `send_federation: false`, workers of the kind `synapse.app.federation_sender` unless given.',
  }),
  outbound_federation_restricted_to: optional(
    instances,
    'The only processes that speak to other servers; all others by way of them.',
    {
      rule: 'Needs `worker_replication_secret` and an `instance_map` with them. `main` is every process that is started without `worker_app`.',
    },
  ),
  run_background_tasks_on: optional(
    instance,
    'Worker that does the background work which writes no events, and indexes messages; the main process while it is away, and when unset.',
  ),
  update_user_directory_from_worker: optional(
    instance,
    'Worker that keeps users of other servers in the user directory; the main process while it is away, and when unset.',
    { since: '1.59' },
  ),
  notify_appservices_from_worker: optional(
    instance,
    'Process that sends to application services; the main process when unset.',
    { since: '1.59' },
  ),
  update_user_directory: optional(k.flag, 'Old form of `update_user_directory_from_worker`.', {
    deprecated: 'write update_user_directory_from_worker',
    rule: 'Must not contradict it.',
  }),
  notify_appservices: optional(k.flag, 'Old form of `notify_appservices_from_worker`.', {
    deprecated: 'write notify_appservices_from_worker',
    rule: 'Must not contradict it.',
  }),
  'processes.address': setting(
    k.text({ empty: false }),
    '127.0.0.1',
    'Address at which the other processes of the server reach this one; the default is right where all are on one machine.',
  ),
  'processes.tls': setting(
    k.flag,
    false,
    'What this process is told by the others is encrypted, with a key that follows from the secret that they share. No certificate is needed.',
  ),
  'redis.enabled': setting(
    k.flag,
    false,
    'The server may have several processes on its PostgreSQL database, which speak to each other through Redis.',
    { rule: 'Needed with workers.' },
  ),
  'redis.host': setting(k.text({ empty: false }), 'localhost', 'Host of Redis.'),
  'redis.port': setting(k.port, 6379, 'Port of Redis.'),
  'redis.path': optional(k.path, 'Unix socket of Redis, instead of host and port.'),
  'redis.username': optional(k.text({ empty: false }), 'User of Redis, where it has several.'),
  'redis.password': optional(k.secretText, 'Password of Redis.', { secret: true }),
  'redis.password_path': secretFile(k.path, 'redis.password'),
  'redis.dbid': optional(k.whole(), 'Number of the database there.'),
  'redis.use_tls': setting(k.flag, false, 'Speak TLS to Redis.'),
  'redis.certificate_file': optional(k.path, 'Our certificate (PEM).'),
  'redis.private_key_file': optional(k.path, 'Its key (PEM).'),
  'redis.ca_file': optional(k.path, 'Certificate authority (PEM).'),
  'redis.ca_path': optional(k.path, 'Folder of certificate authorities.'),
  worker_replication_host: refused(k.anything, '1.88', 'Describe the main process in instance_map under main.'),
  worker_replication_http_port: refused(k.anything, '1.88', 'Describe the main process in instance_map under main.'),
  worker_replication_http_tls: refused(k.anything, '1.88', 'Set tls in instance_map under main.'),
  worker_replication_port: refused(
    k.anything,
    '1.67',
    'Use redis, and describe the main process in instance_map under main.',
  ),
  worker_main_http_uri: ignored(k.anything, '1.73', 'Leave it out.'),
};
