/** The version segments of the client API. The request handler takes `r0` for `v3`. */
export type ClientVersion = 'v1' | 'v3' | 'unstable' | 'api/v1';

/**
 * The paths of a client endpoint, for a Nest method decorator: `@Get(client(['v3', 'unstable'], '/account/whoami'))`.
 * Paths are written with the standard prefix; the prefix setting is applied by rewriting the request's URL.
 */
export function client(versions: readonly ClientVersion[], path: string): string[] {
  return versions.map((version) => `/_matrix/client/${version}${path}`);
}

/** `v3`, and by it `r0`. */
export const stable = (path: string): string[] => client(['v3'], path);
