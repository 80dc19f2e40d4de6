/** The version segments of the client API: all releases since r0 live under `v3` too. */
export type ClientVersion = 'r0' | 'v1' | 'v3' | 'unstable' | 'api/v1';

/**
 * The paths of a client endpoint, for a Nest method decorator: `@Get(client(['r0', 'v3'], '/account/whoami'))`.
 * Paths are written with the standard prefix; the prefix setting is applied by rewriting the request's URL.
 */
export function client(versions: readonly ClientVersion[], path: string): string[] {
  return versions.map((version) => `/_matrix/client/${version}${path}`);
}

/** `r0` and `v3`: endpoints of the first releases. */
export const stable = (path: string): string[] => client(['r0', 'v3'], path);
