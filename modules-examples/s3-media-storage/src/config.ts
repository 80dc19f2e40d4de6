import { ConfigError } from '@rookery/module-api';

export interface S3Config {
  /** Address of the service, without the bucket. */
  readonly endpoint: URL;
  readonly bucket: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of temporary credentials. */
  readonly sessionToken: string | undefined;
  /** Put before the path of each file. */
  readonly prefix: string;
  /** The bucket is the first part of the path rather than of the host's name. */
  readonly pathStyle: boolean;
  /** Further headers of each upload: storage class, encryption. */
  readonly uploadHeaders: Readonly<Record<string, string>>;
  /** Longest silence of the service. */
  readonly timeoutMs: number;
  /** How long clients may use the addresses that they are sent to; `undefined` sends none. */
  readonly presignSeconds: number | undefined;
  /** Where clients reach the service. */
  readonly publicEndpoint: URL;
  /** Where files are kept that were asked for lately. */
  readonly cache: { readonly folder: string; readonly maxBytes: number } | undefined;
}

const names = [
  'endpoint',
  'bucket',
  'region',
  'access_key_id',
  'secret_access_key',
  'session_token',
  'prefix',
  'path_style',
  'storage_class',
  'server_side_encryption',
  'timeout_ms',
  'presign_seconds',
  'public_endpoint',
  'cache_folder',
  'cache_mb',
];
/** The longest that signatures of this kind can be good for. */
const longestPresign = 7 * 86_400;

/** Checks the `config` of the storage provider's setting. @throws ConfigError */
export function parseConfig(raw: unknown): S3Config {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with bucket, region, access_key_id and secret_access_key');
  const given = raw as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  }
  const optional = (name: string, pattern: RegExp, expected: string): string | undefined => {
    const value = given[name];
    if (value === undefined) return undefined;
    if (typeof value !== 'string' || !pattern.test(value)) throw new ConfigError(`expected ${expected}`, [name]);
    return value;
  };
  const needed = (name: string, pattern: RegExp, expected: string): string => {
    const value = optional(name, pattern, expected);
    if (value === undefined) throw new ConfigError(`is missing: ${expected}`, [name]);
    return value;
  };
  const word = /^[\x21-\x7e]+$/;
  const bucket = needed('bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'the name of a bucket');
  const region = needed('region', /^[a-z0-9-]{1,40}$/, 'the name of a region');
  const addressOf = (name: string, usual: string): URL => {
    const address = given[name] ?? usual;
    const url = typeof address === 'string' ? URL.parse(address) : null;
    if (
      url === null ||
      !/^https?:$/.test(url.protocol) ||
      url.pathname !== '/' ||
      url.search !== '' ||
      url.username !== ''
    )
      throw new ConfigError('expected an http or https URL without a path and a name', [name]);
    return url;
  };
  const endpoint = addressOf('endpoint', `https://s3.${region}.amazonaws.com`);
  const prefix = optional('prefix', /^[\w!.*'()/-]{0,500}$/, 'letters, digits, -, _, . and /') ?? '';
  if (prefix.startsWith('/') || /(?:^|\/)\.{1,2}(?:\/|$)|\/\//.test(prefix))
    throw new ConfigError('expected a prefix without empty parts', ['prefix']);
  const {
    path_style: pathStyle = bucket.includes('.') || given['endpoint'] !== undefined,
    timeout_ms: timeoutMs = 30_000,
    presign_seconds: presignSeconds,
    cache_mb: cacheMb = 1_024,
  } = given;
  if (typeof pathStyle !== 'boolean') throw new ConfigError('expected true or false', ['path_style']);
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 100 && timeoutMs <= 120_000))
    throw new ConfigError('expected a number of milliseconds from 100 to 120000', ['timeout_ms']);
  if (
    presignSeconds !== undefined &&
    !(Number.isInteger(presignSeconds) && Number(presignSeconds) >= 1 && Number(presignSeconds) <= longestPresign)
  )
    throw new ConfigError(`expected a number of seconds from 1 to ${longestPresign}`, ['presign_seconds']);
  if (typeof cacheMb !== 'number' || !(cacheMb >= 1)) throw new ConfigError('expected a number of MiB', ['cache_mb']);
  const cacheFolder = optional('cache_folder', /^(?:\/|[A-Za-z]:[\\/])./, 'the absolute path of a folder of its own');
  if (cacheFolder === undefined && given['cache_mb'] !== undefined)
    throw new ConfigError('has no effect without cache_folder', ['cache_mb']);
  const storageClass = optional('storage_class', /^[A-Z_]{1,40}$/, 'a storage class, for example STANDARD_IA');
  const encryption = optional('server_side_encryption', /^[A-Za-z0-9:]{1,40}$/, 'AES256 or aws:kms');
  return {
    endpoint,
    bucket,
    region,
    accessKeyId: needed('access_key_id', word, 'a text without spaces'),
    secretAccessKey: needed('secret_access_key', word, 'a text without spaces'),
    sessionToken: optional('session_token', word, 'a text without spaces'),
    prefix,
    pathStyle,
    uploadHeaders: {
      ...(storageClass === undefined ? {} : { 'x-amz-storage-class': storageClass }),
      ...(encryption === undefined ? {} : { 'x-amz-server-side-encryption': encryption }),
    },
    timeoutMs,
    presignSeconds: presignSeconds as number | undefined,
    publicEndpoint: addressOf('public_endpoint', endpoint.href),
    cache: cacheFolder === undefined ? undefined : { folder: cacheFolder, maxBytes: cacheMb * 1024 ** 2 },
  };
}
