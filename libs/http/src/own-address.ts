import type { Config } from '@rookery/platform';

/** Where this server lies for people and programs outside. */
type Addressed = Pick<Config, 'get' | 'serverName'>;

/** `public_baseurl`, or what stands for it, with a slash at its end. */
export function ownBaseUrl(config: Addressed): string {
  const base = config.get('public_baseurl') ?? `https://${config.serverName}/`;
  return base.endsWith('/') ? base : `${base}/`;
}

/**
 * The full address of something that this server serves, for links that it hands out.
 * @param path with a standard prefix and without a slash in front: `_matrix/consent`; the settings' own takes its place
 */
export function ownUrl(config: Addressed, path: string, query: Readonly<Record<string, string>> = {}): string {
  const search = new URLSearchParams(query).toString();
  return ownBaseUrl(config) + withOwnPrefix(config, path) + (search === '' ? '' : `?${search}`);
}

/** The path of {@link ownUrl} on the server's host, for forms and cookies. */
export function ownPath(config: Addressed, path: string): string {
  return new URL(ownBaseUrl(config)).pathname + withOwnPrefix(config, path);
}

/**
 * A request target as it goes over the wire, and as servers sign it, from one with the standard prefixes.
 * @param target with a slash in front: `/_matrix/federation/v1/version`
 */
export const targetOnWire = (config: Addressed, target: string): string => `/${withOwnPrefix(config, target.slice(1))}`;

function withOwnPrefix(config: Addressed, path: string): string {
  return path
    .replace(/^_matrix(?=\/|$)/, config.get('protocol_prefix'))
    .replace(/^_synapse(?=\/|$)/, config.get('service_prefix'));
}
