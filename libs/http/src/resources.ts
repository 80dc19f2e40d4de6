/** Names that a listener's `resources` may carry, and the paths each of them serves. */
const resourcePaths: Readonly<Record<string, readonly string[]>> = {
  client: [
    '/_matrix/client',
    '/_matrix/static',
    '/_matrix/media',
    '/_synapse/admin',
    '/_synapse/client',
    '/_synapse/mas',
    '/.well-known',
  ],
  federation: ['/_matrix/federation', '/_matrix/key', '/_matrix/media'],
  media: ['/_matrix/media', '/_matrix/client/v1/media', '/_matrix/federation/v1/media'],
  keys: ['/_matrix/key'],
  openid: ['/_matrix/federation/v1/openid'],
  consent: ['/_matrix/consent'],
  static: ['/_matrix/static'],
  metrics: ['/_synapse/metrics'],
  replication: ['/_synapse/replication'],
  health: ['/health'],
};

/** The part of the admin API that goes with `media`: where it is served to everybody, the rest need not be. */
const mediaAdministration =
  /^\/_synapse\/admin\/v1\/(?:purge_media_cache$|(?:media|quarantine_media)\/|(?:room|users?)\/[^/]+\/media(?:\/|$))/;

const isBelow = (path: string, prefix: string): boolean =>
  path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/');

/**
 * Which paths a listener serves.
 * @param names the listener's resources; a name that does not exist serves nothing
 * @param extraPaths further paths with everything below them
 */
export function resourceFilter(
  names: readonly string[],
  extraPaths: readonly string[] = [],
): (path: string) => boolean {
  const prefixes = [...new Set([...names.flatMap((name) => resourcePaths[name] ?? []), ...extraPaths])];
  // The greeting and the redirect at the root belong to the client API.
  const root = names.includes('client');
  const media = names.includes('media');
  return (path) =>
    (root && path === '/') ||
    prefixes.some((prefix) => isBelow(path, prefix)) ||
    (media && mediaAdministration.test(path));
}
