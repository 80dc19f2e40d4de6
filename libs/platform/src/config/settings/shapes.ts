import * as k from '../kinds.js';

/** A server name: host or address, optionally with a port. */
export const serverName = k.text({
  label: 'server name',
  expected: 'a server name such as example.org or example.org:8448',
  pattern: /^(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,255})(?::\d{1,5})?$/,
});

/** A user id's or alias's part before the colon. */
export const localpart = k.text({
  expected: 'a localpart such as bot (no @, no server name)',
  pattern: /^[^@#:\s]{1,250}$/,
});

/** A room alias. */
export const roomAlias = k.text({ expected: 'a room alias such as #welcome:example.org', pattern: /^#[^\s]*:.+$/ });

/** A room id. */
export const roomId = k.text({ expected: 'a room id such as !abc:example.org', pattern: /^!.+$/ });

/** Something a module provides, and what it is told. */
export const moduleEntry = k.object({
  module: k.need(k.text({ empty: false }), 'Package name, or path of a module.'),
  config: k.field(k.anything, undefined, 'Handed to the module, which checks it.'),
  on_error: k.field(k.oneOf('deny', 'allow'), 'deny', 'What a gate answers when the module fails.'),
  time_limit: k.maybe(k.duration, 'How long one callback may take.'),
  allow_federation_to: k.field(
    k.list(k.text({ empty: false })),
    [],
    'Servers that the module may send signed requests to.',
  ),
  isolate: k.maybe(k.oneOf('thread'), 'Runs the module in a worker thread of its own, which is ended when it hangs.'),
  shadow: k.field(
    k.flag,
    false,
    'Asks the module and only writes down what it would have refused: its judgements and calls have no effect.',
  ),
  // With less an engine does not start.
  memory_limit: k.maybe(k.sizeFrom(16), 'Memory that the thread of the module may use; default 128M.'),
});
/** One entry of `modules`. */
export type ModuleEntry = k.KindValue<typeof moduleEntry>;

/** Something a provider implements, without the options of `modules`. */
export const providerEntry = k.object({
  module: k.need(k.text({ empty: false }), 'Package name, or path of a module.'),
  config: k.field(k.anything, undefined, 'Handed to the module, which checks it.'),
});

/** The resources a listener may serve. */
export const resourceNames = [
  'client',
  'federation',
  'media',
  'keys',
  'openid',
  'consent',
  'static',
  'metrics',
  'replication',
  'health',
] as const;

const listenerFields = k.object({
  port: k.maybe(k.port, 'TCP port.'),
  path: k.maybe(k.path, 'Unix socket, instead of a port.'),
  mode: k.field(k.whole(0, 0o777), 0o666, 'Permissions of the unix socket; 438 is 0666.'),
  tag: k.maybe(k.text(), 'Name of the listener in logs.'),
  bind_addresses: k.maybe(
    k.list(k.text({ empty: false }), { one: true }),
    'Addresses to bind; all of them when unset.',
  ),
  bind_address: k.maybe(k.text({ empty: false }), 'One address to bind.'),
  type: k.need(listenerType(), 'What speaks there.'),
  tls: k.field(k.flag, false, 'Speak TLS; needs `tls_certificate_path` and `tls_private_key_path`.'),
  x_forwarded: k.maybe(k.flag, 'Trust X-Forwarded-For and X-Forwarded-Proto. Default: false, true on a unix socket.'),
  request_id_header: k.maybe(
    k.text({ pattern: /^[A-Za-z0-9-]+$/, expected: 'a header name' }),
    'Header that carries the request id.',
  ),
  resources: k.field(
    k.list(
      k.object({
        names: k.need(k.list(k.oneOf(...resourceNames), { one: true }), 'Resources served here.'),
        compress: k.field(k.flag, false, 'Compress answers.'),
      }),
    ),
    [],
    'What an `http` listener serves.',
  ),
  additional_resources: k.field(
    k.mapOf(providerEntry),
    {},
    'Further paths to open, each for a module, which registers the path itself and has to stand in `modules`, too.',
  ),
});

function listenerType(): k.Kind<'http' | 'manhole' | 'metrics'> {
  const current = k.oneOf('http', 'manhole', 'metrics');
  const gone: Readonly<Record<string, string>> = {
    webclient:
      'webclient listeners were removed in 1.53: set web_client_location to the address of a web client instead',
    replication:
      'replication over TCP was removed in 1.67: use an http listener with the resource replication, and redis',
  };
  return {
    ...current,
    read(value, path, context) {
      const message = typeof value === 'string' && Object.hasOwn(gone, value) ? gone[value] : undefined;
      if (message === undefined) return current.read(value, path, context);
      context.error(path, message);
      return undefined;
    },
  };
}

/** One entry of `listeners`: exactly one of `port` and `path`. */
export const listener: typeof listenerFields = {
  ...listenerFields,
  read(value, path, context) {
    const result = listenerFields.read(value, path, context);
    if (!result) return undefined;
    if ((result.port === undefined) === (result.path === undefined) && isReadable(value)) {
      context.error(path, 'expected exactly one of port and path');
    }
    const addresses = [
      ...(result.bind_addresses ?? []),
      ...(result.bind_address === undefined ? [] : [result.bind_address]),
    ];
    const bound = addresses.length === 0 ? undefined : addresses;
    return { ...result, bind_addresses: bound, x_forwarded: result.x_forwarded ?? result.path !== undefined };
  },
};

/** Whether port or path failed on their own, so that saying it twice would only confuse. */
const isReadable = (value: unknown): boolean => {
  if (!k.isSection(value)) return false;
  const given = [value['port'], value['path']].filter((one) => one !== undefined && one !== null);
  return given.length !== 1;
};

/** A listener as the code sees it. */
export type Listener = k.KindValue<typeof listener>;

/** Numbers of a token bucket. Keys left out keep the setting's own defaults. */
export const rateLimit = (perSecond: number, burstCount: number): k.Kind<RateLimitSetting> =>
  k.object({
    per_second: k.field(k.decimal(), perSecond, 'Actions per second in the long run.'),
    burst_count: k.field(k.whole(), burstCount, 'Actions in one go.'),
  });

/** Numbers of a token bucket. */
export interface RateLimitSetting {
  readonly per_second: number;
  readonly burst_count: number;
}

/** A regular expression, kept as text. */
export const regex = k.checked(k.text({ empty: false, expected: 'a regular expression' }), (value) => {
  try {
    new RegExp(value);
    return undefined;
  } catch {
    return `expected a regular expression, found ${k.shown(value)}`;
  }
});
